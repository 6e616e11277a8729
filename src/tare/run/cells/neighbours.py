"""Let neighbours load the host while a subject measures, and prove that they did."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tare.errors import MachineFault, TareError, WorkloadFault
from tare.events.cell_facts import NeighbourFacts, PhaseFacts
from tare.run.cells.alive import ANSWER_S, given_up
from tare.run.cells.plausibility import unmoved
from tare.workloads import MachineFacts, Metric, Parameters, Workload, fitted

if TYPE_CHECKING:
    from tare.agent.barrier import Barrier
    from tare.agent.load import LoadHandle
    from tare.platforms.contract import Machine
    from tare.run.topologies.peers import Peer

T = TypeVar("T")

LEAST_WANTED_SHARE = 0.9
"""A load that neither ran nor waited for a CPU for a tenth of the time was no load."""
LEAST_WATCHED_S = 0.25
"""Shorter cells say nothing of a load; it is watched beyond their end, for so long in all."""
SLACK_S = 0.1
"""What no account of a thread holds: the kernel brings it up to date at its ticks, which may be
10 ms apart, and leaves out what interrupts and a hypervisor below took meanwhile."""
PATIENCE_S = 2.0
LOOK_S = 0.02
RAN = ("vcpu_cpu_s", "threads_cpu_s")
WAITED = ("vcpu_run_delay_s", "threads_run_delay_s")
"""Where a machine's cost says how long it ran, and how long it was ready but another ran: of a
guest its vCPUs, of a process all its threads, of which only the load's are ever busy."""
_VCPU = re.compile(r"vcpu\d+_run_delay_s")


@dataclass(frozen=True)
class Neighbour:
    """A machine that loads the host while the subject measures.

    ``memory`` and ``vcpus`` are its own where they are not those of the subject.
    """

    role: str
    machine: Machine
    load: str
    parameters: Mapping[str, Any]
    memory: int | None = None
    vcpus: int | None = None

    def metrics(self, workloads: Mapping[str, Workload[Any]]) -> tuple[Metric, ...]:
        """Return what its load tells, with these parameters."""
        load = workloads[self.load]
        return load.recorded_metrics(load.parameters.model_validate(dict(self.parameters)))


@dataclass(frozen=True)
class LoadReport:
    """What a neighbour did while the subject measured.

    Args:
        role: The neighbour's role, such as ``neighbour-1``.
        load: The workload it carried.
        values: The load's own metrics, in their units.
        ran_share: CPU time that its vCPUs, or a process's threads, had on the host, as a share of
            the time: 2 where two were busy throughout; None if unknown.
        wanted_share: The same with the time that they were ready but another ran, by the host's
            account or else by the guest's (steal time); None if unknown.
        busy: How many of them the load should have kept busy.
        phases: ``name``, ``begin_s`` and ``end_s`` of what it did in turn, since its start.
        warnings: What it says itself that should be known.
        doubt: Why it was no load of that kind; empty if it was.
    """

    role: str
    load: str
    values: Mapping[str, float]
    ran_share: float | None
    wanted_share: float | None
    busy: int = 1
    phases: tuple[PhaseFacts, ...] = ()
    warnings: tuple[str, ...] = ()
    doubt: str = ""

    def facts(self) -> NeighbourFacts:
        """Return what the cell's record holds of it."""
        return cast("NeighbourFacts", asdict(self))


