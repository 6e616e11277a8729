"""What was measured in one cell, and what its record keeps of that beside the values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tare.run.cluster.jobs import job_facts
from tare.run.cost import HOST_COST, MEMORY
from tare.run.disk_use import disk_facts
from tare.run.neighbours import LoadReport
from tare.run.probing import ProbeStack

if TYPE_CHECKING:
    from tare.agent.client import Outcome

PHASES = "phases"
"""The fact that lists what neighbours, or a job's tasks, did in turn, for the report's courses."""


@dataclass(frozen=True)
class Measured:
    """All that a cell found, before it is known whether that is plausible.

    Args:
        outcome: The result of the subject's work.
        took_s: For how long the work was under way.
        loads: What the neighbours did.
        skew_s: How far the machines' starts were apart; None: there was one machine.
        probes: What observed the cell; closed.
        stated: The facts that the workload itself takes from the result.
    """

    outcome: Outcome
    took_s: float
    loads: tuple[LoadReport, ...]
    skew_s: float | None
    probes: ProbeStack
    stated: Mapping[str, Any] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """Return what the cell's record keeps beside the values."""
        observed = self.probes.facts
        return {
            **observed,
            HOST_COST: self._host_cost(observed[HOST_COST]),
            "start_skew_s": self.skew_s,
            "neighbours": [report.facts() for report in self.loads],
            "phases": self.outcome.value.get("phases")
            or next((report.phases for report in self.loads if report.phases), ()),
            **disk_facts(self.outcome.value),
            **{name: fact for name, fact in self.stated.items() if name != HOST_COST},
            **job_facts(self.outcome.value),
        }

    def _host_cost(self, observed: Mapping[str, float]) -> dict[str, float]:
        """Return what the machine cost; workloads of many stages say themselves of which."""
        own = self.stated.get(HOST_COST)
        if own is None:
            return dict(observed)
        return {name: observed[name] for name in observed if name == MEMORY} | dict(own)
