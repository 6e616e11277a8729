"""What was measured in one cell, and what its record keeps of that beside the values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tare.events.cell_facts import CellFacts
from tare.run.cluster.jobs import job_facts
from tare.run.cost import MEMORY
from tare.run.disk_facts import disk_facts
from tare.run.host_bus import HostBus
from tare.run.host_counters import Counted
from tare.run.host_record import HostRecord
from tare.run.hypervisor_side import HypervisorSide
from tare.run.neighbours import LoadReport

if TYPE_CHECKING:
    from tare.agent.client import Outcome
    from tare.agent.clocktrust import ClockTrust


@dataclass(frozen=True)
class Measured:
    """All that a cell told, before it is known whether that may be believed."""

    outcome: Outcome
    trust: ClockTrust
    took_s: float
    loads: tuple[LoadReport, ...]
    skew_s: float | None
    cost: Mapping[str, float]
    host: HostRecord
    counters: Counted
    host_cache: Mapping[str, Any]
    disk_moved: Mapping[str, float]
    stood: str
    hypervisor: HypervisorSide
    bus: HostBus
    told: Mapping[str, Any] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """Return what the cell's record holds besides the values."""
        facts: CellFacts = {
            "clock_drift_ppm": self.trust.drift_ppm,
            "clock_uncertainty_ppm": self.trust.uncertainty_ppm,
            "host_cost": self._host_cost(),
            "start_skew_s": self.skew_s,
            "neighbours": [report.facts() for report in self.loads],
            "phases": self.outcome.value.get("phases")
            or next((report.phases for report in self.loads if report.phases), ()),
            "host_trace": self.host.facts,
            **self.counters.facts,
            **self.hypervisor.facts,
            **self.bus.facts,
        }
        if self.host_cache:
            facts["host_cache"] = dict(self.host_cache)
        if self.disk_moved:
            facts["disk_moved_bytes"] = dict(self.disk_moved)
        # The workload's own facts may be any.
        told = {name: told for name, told in self.told.items() if name != "host_cost"}
        value = self.outcome.value
        return {**facts, **disk_facts(value), **told, **job_facts(value)}

    def _host_cost(self) -> dict[str, float]:
        """Return what the machine cost; workloads of many stages say themselves of which."""
        own = self.told.get("host_cost")
        if own is None:
            return dict(self.cost)
        return {name: self.cost[name] for name in self.cost if name == MEMORY} | dict(own)
