"""The section on sources that the run is compared with. It is loaded only if there are any."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tare.references.arms import ArmMatch, alike
from tare.references.pairing import ArmRow, PairedTable, SideBySide, pair_with_published
from tare.references.published import Reference
from tare.references.scenarios import describe_scenario
from tare.references.stated import Stated, stated
from tare.report.figures.svg import legible
from tare.report.page.data import ReportData
from tare.report.page.tables import Column, ShownTable, Table
from tare.report.page.words import NONE, joined, ratio, slug
from tare.report.sections.contract import Section, SectionData
from tare.report.sources.paper import (
    PaperDraft,
    PaperItem,
    RunFindings,
    paper_drafts,
    paper_items,
    parts_of,
)
from tare.report.sources.published import published_table, published_values
from tare.report.sources.stated import stated_table
from tare.units import format_quantity


@dataclass(frozen=True)
class SourcesData(SectionData):
    """The content of the section on sources."""

    sources: tuple[ReferenceSection, ...]


class Sources(Section):
    """Published values next to the run's own, source by source."""

    name, title, template = "published", "Published values and this run", "sources.html.j2"

    def data(self, report: ReportData) -> SourcesData:
        """Return each source's tables and figures with the runs' counterparts."""
        findings = RunFindings(
            report.comparison,
            report.looks,
            report.series,
            report.phases,
            report.monitors,
            report.links,
            report.proxied,
            _missing_parts(report),
        )
        each = [_Source.of(reference, findings) for reference in report.references]
        return SourcesData(
            tuple(one.section() for one in each),
            figures=tuple(
                (draft.figure, draft.note) for one in each for draft in one.drafts if draft.figure
            ),
            tables=tuple(table for one in each for table in one.tables()),
        )


def _missing_parts(report: ReportData) -> dict[str, str]:
    """Return by title the reason why the page lacks a part that numbers of a text refer to."""
    found, pairs = {}, report.comparison.pairs
    if pairs is None or len(pairs.arms) < 2:
        found["Ranking"] = "this run has no two arms to rank"
    if not report.has_neighbours:
        found["What neighbours do"] = "no machine of this run had neighbours"
    return found


@dataclass(frozen=True)
class _Source:
    """One source, paired with the run."""

    side: SideBySide
    facts: Table[Stated] | None
    drafts: Sequence[PaperDraft]
    glance: Table[Glance] | None
    arms: Table[ArmMatch]

    @staticmethod
    def of(reference: Reference, findings: RunFindings) -> _Source:
        comparison = findings.comparison
        side, facts = pair_with_published(comparison, reference), stated(comparison, reference)
        likes = alike(comparison, reference)
        drafts = paper_drafts(side, findings, facts)
        return _Source(
            side,
            stated_table(side.reference, facts, parts_of(drafts, findings.missing))
            if facts
            else None,
            drafts,
            glance_table(side, drafts, likes) if drafts else None,
            arms_table(side.reference.reference, likes),
        )

    def tables(self) -> Iterator[Table[Any]]:
        """Yield the tables to write as files."""
        yield published_values(self.side)
        yield from (draft.whole for draft in self.drafts if draft.whole is not None)
        if self.facts is not None:
            yield self.facts
        if self.glance is not None:
            yield self.glance
            yield self.arms

    def section(self) -> ReferenceSection:
        """Return the source's part of the page."""
        return reference_section(
            self.side,
            paper_items(self.side, self.drafts),
            facts=self.facts,
            arms=self.arms,
            glance=self.glance,
        )


Range = tuple[float, float]


@dataclass(frozen=True)
class Glance:
    """One table or figure of a source.

    Args:
        name: Its citation.
        shows: Its content in words.
        published: The smallest and largest of its ratios to the source's own bare machine.
        own: The same of the run; None without any.
        alike: The source's machines, each with the run's counterparts.
        here: The run's counterpart of the table or figure, or the reason why there is none.
    """

    name: str
    shows: str
    published: Range | None
    own: Range | None
    alike: tuple[str, ...]
    here: str


