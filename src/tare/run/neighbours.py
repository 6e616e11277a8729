"""Let neighbours load the host while a subject measures, and prove that they did."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
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
RAN = ("vcpu_cpu_s", "threads_cpu_s")
WAITED = ("vcpu_run_delay_s", "threads_run_delay_s")
"""Where a machine's cost says how long it ran, and how long it was ready but another ran: of a
guest its vCPUs, of a process all its threads, of which only the load's are ever busy."""
_VCPU = re.compile(r"vcpu\d+_run_delay_s")


def inner_cpus(machine: Machine) -> tuple[int, ...]:
    """Return which of its own CPUs a machine shared by several roles keeps for this one."""
    cpus: tuple[int, ...] = getattr(machine, "inner_cpus", ())
    return cpus


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
        ran_share: CPU time that its vCPUs, or a process's threads, had on the host, as a share of
            the time: 2 where two were busy throughout; None if unknown.
        wanted_share: The same with the time that they were ready but another ran; None if unknown.
        busy: How many of them the load should have kept busy.
    """

    role: str
    load: str
    values: Mapping[str, float]
    ran_share: float | None
    wanted_share: float | None
    busy: int = 1

    def require_load(self) -> None:
        """Raise :class:`MachineFault` if the host says that there was no load, or not all of it.

        A machine that stalled is of no use to the cells that follow either.
        """
        if self.wanted_share is not None:
            require_wanted(self.role, self.wanted_share / self.busy)


def require_wanted(role: str, wanted_share: float) -> None:
    """Raise :class:`MachineFault` if a neighbour wanted a CPU for too little of the time."""
    if wanted_share < LEAST_WANTED_SHARE:
        raise MachineFault(
            f"{role} stalled: it ran or waited for a CPU in only {max(wanted_share, 0.0):.0%} of "
            "the time, so the subject was not under its load"
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
            neighbour.load, request, cpus=inner_cpus(neighbour.machine), barrier=barrier
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
        before = self._before[neighbour.role]
        ran, waited = _passed(before, after, RAN), _passed(before, after, WAITED)
        wanted = None if ran is None or waited is None else (ran + waited) / elapsed_s
        if wanted is not None:
            # Before it is asked for its result: what stands still does not answer.
            require_wanted(neighbour.role, wanted)
        outcome = await handle.stop()
        load = self.workloads[neighbour.load]
        parameters = load.parameters.model_validate(dict(neighbour.parameters))
        return LoadReport(
            role=neighbour.role,
            load=neighbour.load,
            values=load.observe(parameters, outcome.value),
            ran_share=None if ran is None else ran / elapsed_s,
            wanted_share=wanted,
            busy=_busy(outcome.value, after),
        )

    async def abandon(self) -> None:
        """Stop whatever is under way after the cell has failed; what it did is of no use."""
        for role, handle in list(self._under_way.items()):
            del self._under_way[role]
            try:
                await handle.stop()
            except (MachineFault, WorkloadFault):
                continue


def _passed(
    before: Mapping[str, float], after: Mapping[str, float], names: Sequence[str]
) -> float | None:
    """Return by how much the first of these costs that is known on both sides grew."""
    for name in names:
        if name in before and name in after:
            return after[name] - before[name]
    return None


def _busy(result: Mapping[str, Any], cost: Mapping[str, float]) -> int:
    """Return how many of a machine's vCPUs or threads its load should have kept busy."""
    threads = result.get("threads")
    wanted = threads if isinstance(threads, int) and threads > 0 else 1
    vcpus = sum(bool(_VCPU.fullmatch(name)) for name in cost)
    return min(wanted, vcpus) if vcpus else wanted
