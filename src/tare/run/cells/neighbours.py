"""Loads of neighbours while a subject measures, and the proof that they ran."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tare.errors import MachineFault, TareError, WorkloadFault
from tare.events.cell_facts import NeighbourFacts, PhaseFacts
from tare.run.cells.liveness import ANSWER_S, given_up
from tare.run.cells.plausibility import unmoved
from tare.workloads import MachineFacts, Metric, Parameters, Workload, fitted

if TYPE_CHECKING:
    from tare.agent.barrier import Barrier
    from tare.agent.client import LoadHandle
    from tare.platforms.contract import Machine
    from tare.run.topologies.peers import Peer

T = TypeVar("T")

LEAST_WANTED_SHARE = 0.9
"""The least share of a cell's time in which a load must have run or waited for a CPU, to count."""
LEAST_WATCHED_S = 0.25
"""The least time, in seconds, over which a load is judged. In a shorter cell, watching continues
after the cell's end."""
SLACK_S = 0.1
"""Seconds that may be missing in a thread's accounting: the kernel updates it at ticks of at most
10 ms, and excludes the time of interrupts and of a hypervisor below."""
PATIENCE_S = 2.0
LOOK_S = 0.02
RAN = ("vcpu_cpu_s", "threads_cpu_s")
WAITED = ("vcpu_run_delay_s", "threads_run_delay_s")
"""Fields of a machine's cost: how long it ran, and how long it was ready while another ran. For a
guest they count its vCPUs, for a process all its threads; only the load's are busy."""
_VCPU = re.compile(r"vcpu\d+_run_delay_s")


@dataclass(frozen=True)
class Neighbour:
    """A machine that loads the host while the subject measures.

    ``memory`` and ``vcpus`` are set if they differ from those of the subject.
    """

    role: str
    machine: Machine
    load: str
    parameters: Mapping[str, Any]
    memory: int | None = None
    vcpus: int | None = None

    def metrics(self, workloads: Mapping[str, Workload[Any]]) -> tuple[Metric, ...]:
        """Return the metrics of its load with these parameters."""
        load = workloads[self.load]
        return load.recorded_metrics(load.parameters.model_validate(dict(self.parameters)))


@dataclass(frozen=True)
class LoadReport:
    """The activity of a neighbour while the subject measured.

    The fields are those of :class:`tare.events.cell_facts.NeighbourFacts`.
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
        """Return the report as facts for the cell's record."""
        return cast("NeighbourFacts", asdict(self))


@dataclass
class Loads:
    """The loads of one cell's neighbours.

    Args:
        neighbours: The machines.
        workloads: All workloads by name.
        facts: The host's facts of the subject; a neighbour's own memory and vCPUs override them.
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
            # The start itself takes a while if the host is traced.
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
        """Make the peer connect to a network load; return the address for the load."""
        if self.peer is None:
            raise WorkloadFault(f"{neighbour.load} needs a peer, and this batch has none")
        number = [each.role for each in self.neighbours].index(neighbour.role)
        at, handle = await self.peer.echo(neighbour.machine, number, load.partners(parameters))
        self._partners[neighbour.role] = handle
        return at

    async def _with_partner(self, neighbour: Neighbour, error: WorkloadFault) -> WorkloadFault:
        """Return why a load failed, with its partner's reason if that failed too."""
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

    async def run_with_loads(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of the subject's ``work``, unless a load ends before it.

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
        """Stop all loads that began, and return their reports."""
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
        # This precedes the request for the result, because a stalled machine does not answer.
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
            doubt = str(unmoved(claim, outcome.value, after, lasted_s))
            doubt = f"{neighbour.role}: {doubt}" if doubt else ""
        except (KeyError, ValueError, TypeError) as error:
            words = error.args[0] if isinstance(error, ValueError) else repr(error)
            raise WorkloadFault(
                f"the result of {neighbour.load} on {neighbour.role} is wrong: {words}"
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
        """Return a load's shares of the CPUs, once the host's figures prove that it ran or waited.

        The kernel counts a wait only when it is over, so a neighbour that still waits for its CPU
        shows too little at first. A real standstill does not shrink by waiting.

        Args:
            neighbour: The neighbour with the load.
            threads: The number of the load's threads.

        Raises:
            MachineFault: It stalled; its machine cannot be used for further cells either.
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
            stopped_s = elapsed_s - (ran + waited) / busy
            allowed_s = (1 - LEAST_WANTED_SHARE) * cell_s + SLACK_S
            if elapsed_s >= LEAST_WATCHED_S and stopped_s <= allowed_s:
                return {**found, "wanted_share": wanted_share, "busy": busy}
            if now - looked > PATIENCE_S:
                raise MachineFault(
                    f"{neighbour.role} stalled: it neither ran nor waited for a CPU for "
                    f"{stopped_s:.2f} s in or after a cell of {cell_s:.2f} s, so the subject "
                    "was not under its load"
                )
            await asyncio.sleep(LOOK_S)

    async def abandon(self, limit_s: float = ANSWER_S) -> None:
        """Stop all loads after the cell has failed, and discard their results.

        Args:
            limit_s: Seconds that all together may take to answer.
        """
        for handles in (self._under_way, self._partners):
            stopping = [handle.stop(limit_s) for handle in handles.values()]
            handles.clear()
            await given_up(stopping)


async def _why_ended(neighbour: Neighbour, handle: LoadHandle) -> WorkloadFault | MachineFault:
    """Return why a load ended too early."""
    words = f"the {neighbour.load} of {neighbour.role} ended before the subject's work did"
    try:
        await handle.stop()
    except WorkloadFault as error:
        return WorkloadFault(f"{words}: {error}")
    except MachineFault as fault:
        return fault
    return WorkloadFault(words)


def wanted_as_guests_see(ran_share: float | None, timing: Mapping[str, int]) -> float | None:
    """Return the wanted share of a load from its guest's steal time, if the host counts no waits.

    Args:
        ran_share: CPU time that it had on the host, as a share of the time; None if unknown.
        timing: The load's own times, with the steal time that its kernel reports.
    """
    names = ("started_ns", "ended_ns", "stolen_ns")
    if ran_share is None or any(name not in timing for name in names):
        return None
    lasted_ns = timing["ended_ns"] - timing["started_ns"]
    # Without any reported steal, the hypervisor does not count it.
    if lasted_ns <= 0 or timing["stolen_ns"] <= 0:
        return None
    return ran_share + timing["stolen_ns"] / lasted_ns


def _passed(
    before: Mapping[str, float], after: Mapping[str, float], names: Sequence[str]
) -> float | None:
    """Return the increase of the first of these costs that is known before and after."""
    for name in names:
        if name in before and name in after:
            return after[name] - before[name]
    return None


def _busy(threads: int, cost: Mapping[str, float]) -> int:
    """Return the number of a machine's vCPUs or threads that its load should keep busy."""
    vcpus = sum(bool(_VCPU.fullmatch(name)) for name in cost)
    return min(threads, vcpus) if vcpus else threads
