"""What the page says of one source: its tables and figures, or those tables the run has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tare.references.arms import Like
from tare.references.pairing import SideBySide
from tare.references.published import Reference
from tare.references.scenarios import describe_scenario
from tare.references.stated import Stated
from tare.report.glance import Glance
from tare.report.paper import PaperItem
from tare.report.published import published_table
from tare.report.svg import legible
from tare.report.tables import Shown, Table
from tare.report.words import joined, slug

RULE = (
    "Each ratio divides by the bare machine of its own source, and nothing here divides one source "
    "by the other. Published values enter no estimate, test or verdict. Of this run’s maxima the "
    "worst over all blocks is shown, as the source does; a ratio over blocks stands beside it "
    "with its interval."
)


@dataclass(frozen=True)
class ShownBeside:
    """One table for the page, with what must be said below it."""

    table: Shown
    notes: tuple[str, ...]


@dataclass(frozen=True)
class ReferenceSection:
    """What the page says of one reference: ``items`` where its source's order is known."""

    id: str
    name: str
    source: str
    about: tuple[str, ...]
    tables: tuple[ShownBeside, ...]
    items: tuple[PaperItem, ...]
    facts: Shown | None
    arms: Shown | None = None
    glance: Shown | None = None


def reference_section(
    side: SideBySide,
    items: Sequence[PaperItem] = (),
    *,
    facts: Table[Stated] | None = None,
    arms: Table[Like] | None = None,
    glance: Table[Glance] | None = None,
) -> ReferenceSection:
    """Return the page's section about one reference.

    Args:
        side: Published and own values.
        items: The source's tables and figures in its order; without any, the tables that the run
            has values for are shown alone.
        facts: What its text states.
        arms: What stands for its arms.
        glance: Its tables and figures at a glance.
    """
    reference = side.reference
    left_out = _missing(side, items) if items else _left_out(side)
    about = [reference.reading, RULE, *left_out, reference.no_study]
    return ReferenceSection(
        id=slug(f"reference {reference.reference}"),
        name=legible(reference.reference),
        source=legible(_source(reference)),
        about=tuple(legible(line) for line in about if line),
        tables=tuple(
            ShownBeside(published_table(side, one).shown(), tuple(map(legible, one.notes)))
            for one in (() if items else side.matched)
        ),
        items=tuple(items),
        facts=facts.shown() if facts is not None and facts.rows else None,
        arms=arms.shown() if arms is not None and arms.rows else None,
        glance=glance.shown() if glance is not None else None,
    )


def _source(reference: Reference) -> str:
    machine = "; ".join(f"{name}: {text}" for name, text in reference.machine.items())
    said = f"{joined(reference.authors)}: {reference.title}. {reference.published}."
    return f"{said} Measured on {machine}." if machine else said


def _missing(side: SideBySide, items: Sequence[PaperItem]) -> Iterator[str]:
    filled = [item for item in items if not item.empty]
    if not filled:
        yield from _nothing(side)
        return
    yield (
        f"Below stand the source’s {len(items)} tables and figures in its order; for "
        f"{len(filled)} of them this run has a counterpart, and at the others stands why not."
    )


def _nothing(side: SideBySide) -> Iterator[str]:
    yield "This run measured nothing that can be set beside these values."
    if studies := [f"studies/{name}.yaml" for name in side.reference.studies]:
        yield f"A run of {' or '.join(studies)} does."


def _left_out(side: SideBySide) -> Iterator[str]:
    """Say which tables stand only in the CSV file, and why."""
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
        yield from _nothing(side)
    if lonely:
        sentences = "; ".join(f"{joined(names)}: {why}" for why, names in lonely.items())
        yield f"With nothing of this run's beside them, and so only in the CSV file: {sentences}."
