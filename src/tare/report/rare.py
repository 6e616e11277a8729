"""The parts of a report that few runs have: what makes one is loaded only where a run can have it.

What a run's cells told, and its study, say which those are. To load all of them took a tenth of a
small report's time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tare.analysis.model import Comparison, RunData

if TYPE_CHECKING:
    from tare.report.figures.frame import Figure
    from tare.report.hypervisors import Hypervisors
    from tare.report.interference import Interference
    from tare.report.leads import Leads
    from tare.report.load_balancer import LoadBalancer
    from tare.report.machine_losses import Fates
    from tare.report.mapreduce import MapReduce
    from tare.report.memory_bus import Bus
    from tare.report.monitoring import Monitoring
    from tare.report.palette import Look
    from tare.report.response_times import CourseParts
    from tare.report.spikes import Spikes
    from tare.report.tables import Table

TRACE, HARDWARE, PROXY, JOB = "host_trace", "hardware", "proxy", "job"
HYPERVISOR = "hypervisor"
"""Facts of cells that a part is made of."""
RESPONSES, COUNTERS = "responses", "counters"
"""Series that a part is made of."""


@dataclass(frozen=True)
class Rare:
    """Each part before its figures are drawn; None where the run has none."""

    spikes: Spikes | None = None
    hurt: Interference | None = None
    lost: Fates | None = None
    memory: Bus | None = None
    balancer: LoadBalancer | None = None
    responses: CourseParts | None = None
    jobs: MapReduce | None = None
    watched: Monitoring | None = None
    hypervisors: Hypervisors | None = None

    def figures(self) -> tuple[Figure, ...]:
        """Return the figures of all parts, in the order of the page."""
        return (
            *([self.spikes.figure] if self.spikes and self.spikes.figure else []),
            *([self.hurt.figure] if self.hurt else []),
            *([self.lost.figure] if self.lost and self.lost.figure else []),
            *(figure for figure, _ in (self.balancer.figures if self.balancer else ())),
            *(self.responses.figures if self.responses else ()),
            *(self.jobs.figures if self.jobs else ()),
            *(self.watched.figures if self.watched else ()),
        )

    def tables(self) -> tuple[Table[Any], ...]:
        """Return the tables of all parts, in the order in which their files are listed."""
        return (
            *(self.spikes.tables if self.spikes else ()),
            *(self.watched.tables if self.watched else ()),
            *([self.hypervisors.table] if self.hypervisors else ()),
            *([self.hurt.table] if self.hurt else ()),
            *([self.lost.table] if self.lost else ()),
            *(self.memory.tables if self.memory else ()),
            *([self.responses.table] if self.responses else ()),
            *(self.balancer.tables if self.balancer else ()),
            *([self.jobs.table] if self.jobs else ()),
        )


def rare_parts(
    runs: Sequence[RunData], comparison: Comparison, looks: Mapping[str, Look], leads: Leads
) -> Rare:
    """Return the parts that the runs have.

    Args:
        runs: The runs.
        comparison: Their comparison.
        looks: How arms are drawn.
        leads: What marks lead to.
    """
    facts = {name for run in runs for cell in run.cells for name in cell.facts}
    series = {entry.name for run in runs for entry in run.series}
    neighbours = any(map(_has_neighbours, runs))
    return Rare(
        spikes=_spikes(runs, comparison, leads) if TRACE in facts else None,
        hurt=_hurt(runs, comparison, leads) if neighbours else None,
        lost=_lost(runs, comparison, leads) if neighbours else None,
        memory=_memory(runs, comparison) if neighbours or HARDWARE in facts else None,
        balancer=_balancer(runs, comparison, looks, leads) if PROXY in facts else None,
        responses=_responses(runs, comparison, leads) if RESPONSES in series else None,
        jobs=_jobs(runs, comparison, leads) if JOB in facts else None,
        watched=_watched(runs, leads) if COUNTERS in series else None,
        hypervisors=_hypervisors(runs) if HYPERVISOR in facts else None,
    )


def _has_neighbours(run: RunData) -> bool:
    scenarios: Mapping[str, Any] = run.study.get("scenarios") or {}
    return any(each.get("neighbours") for each in scenarios.values())


def _spikes(runs: Sequence[RunData], comparison: Comparison, leads: Leads) -> Spikes | None:
    from tare.analysis.recording_cost import recording_costs
    from tare.report.spikes import spikes_of

    return spikes_of(runs, recording_costs(runs, comparison), leads)


def _hurt(runs: Sequence[RunData], comparison: Comparison, leads: Leads) -> Interference | None:
    from tare.report.interference import interference_of

    return interference_of(runs, comparison, leads)


def _lost(runs: Sequence[RunData], comparison: Comparison, leads: Leads) -> Fates | None:
    from tare.report.machine_losses import fates_of

    return fates_of(runs, comparison, leads)


def _memory(runs: Sequence[RunData], comparison: Comparison) -> Bus | None:
    from tare.report.memory_bus import bus_of

    return bus_of(runs, comparison)


def _balancer(
    runs: Sequence[RunData], comparison: Comparison, looks: Mapping[str, Look], leads: Leads
) -> LoadBalancer | None:
    from tare.report.load_balancer import load_balancer_of

    return load_balancer_of(runs, comparison, looks, leads)


def _responses(runs: Sequence[RunData], comparison: Comparison, leads: Leads) -> CourseParts | None:
    from tare.report.response_times import courses_of

    return courses_of(runs, comparison, leads)


def _jobs(runs: Sequence[RunData], comparison: Comparison, leads: Leads) -> MapReduce | None:
    from tare.report.mapreduce import mapreduce_of

    return mapreduce_of(runs, comparison, leads)


def _watched(runs: Sequence[RunData], leads: Leads) -> Monitoring | None:
    from tare.report.monitoring import monitoring_of

    return monitoring_of(runs, leads)


def _hypervisors(runs: Sequence[RunData]) -> Hypervisors | None:
    from tare.report.hypervisors import hypervisors_of

    return hypervisors_of(runs)