@dataclass
class Loads:
    """The loads of one cell's neighbours.

    Args:
        neighbours: The machines.
        workloads: All workloads by name.
        facts: What the host knows of the subject; what a neighbour says of itself goes first.
        peer: The partner of network loads.
    """

    neighbours: tuple[Neighbour, ...]
    workloads: Mapping[str, Workload[Any]]
    facts: MachineFacts
    peer: Peer | None = None
    _ended: asyncio.Event = field(default_factory=asyncio.Event)
    _partners: dict[str, LoadHandle] = field(default_factory=dict)
    _under_way: dict[str, LoadHandle] = field(default_factory=dict)
    _before: dict[str, Mapping[str, float]] = field(default_factory=dict)
    _moved: dict[str, Mapping[str, float]] = field(default_factory=dict)
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
        facts = replace(
            self.facts,
            memory=neighbour.memory or self.facts.memory,
            vcpus=neighbour.vcpus or self.facts.vcpus,
        )
        request = fitted(load, load.request(parameters), facts)
        if "network" in load.needs_for(parameters):
            request["at"] = await self._meet_partner(neighbour, load, parameters)
        if "disk" in load.needs_for(parameters):
            self._moved[neighbour.role] = await neighbour.machine.disk_moved()
        try:
            handle = await neighbour.machine.agent.start_load(
                load.agent_name, request, cpus=neighbour.machine.inner_cpus, barrier=barrier
            )
        except WorkloadFault as error:
            raise await self._with_partner(neighbour, error) from error
        self._under_way[neighbour.role] = handle
        handle.on_end(self._ended.set)

    async def _meet_partner(
        self, neighbour: Neighbour, load: Workload[Any], parameters: Parameters
    ) -> dict[str, Any]:
        """Let the peer look for a network load; return where that is to wait for it."""
        if self.peer is None:
            raise WorkloadFault(f"{neighbour.load} needs a peer, and this batch has none")
        number = [each.role for each in self.neighbours].index(neighbour.role)
        at, handle = await self.peer.echo(neighbour.machine, number, load.partners(parameters))
        self._partners[neighbour.role] = handle
        return at

    async def _with_partner(self, neighbour: Neighbour, error: WorkloadFault) -> WorkloadFault:
        """Return why a load failed: for what its partner says, where that failed too."""
        partner = self._partners.pop(neighbour.role, None)
        words = f"{neighbour.role} could not begin its {neighbour.load}: {error}"
        try:
            if partner is not None:
                await partner.stop()
        except WorkloadFault as other:
            words += f" (and the other end of its connections: {other})"
        except MachineFault:
            pass
        return WorkloadFault(words)

    async def while_all_run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what the subject's ``work`` returns, unless a load ends before it.

        Raises:
            WorkloadFault: A load ended, and why.
            MachineFault: A neighbour is lost.
        """
        task = asyncio.ensure_future(work)
        ended = asyncio.ensure_future(self._ended.wait())
        either: set[asyncio.Future[Any]] = {task, ended}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
        finally:
            for each in either:
                each.cancel()
            await asyncio.gather(*either, return_exceptions=True)
        for neighbour in self.neighbours:
            handle = self._under_way.get(neighbour.role)
            if handle is not None and handle.ended:
                del self._under_way[neighbour.role]
                raise await _why_ended(neighbour, handle)
        raise WorkloadFault("a neighbour's load ended before the subject's work did")

    async def end(self) -> tuple[LoadReport, ...]:
        """Stop all loads that began, and tell what they did."""
        reports = []
        for neighbour in self.neighbours:
            if neighbour.role in self._under_way:
                reports.append(await self._end_one(neighbour))
        return tuple(reports)

    async def _end_one(self, neighbour: Neighbour) -> LoadReport:
        handle = self._under_way.pop(neighbour.role)
        if handle.ended:
            raise await _why_ended(neighbour, handle)
        load = self.workloads[neighbour.load]
        parameters = load.parameters.model_validate(dict(neighbour.parameters))
        threads = load.threads_for(parameters) or len(neighbour.machine.inner_cpus)
        # Before it is asked for its result: what stands still does not answer.
        share: dict[str, Any] = {"ran_share": None, "wanted_share": None}
        if load.keeps_busy:
            share = await self._proven(neighbour, max(1, threads))
        outcome = await handle.stop()
        after: Mapping[str, float] = {}
        if (before := self._moved.pop(neighbour.role, None)) is not None:
            after = await neighbour.machine.disk_moved()
            after = {what: count - before.get(what, 0.0) for what, count in after.items()}
        if share["wanted_share"] is None:
            share["wanted_share"] = wanted_as_guests_see(share["ran_share"], outcome.timing)
        try:
            values = load.observe(parameters, outcome.value)
            claim = load.disk_claim(parameters, outcome.value)
            lasted_s = max(time.monotonic() - self._began, 1e-3)
            doubt = unmoved(claim, outcome.value, after, lasted_s)
            doubt = f"{neighbour.role}: {doubt}" if doubt else ""
        except (KeyError, ValueError, TypeError) as error:
            words = error.args[0] if isinstance(error, ValueError) else repr(error)
            raise WorkloadFault(
                f"the {neighbour.load} of {neighbour.role} did not do what it should: {words}"
            ) from error
        return LoadReport(
            role=neighbour.role,
            load=neighbour.load,
            values=values,
            phases=tuple(
                PhaseFacts(name=phase["name"], begin_s=phase["begin_s"], end_s=phase["end_s"])
                for phase in outcome.value.get("phases") or ()
            ),
            warnings=tuple(str(text) for text in outcome.value.get("warnings") or ()),
            doubt=doubt,
            **share,
        )

    async def _proven(self, neighbour: Neighbour, threads: int) -> dict[str, Any]:
        """Return how a load shared the CPUs, once the host's figures prove that it wanted them.

        The kernel counts a wait only when it is over, so a neighbour that is still kept from its
        CPU shows too little at first. What it truly stood still never becomes less by waiting.

        Args:
            neighbour: Whose load.
            threads: How many threads the load has.

        Raises:
            MachineFault: It stood still; its machine is of no use to the cells that follow either.
        """
        before, looked = self._before[neighbour.role], time.monotonic()
        cell_s = max(looked - self._began, LEAST_WATCHED_S)
        found: dict[str, Any] = {}
        while True:
            now = time.monotonic()
            after = await neighbour.machine.host_cost()
            ran, waited = _passed(before, after, RAN), _passed(before, after, WAITED)
            if ran is None or waited is None:
                ran_share = None if ran is None else ran / max(now - self._began, 1e-3)
                return {"ran_share": ran_share, "wanted_share": None, "busy": threads}
            busy, elapsed_s = _busy(threads, after), max(now - self._began, 1e-3)
            found.setdefault("ran_share", ran / elapsed_s)
            wanted_share = (ran + waited) / elapsed_s
            stood_s = elapsed_s - (ran + waited) / busy
            allowed_s = (1 - LEAST_WANTED_SHARE) * cell_s + SLACK_S
            if elapsed_s >= LEAST_WATCHED_S and stood_s <= allowed_s:
                return {**found, "wanted_share": wanted_share, "busy": busy}
            if now - looked > PATIENCE_S:
                raise MachineFault(
                    f"{neighbour.role} stalled: it neither ran nor waited for a CPU for "
                    f"{stood_s:.2f} s in or after a cell of {cell_s:.2f} s, so the subject was not "
                    "under its load"
                )
            await asyncio.sleep(LOOK_S)

    async def abandon(self, limit_s: float = ANSWER_S) -> None:
        """Stop whatever is under way after the cell has failed; what it did is of no use.

        Args:
            limit_s: Seconds that all of it together may take to answer.
        """
        for handles in (self._under_way, self._partners):
            stopping = [handle.stop(limit_s) for handle in handles.values()]
            handles.clear()
            await given_up(stopping)


async def _why_ended(neighbour: Neighbour, handle: LoadHandle) -> WorkloadFault | MachineFault:
    """Return why a load that should have gone on has ended."""
    words = f"the {neighbour.load} of {neighbour.role} ended before the subject's work did"
    try:
        await handle.stop()
    except WorkloadFault as error:
        return WorkloadFault(f"{words}: {error}")
    except MachineFault as fault:
        return fault
    return WorkloadFault(words)


def wanted_as_guests_see(ran_share: float | None, timing: Mapping[str, int]) -> float | None:
    """Return how much a load wanted to run where the host does not tell how long it waited.

    Args:
        ran_share: CPU time that it had on the host, as a share of the time; None if unknown.
        timing: The load's own account, with the time stolen from it as its kernel was told.
    """
    names = ("started_ns", "ended_ns", "stolen_ns")
    if ran_share is None or any(name not in timing for name in names):
        return None
    lasted_ns = timing["ended_ns"] - timing["started_ns"]
    # A hypervisor that runs it for less than all of the time and tells of no steal tells nothing.
    if lasted_ns <= 0 or timing["stolen_ns"] <= 0:
        return None
    return ran_share + timing["stolen_ns"] / lasted_ns


def _passed(
    before: Mapping[str, float], after: Mapping[str, float], names: Sequence[str]
) -> float | None:
    """Return by how much the first of these costs that is known on both sides grew."""
    for name in names:
        if name in before and name in after:
            return after[name] - before[name]
    return None


def _busy(threads: int, cost: Mapping[str, float]) -> int:
    """Return how many of a machine's vCPUs or threads its load should keep busy."""
    vcpus = sum(bool(_VCPU.fullmatch(name)) for name in cost)
    return min(threads, vcpus) if vcpus else threads
