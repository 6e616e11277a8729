"""Let neighbours load the host while a subject measures, and prove that they did."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tare.errors import MachineFault, TareError, WorkloadFault
from tare.workloads import MachineFacts, Workload, fitted

if TYPE_CHECKING:
    from tare.agent.barrier import Barrier
    from tare.agent.client import LoadHandle
    from tare.platforms.base import Machine

LEAST_WANTED_SHARE = 0.9
"""A load that neither ran nor waited for a CPU for a tenth of the time was no load."""


@dataclass(frozen=True)
class Neighbour:
    """A machine that loads the host while the subject measures."""

    role: str
    machine: Machine
    load: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class LoadReport:
    """What a neighbour did while the subject measured.

    Args:
        role: The neighbour's role, such as ``neighbour-1``.
        load: The workload it carried.
        values: The load's own metrics, in their units.
        ran_share: CPU time its vCPUs had on the host, as a share of the time; None if unknown.
        wanted_share: The same with the time that they were ready but another ran; None if unknown.
    """

    role: str
    load: str
    values: Mapping[str, float]
    ran_share: float | None
    wanted_share: float | None

    def require_load(self) -> None:
        """Raise :class:`WorkloadFault` if the host says that there was no load."""
        if self.wanted_share is not None and self.wanted_share < LEAST_WANTED_SHARE:
            raise WorkloadFault(
                f"{self.role} stalled: it ran or waited for a CPU in only "
                f"{self.wanted_share:.0%} of the time, so the subject was not under its load"
            )


@dataclass
class Loads:
    """The loads of one cell's neighbours."""

    neighbours: tuple[Neighbour, ...]
    workloads: Mapping[str, Workload]
    facts: MachineFacts
    _under_way: dict[str, LoadHandle] = field(default_factory=dict)
    _before: dict[str, Mapping[str, float]] = field(default_factory=dict)
    _began: float = 0.0

    async def begin(self, barrier: Barrier) -> None:
        """Start all loads together with the subject, through ``barrier``."""
        self._before = {one.role: await one.machine.host_cost() for one in self.neighbours}
        self._began = time.monotonic()
        try:
            await asyncio.gather(*(self._begin_one(one, barrier) for one in self.neighbours))
            # The start itself takes a while where the host's side is recorded.
            self._began = time.monotonic()
        except TareError as error:
            barrier.abort(str(error))
            raise

    async def _begin_one(self, neighbour: Neighbour, barrier: Barrier) -> None:
        load = self.workloads[neighbour.load]
        parameters = load.parameters.model_validate(dict(neighbour.parameters))
        request = fitted(load, load.request(parameters), self.facts)
        self._under_way[neighbour.role] = await neighbour.machine.agent.start_load(
            neighbour.load, request, barrier=barrier
        )

    async def end(self) -> tuple[LoadReport, ...]:
        """Stop all loads that began, and tell what they did."""
        reports = []
        for neighbour in self.neighbours:
            if neighbour.role in self._under_way:
                reports.append(await self._end_one(neighbour))
        return tuple(reports)

    async def _end_one(self, neighbour: Neighbour) -> LoadReport:
        elapsed_s = time.monotonic() - self._began
        after = await neighbour.machine.host_cost()
        handle = self._under_way.pop(neighbour.role)
        if handle.ended:
            raise WorkloadFault(f"{neighbour.role} ended its {neighbour.load} before the subject")
        outcome = await handle.stop()
        load = self.workloads[neighbour.load]
        parameters = load.parameters.model_validate(dict(neighbour.parameters))
        before = self._before[neighbour.role]

        def share(*names: str) -> float | None:
            if not all(name in after and name in before for name in names):
                return None
            return sum(after[name] - before[name] for name in names) / elapsed_s

        return LoadReport(
            role=neighbour.role,
            load=neighbour.load,
            values=load.observe(parameters, outcome.value),
            ran_share=share("vcpu_cpu_s"),
            wanted_share=share("vcpu_cpu_s", "vcpu_run_delay_s"),
        )

    async def abandon(self) -> None:
        """Stop whatever is under way after the cell has failed; what it did is of no use."""
        for role, handle in list(self._under_way.items()):
            del self._under_way[role]
            try:
                await handle.stop()
            except (MachineFault, WorkloadFault):
                continue
