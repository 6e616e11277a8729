"""The section on cells that failed or were withheld, and on skipped parts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tare.analysis.model import CellResult, RunData, SkippedPart
from tare.report.figures.svg import legible
from tare.report.page.data import ReportData
from tare.report.page.tables import Column, ShownTable, Table
from tare.report.page.words import counted, marked, parameter_text, parameters_of
from tare.report.sections.contract import Section, SectionData
from tare.skips import LeftOut, SkipReason, lines_of

MOST_LINES = 40
"""The most cells with logs, and the most machines with consoles, that the page shows."""


@dataclass(frozen=True)
class Lines:
    """Lines of text from outside Tare, with a name."""

    name: str
    lines: tuple[str, ...]
    reason: str = ""


@dataclass(frozen=True)
class UncountedData(SectionData):
    """The content of the section on cells that do not count."""

    words: str
    lost: ShownTable | None
    logs: tuple[Lines, ...]
    skipped: ShownTable | None
    ends: tuple[Lines, ...]


class Uncounted(Section):
    """What failed, was withheld or skipped, with reasons, logs and last console lines."""

    name, title, template = "lost", "What failed, was withheld or skipped", "uncounted.html.j2"

    def data(self, report: ReportData) -> UncountedData:
        """Return all that does not count. The template shows nothing if everything is empty."""
        runs = report.runs
        lost, skipped = lost_cells_table(runs), skipped_groups_table(runs)
        return UncountedData(
            words=_lost_words(runs),
            lost=lost_groups_table(runs).shown() if lost.rows else None,
            logs=tuple(
                Lines(legible(cell.cell), tuple(legible(line) for line in cell.logs))
                for cell in lost.rows
                if cell.logs
            )[:MOST_LINES],
            skipped=skipped.shown() if skipped.rows else None,
            ends=_ends(runs),
            tables=(lost, skipped_table(runs)),
        )


def lost_cells_table(runs: Iterable[RunData]) -> Table[CellResult]:
    """Return the cells that do not count, with their reasons."""
    rows = tuple(cell for run in runs for cell in run.cells if cell.status != "ok")
    emulated = {(run.run, arm) for run in runs for arm in run.emulated_arms}
    columns: tuple[Column[CellResult], ...] = (
        Column("run", lambda c: c.run),
        Column("block", lambda c: c.block, "Block", numeric=True),
        Column("arm", lambda c: c.arm, "Arm", lambda c: marked(c.arm, (c.run, c.arm) in emulated)),
        Column("cell", lambda c: c.cell, "Cell", lambda c: c.cell),
        Column("status", lambda c: c.status, "Status"),
        Column("reason", lambda c: c.reason, "Reason"),
        Column("attempt", lambda c: c.attempt),
    )
    return Table("lost-cells", "Cells that do not count", columns, rows)


@dataclass(frozen=True)
class LostGroup:
    """Cells of one arm and workload that did not count for one reason."""

    arm: str
    emulated: bool
    what: str
    status: str
    reason: str
    blocks: tuple[int, ...]


def lost_groups_table(runs: Iterable[RunData]) -> Table[LostGroup]:
    """Return the cells that do not count, one row for each arm, workload and reason."""
    blocks: dict[tuple[str, bool, str, str, str], list[int]] = {}
    for run in runs:
        for cell in run.cells:
            if cell.status != "ok":
                given = parameter_text(parameters_of(cell.parameters))
                what = f"{cell.workload} {given} ({cell.scenario})"
                kind = (cell.arm, cell.arm in run.emulated_arms, what, cell.status, cell.reason)
                blocks.setdefault(kind, []).append(cell.block)
    columns: tuple[Column[LostGroup], ...] = (
        Column("arm", lambda g: g.arm, "Arm", lambda g: marked(g.arm, g.emulated)),
        Column("what", lambda g: g.what, "Cell"),
        Column("status", lambda g: g.status, "Status"),
        Column("blocks", lambda g: ", ".join(map(str, sorted(set(g.blocks)))), "Blocks"),
        Column("reason", lambda g: g.reason, "Reason"),
    )
    rows = tuple(LostGroup(*kind, tuple(found)) for kind, found in blocks.items())
    return Table("lost", "Cells that do not count", columns, rows)


def skipped_table(runs: Iterable[RunData]) -> Table[SkippedPart]:
    """Return the parts of a study that did not run, with the reasons, each once."""
    runs = tuple(runs)
    rows = tuple(dict.fromkeys(part for run in runs for part in run.skipped))
    emulated = frozenset[str]().union(*(run.emulated_arms for run in runs))
    columns: tuple[Column[SkippedPart], ...] = (
        Column("arm", lambda s: s.arm, "Arm", lambda s: marked(s.arm, s.arm in emulated)),
        Column("scenario", lambda s: s.scenario, "Scenario", lambda s: s.scenario or "all"),
        Column("workload", lambda s: s.workload, "Workload", lambda s: s.workload or "all"),
        Column("reason", lambda s: s.reason, "Reason"),
    )
    return Table("skipped", "What did not run here", columns, rows)


def skipped_groups_table(runs: Iterable[RunData]) -> Table[SkipReason]:
    """Return the parts of a study that did not run, one row for each reason."""
    parts = (
        LeftOut(each.arm, each.scenario, each.workload, each.reason)
        for run in runs
        for each in run.skipped
    )
    columns: tuple[Column[SkipReason], ...] = (
        Column("what", lambda line: line.what, "Skipped"),
        Column("reason", lambda line: line.reason, "Reason"),
    )
    rows = tuple(lines_of(parts, between=" / "))
    return Table("skipped-by-reason", "What did not run here", columns, rows)


def _lost_words(runs: Sequence[RunData]) -> str:
    lost = sum(cell.status != "ok" for run in runs for cell in run.cells)
    text = "Nothing here entered any estimate."
    if lost:
        text = f"{counted(lost, 'cell')} did not count. {text}"
    return text


def _ends(runs: Sequence[RunData]) -> tuple[Lines, ...]:
    return tuple(
        Lines(
            legible(machine.machine),
            tuple(legible(line) for line in machine.console_tail) or ("(no console output)",),
            legible(machine.reason),
        )
        for run in runs
        for machine in run.machines
        if machine.expected is False
    )[:MOST_LINES]
