"""Figures that each arm's hypervisor counted for its machines: medians over cells, not combined."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from tare.analysis.data.rundata import RunData
from tare.events.hypervisor import HypervisorFigure, HypervisorFigures, hypervisor_figures
from tare.events.results import CellResult


@dataclass(frozen=True)
class ReportedFigure:
    """One figure of an arm's hypervisor in one scenario, or the fact that it reported none.

    Args:
        scenario: The scenario.
        arm: The arm.
        emulated: Whether the arm's results carry the mark of emulation.
        cells: The number of the arm's cells in the scenario that count.
        name: The figure, as exports call it; empty: the platform reported nothing for any cell.
        words: The figure in words.
        source: The account that it is from.
        each: What one of its values covers: an ``interval`` or a ``vCPU``.
        unit: The SI unit of the value.
        resolution_s: The time that a value is a mean over, in seconds: the median over the cells.
        value: The median, over the cells that have it, of the mean in each; None if none has it.
        having: The number of those cells.
    """

    scenario: str
    arm: str
    emulated: bool
    cells: int
    name: str = ""
    words: str = ""
    source: str = ""
    each: str = ""
    unit: str = ""
    resolution_s: float | None = None
    value: float | None = None
    having: int = 0


@dataclass(frozen=True)
class HypervisorCount:
    """One figure of one cell."""

    cell: CellResult
    figures: HypervisorFigures
    figure: HypervisorFigure


def counts_by_hypervisors(run: RunData) -> Iterator[HypervisorCount]:
    """Yield each figure of each cell that counts, in the order of the cells."""
    for cell in run.cells:
        if cell.status == "ok" and (found := hypervisor_figures(cell.facts)) is not None:
            for figure in found.figures:
                yield HypervisorCount(cell, found, figure)


def counted_by_hypervisors(runs: Sequence[RunData]) -> tuple[ReportedFigure, ...]:
    """Return the figures of hypervisors by scenario and arm; empty if there are none.

    If any arm has figures, every arm has a row: a missing report is not the same as zeros.
    """
    reported: dict[tuple[str, str], dict[tuple[str, ...], list[HypervisorCount]]] = {}
    for run in runs:
        for each in counts_by_hypervisors(run):
            figure, figures = each.figure, each.figures
            one = (figure.name, figure.words, figures.source, figures.each, figure.unit)
            place = reported.setdefault((each.cell.scenario, each.cell.arm), {})
            place.setdefault(one, []).append(each)
    if not reported:
        return ()
    arms = dict.fromkeys(arm for run in runs for arm in run.arms)
    emulated = frozenset[str]().union(*(run.emulated_arms for run in runs))
    counts: dict[tuple[str, str], int] = {}
    for cell in (cell for run in runs for cell in run.cells if cell.status == "ok"):
        counts[cell.scenario, cell.arm] = counts.get((cell.scenario, cell.arm), 0) + 1
    return tuple(
        row
        for scenario in dict.fromkeys(scenario for scenario, _ in counts)
        for arm in arms
        if (scenario, arm) in counts
        for row in _rows(
            ReportedFigure(scenario, arm, arm in emulated, counts[scenario, arm]),
            reported.get((scenario, arm), {}),
        )
    )


def _rows(
    of: ReportedFigure, reported: dict[tuple[str, ...], list[HypervisorCount]]
) -> Iterator[ReportedFigure]:
    if not reported:
        yield of
    for (name, words, source, each, unit), found in reported.items():
        yield ReportedFigure(
            of.scenario,
            of.arm,
            of.emulated,
            of.cells,
            name,
            words,
            source,
            each,
            unit,
            median(one.figures.resolution_s for one in found),
            median(one.figure.mean for one in found),
            len({(one.cell.run, one.cell.cell) for one in found}),
        )