def glance_table(
    side: SideBySide, drafted: Sequence[PaperDraft], likes: Sequence[ArmMatch]
) -> Table[Glance]:
    """Return one row for each table or figure, in the source's order.

    Args:
        side: Published and own values.
        drafted: The run's counterpart of each table or figure.
        likes: The run's counterparts of the source's arms.
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


def _never(glance: Table[Glance]) -> list[str]:
    """Return the columns that are empty in all rows."""
    return [
        column.key
        for column in glance.columns
        if column.key in ("published", "own", "alike")
        and all(column.shown(row) == NONE for row in glance.rows)
    ]


def _range(ends: Range | None) -> str:
    if ends is None:
        return NONE
    low, high = (ratio(end) for end in ends)
    return low if low == high else f"{low} to {high}"


def _glance(
    side: SideBySide, draft: PaperDraft, one: PairedTable | None, likes: Sequence[ArmMatch]
) -> Glance:
    published = own = None
    alike: tuple[str, ...] = ()
    if one is not None:
        published = _ends(side, one, published=True)
        own = _ends(side, one, published=False)
        alike = tuple(_alike(side, one, likes))
    shows = draft.exhibit.shows or draft.caption.partition(": ")[2]
    return Glance(draft.exhibit.name, shows, published, own, alike, _draft_content(draft))


def _alike(side: SideBySide, one: PairedTable, likes: Sequence[ArmMatch]) -> Iterator[str]:
    """Yield each of the source's machines except the bare one, with the run's counterparts.

    They are shown as ratios to the own bare machine if both have them, otherwise as values.
    """
    printed = {row.arm: row for row in one.rows if row.published}
    # The last row of an arm is the one in the table's own scenario.
    own = {row.arm: row for row in one.rows if not row.published}
    for like in likes:
        found = [own[arm] for arm in like.own if arm in own]
        if like.arm == side.reference.baseline or like.arm not in printed or not found:
            continue
        rows = (printed[like.arm], *found)
        divided = all(value.ratio is not None for row in rows for value in row.values if value)
        texts = [_ratios_or_values(one, row, divided=divided) for row in rows]
        yield f"{like.label}, published: {texts[0]}; here " + ", ".join(
            f"{row.label}: {text}" for row, text in zip(found, texts[1:], strict=True)
        )


def _ratios_or_values(one: PairedTable, row: ArmRow, *, divided: bool) -> str:
    """Return a row's ratios to its own bare machine, or its values."""
    if divided:
        known = [value.ratio for value in row.values if value and value.ratio is not None]
        return _range((min(known), max(known)))
    unit = one.table.unit
    values = (value for value in row.values if value)
    if row.published:
        return " and ".join(value.printed for value in values)
    return " and ".join(format_quantity(value.value, unit) for value in values)


def _ends(side: SideBySide, one: PairedTable, *, published: bool) -> Range | None:
    """Return the range of ratios over all machines except the bare ones; None without any."""
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


def _draft_content(draft: PaperDraft) -> str:
    if draft.empty:
        return f"empty: {draft.empty}"
    if draft.above is not None:
        return f"as {draft.above.name}"
    return "a figure" if draft.figure is not None else "a table"


def arms_table(reference: str, likes: Iterable[ArmMatch]) -> Table[ArmMatch]:
    """Return each arm of a source with the run's counterparts, or the reason why there are none."""
    columns: tuple[Column[ArmMatch], ...] = (
        Column("arm", lambda like: like.arm),
        Column("label", lambda like: like.label, "In the source"),
        Column("own", lambda like: joined(like.own) if like.own else NONE, "This run’s"),
        Column("why", lambda like: like.why, "Why none", lambda like: like.why or NONE),
    )
    rows = tuple(like for like in likes if like.own or like.why)
    caption = f"This run’s counterparts of the machines of {reference}"
    return Table(f"reference-{reference}-arms", caption, columns, rows)


RATIOS = (
    "Each ratio divides by the bare machine of its own source: the source’s values by the "
    "source’s, this run’s by this run’s."
)
NO_RATIOS = (
    "The source’s values have no ratios, as none is of a bare machine; this run’s divide by its "
    "baseline."
)
MAXIMA = (
    "This run’s maxima are the worst over all blocks, as in the source, with a ratio over blocks "
    "and its interval."
)
RULE = "Published values enter no estimate, test or verdict."


