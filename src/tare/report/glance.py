"""A source at a glance: what of it a run repeats, by how much the two differ, and what is empty."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tare.references.arms import Like
from tare.references.pairing import PairedTable, Row, SideBySide
from tare.report.paper import PaperDraft
from tare.report.published import as_printed
from tare.report.tables import Column, Table
from tare.report.words import NONE, joined, ratio
from tare.units import format_quantity

Range = tuple[float, float]


@dataclass(frozen=True)
class Glance:
    """One table or figure of a source.

    Args:
        name: How to cite it.
        shows: What it shows.
        published: The least and the greatest of its values against its own bare machine.
        own: The same of the run; None without.
        alike: Machines that are like one another, the source's and then the run's.
        here: What stands for it, or why nothing does.
    """

    name: str
    shows: str
    published: Range | None
    own: Range | None
    alike: tuple[str, ...]
    here: str


def glance_table(
    side: SideBySide, drafted: Sequence[PaperDraft], likes: Sequence[Like]
) -> Table[Glance]:
    """Return one row a table or figure, in the source's order.

    Args:
        side: Published and own values.
        drafted: What stands for each.
        likes: The run's arms that are like the source's.
    """
    by_name = {
        draft.exhibit.name: one
        for draft in drafted
        for one in side.tables
        if one.table.is_shown_by(draft.exhibit)
    }
    columns: tuple[Column[Glance], ...] = (
        Column("name", lambda row: row.name, "In the source"),
        Column("shows", lambda row: row.shows, "Shows"),
        Column("published_low", lambda row: row.published[0] if row.published else None),
        Column("published_high", lambda row: row.published[1] if row.published else None),
        Column(
            "published", lambda row: _range(row.published), "Published ÷ its bare", numeric=True
        ),
        Column("own_low", lambda row: row.own[0] if row.own else None),
        Column("own_high", lambda row: row.own[1] if row.own else None),
        Column("own", lambda row: _range(row.own), "This run ÷ its bare", numeric=True),
        Column(
            "alike",
            lambda row: "; ".join(row.alike),
            "Machine by machine",
            lambda row: "; ".join(row.alike) or NONE,
        ),
        Column("here", lambda row: row.here, "Here"),
    )
    rows = tuple(_glance(side, draft, by_name.get(draft.exhibit.name), likes) for draft in drafted)
    reference = side.reference.reference
    return Table(f"paper-{reference}", f"{reference} at a glance", columns, rows)


def _range(ends: Range | None) -> str:
    if ends is None:
        return NONE
    low, high = (ratio(end) for end in ends)
    return low if low == high else f"{low} to {high}"


def _glance(
    side: SideBySide, draft: PaperDraft, one: PairedTable | None, likes: Sequence[Like]
) -> Glance:
    published = own = None
    alike: tuple[str, ...] = ()
    if one is not None:
        published = _ends(side, one, published=True)
        own = _ends(side, one, published=False)
        alike = tuple(_alike(side, one, likes))
    shows = draft.exhibit.shows or draft.caption.partition(": ")[2]
    return Glance(draft.exhibit.name, shows, published, own, alike, _here(draft))


def _alike(side: SideBySide, one: PairedTable, likes: Sequence[Like]) -> Iterator[str]:
    """Yield each of the source's machines but the bare one, with the run's that are like it.

    Ratios to the own bare machine where both have them, else the values themselves.
    """
    printed = {row.arm: row for row in one.rows if row.published}
    # The last of an arm is the one in the table's own scenario.
    own = {row.arm: row for row in one.rows if not row.published}
    for like in likes:
        found = [own[arm] for arm in like.own if arm in own]
        if like.arm == side.reference.baseline or like.arm not in printed or not found:
            continue
        rows = (printed[like.arm], *found)
        divided = all(value.ratio is not None for row in rows for value in row.values if value)
        said = [_told(one, row, divided=divided) for row in rows]
        yield f"{like.label}, published: {said[0]}; here " + ", ".join(
            f"{row.label}: {text}" for row, text in zip(found, said[1:], strict=True)
        )


def _told(one: PairedTable, row: Row, *, divided: bool) -> str:
    """Return a row's ratios to its own bare machine, or its values."""
    if divided:
        known = [value.ratio for value in row.values if value and value.ratio is not None]
        return _range((min(known), max(known)))
    unit = one.table.unit
    values = (value.value for value in row.values if value)
    if row.published:
        return " and ".join(as_printed(value, unit) for value in values)
    return " and ".join(format_quantity(value, unit) for value in values)


def _ends(side: SideBySide, one: PairedTable, *, published: bool) -> Range | None:
    """Return the range over all machines but the bare ones."""
    baseline = side.reference.baseline
    bare = baseline if published else side.baseline
    found = [
        value.ratio
        for row in one.rows
        if row.published is published and row.arm != bare
        for value in row.values
        if value is not None and value.ratio is not None
    ]
    return (min(found), max(found)) if found else None


def _here(draft: PaperDraft) -> str:
    if draft.empty:
        return f"empty: {draft.empty}"
    if draft.above is not None:
        return f"as {draft.above.name}"
    return "a figure" if draft.figure is not None else "a table"


def arms_table(reference: str, likes: Iterable[Like]) -> Table[Like]:
    """Return each arm of a source with the run's that are like it, or why there is none."""
    columns: tuple[Column[Like], ...] = (
        Column("arm", lambda like: like.arm),
        Column("label", lambda like: like.label, "In the source"),
        Column("own", lambda like: joined(like.own) if like.own else NONE, "This run’s"),
        Column("why", lambda like: like.why, "Why none", lambda like: like.why or NONE),
    )
    rows = tuple(like for like in likes if like.own or like.why)
    caption = f"What stands for the machines of {reference}"
    return Table(f"reference-{reference}-arms", caption, columns, rows)
