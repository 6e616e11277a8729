"""The data of a report: runs, their comparison, and results that several sections share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.analysis.model import Comparison, Effect, RunData
from tare.report.figures.palette import ArmStyle, looks
from tare.report.page.links import Links
from tare.report.page.tables import Table
from tare.report.page.words import Names, Part, slug
from tare.report.sections.results import effects_table

if TYPE_CHECKING:
    from tare.analysis.topics.load_balancer import Throughput
    from tare.analysis.topics.monitoring import Monitor
    from tare.analysis.topics.response_times import PhaseEffect, Timeline
    from tare.references.published import Reference
    from tare.report.sections.long_series import Pooled

HOST_TRACE, HARDWARE, PROXY, JOB = "host_trace", "hardware", "proxy", "job"
HYPERVISOR, PROBES = "hypervisor", "probes"
"""Facts of cells that sections show."""
RESPONSES, COUNTERS = "responses", "counters"
"""Series that sections show."""


@dataclass(frozen=True)
class ReportData:
    """Runs and their comparison; shared results are computed once, on first use.

    Args:
        runs: The runs, as the comparison combined them.
        comparison: Their comparison.
        out: The folder of the report.
        references: Published values to show next to the runs' own.
    """

    runs: Sequence[RunData]
    comparison: Comparison
    out: Path = Path()
    references: Sequence[Reference] = ()

    @cached_property
    def recorded(self) -> frozenset[str]:
        """The names of all facts and series that the runs' cells have."""
        facts = {name for run in self.runs for cell in run.cells for name in cell.facts}
        return frozenset(facts | {entry.name for run in self.runs for entry in run.series})

    @cached_property
    def has_neighbours(self) -> bool:
        """Whether any scenario has neighbours."""
        return any(map(_has_neighbours, self.runs))

    @cached_property
    def looks(self) -> dict[str, ArmStyle]:
        """The style in which figures draw each arm."""
        arms = dict.fromkeys([*self.comparison.arms, *(a for run in self.runs for a in run.arms)])
        return looks(list(arms), self.comparison.baseline)

    @cached_property
    def links(self) -> Links:
        """The targets of links from marks in figures."""
        return Links(self.comparison)

    @cached_property
    def emulated(self) -> frozenset[str]:
        """The arms that any of the runs found to be emulated."""
        return frozenset().union(*(run.emulated_arms for run in self.comparison.runs))

    @cached_property
    def effects(self) -> Table[Effect]:
        """All effects against the baseline."""
        return effects_table(self.comparison, "effects", self.comparison.effects)

    @cached_property
    def stems(self) -> Mapping[Part, str]:
        """The id of each workload's part of the page, with which its figures' names begin."""
        names = Names(parts := dict.fromkeys(Part.of(s.key) for s in self.comparison.summaries))
        found: dict[Part, str] = {}
        for part in parts:
            stem = name = slug(names.name(part))
            number = 2
            while name in found.values():
                name, number = f"{stem}-{number}", number + 1
            found[part] = name
        return found

    # The analyses below take long to load, and are often not needed: a terminal table uses none.

    @cached_property
    def series(self) -> Pooled:
        """Summaries of all long series, by part and arm."""
        from tare.report.sections.long_series import pooled_series

        return pooled_series(self.comparison)

    @cached_property
    def monitors(self) -> tuple[Monitor, ...]:
        """The cells whose counters were sampled."""
        if COUNTERS not in self.recorded:
            return ()
        from tare.analysis.topics.monitoring import monitors

        return tuple(monitors(self.runs))

    @cached_property
    def timelines(self) -> tuple[Timeline, ...]:
        """The response times over time of all cells that recorded them."""
        if RESPONSES not in self.recorded:
            return ()
        from tare.analysis.topics.response_times import timelines

        return tuple(timelines(self.runs))

    @cached_property
    def phases(self) -> tuple[PhaseEffect, ...]:
        """The effects of the neighbours' phases on response times, in the order of the arms."""
        if not self.timelines:
            return ()
        from tare.analysis.topics.response_times import phase_effects

        arms = {arm: place for place, arm in enumerate(self.comparison.arms)}
        return tuple(
            sorted(
                phase_effects(self.timelines, self.comparison.confidence),
                key=lambda e: (e.scenario, e.workload, e.parameters, arms.get(e.arm, len(arms))),
            )
        )

    @cached_property
    def proxied(self) -> tuple[Throughput, ...]:
        """The throughput of each arm through a load balancer, by size."""
        if PROXY not in self.recorded:
            return ()
        from tare.analysis.topics.load_balancer import throughputs

        found = self.comparison
        return tuple(throughputs(self.runs, found.arms, found.baseline, found.confidence))


def _has_neighbours(run: RunData) -> bool:
    scenarios: Mapping[str, Any] = run.study.get("scenarios") or {}
    return any(each.get("neighbours") for each in scenarios.values())