@dataclass(frozen=True)
class TableWithNotes:
    """One table for the page, with the notes below it."""

    table: ShownTable
    notes: tuple[str, ...]


@dataclass(frozen=True)
class ReferenceSection:
    """One reference's part of the page, with ``items`` if its exhibits are listed in order."""

    id: str
    name: str
    source: str
    about: tuple[str, ...]
    tables: tuple[TableWithNotes, ...]
    items: tuple[PaperItem, ...]
    facts: ShownTable | None
    arms: ShownTable | None = None
    glance: ShownTable | None = None


def reference_section(
    side: SideBySide,
    items: Sequence[PaperItem] = (),
    *,
    facts: Table[Stated] | None = None,
    arms: Table[ArmMatch] | None = None,
    glance: Table[Glance] | None = None,
) -> ReferenceSection:
    """Return the page's part about one reference.

    Args:
        side: Published and own values.
        items: The source's tables and figures in its order. Without any, only the tables for which
            the run has values are shown.
        facts: The numbers that the source's text states.
        arms: The run's counterparts of the source's arms.
        glance: An overview of the source's tables and figures.
    """
    reference = side.reference
    left_out = _missing(side, items) if items else _left_out(side)
    about = [reference.reading, " ".join(_rules(reference)), *left_out, reference.no_study]
    return ReferenceSection(
        id=slug(f"reference {reference.reference}"),
        name=legible(reference.reference),
        source=legible(_source(reference)),
        about=tuple(legible(line) for line in about if line),
        tables=tuple(
            TableWithNotes(published_table(side, one).shown(), tuple(map(legible, one.notes)))
            for one in (() if items else side.matched)
        ),
        items=tuple(items),
        facts=facts.shown() if facts is not None and facts.rows else None,
        arms=arms.shown() if arms is not None and arms.rows else None,
        glance=glance.shown(hide=_never(glance)) if glance is not None else None,
    )


def _rules(reference: Reference) -> Iterator[str]:
    """Yield how to read a source's values next to the run's. Ratios exist only in its tables."""
    if reference.tables:
        yield RATIOS if reference.baseline else NO_RATIOS
    yield RULE
    if reference.tables:
        yield MAXIMA


def _source(reference: Reference) -> str:
    machine = "; ".join(f"{name}: {text}" for name, text in reference.machine.items())
    citation = f"{joined(reference.authors)}: {reference.title}. {reference.published}."
    return f"{citation} Measured on {machine}." if machine else citation


def _missing(side: SideBySide, items: Sequence[PaperItem]) -> Iterator[str]:
    filled = [item for item in items if not item.empty]
    if not filled:
        yield from _no_values_sentences(side)
        return
    yield (
        f"The source’s {len(items)} tables and figures follow in its order. This run has a "
        f"counterpart of {len(filled)} of them; the others state why there is none."
    )


def _no_values_sentences(side: SideBySide) -> Iterator[str]:
    yield "This run measured nothing that can be compared with these values."
    if studies := [f"studies/{name}.yaml" for name in side.reference.studies]:
        yield f"A run of {' or '.join(studies)} does."


def _left_out(side: SideBySide) -> Iterator[str]:
    """Yield the tables that are only in the CSV file, with the reasons."""
    lonely: dict[str, list[str]] = {}
    for one in side.tables:
        if one.has_own:
            continue
        if one.scenario is None:
            why = "no scenario to compare in"
        elif not one.matched:
            why = (
                f"no scenario here is like {one.table.scenario} ({describe_scenario(one.scenario)})"
            )
        else:
            why = f"scenario {one.matched} has no {one.table.workload} with such parameters"
        lonely.setdefault(why, []).append(one.table.name)
    if not side.matched:
        yield from _no_values_sentences(side)
    if lonely:
        sentences = "; ".join(f"{joined(names)}: {why}" for why, names in lonely.items())
        yield f"Without a counterpart in this run, and so only in the CSV file: {sentences}."
