"""One cell: measure in running machines, and record the results as events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, cast

from tare.agent.barrier import Barrier
from tare.errors import MachineFault, TareError, WorkloadFault
from tare.events import CellFinished
from tare.events.cell_facts import CellFacts
from tare.platforms.contract import SUBJECT
from tare.run.cells.cell_events import log_started, log_without_values, observed, texts, warnings
from tare.run.cells.duet import Undivided
from tare.run.cells.liveness import ANSWER_S, REMOVED_S, run_while_alive
from tare.run.cells.neighbours import LoadReport, Loads
from tare.run.cells.outputs import logs_and_files, save_output
from tare.run.cells.plausibility import (
    CellClocks,
    impossible_values,
    unmoved,
    without_unmoved,
)
from tare.run.cells.series import save_series
from tare.run.probes.cost import MEMORY, CellCost
from tare.run.probes.disk_use import DiskUse, disk_facts
from tare.run.probes.host_counters import LEAST_COUNTED_S, Counters, HostSampler
from tare.run.probes.host_trace import trace_of_cell
from tare.run.probes.hypervisor_side import HypervisorSide
from tare.run.probes.stack import ProbeStack, probing
from tare.run.probes.standstill import Standstills
from tare.run.topologies.cluster.jobs import job_facts
from tare.run.topologies.kinds import CellWork
from tare.run.ui.progress_estimate import Watch
from tare.workloads import MachineFacts

if TYPE_CHECKING:
    from tare.agent.client import Outcome
    from tare.events import Event
    from tare.probes import Probe
    from tare.run.cells.cell_context import CellContext
    from tare.run.cells.duet import InStep
    from tare.run.cells.roles import Roles
    from tare.run.topologies.kinds import Topology
    from tare.study.planning.cells import Cell
    from tare.workloads.contract import Metric, Parameters, Workload

UNREADABLE = (
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)
"""Errors of reading a malformed result: they fail the cell, but do not end the run."""
LEAST_S = 30.0
HANDS_OFF_LEAST_S = 150.0
"""The constant part of the deadline, in seconds, if the machine's time counts instructions. It then
idles for minutes of its own clock before it starts, which takes as long as this computer needs to
emulate their few timers."""
FACTOR = 20.0
"""An emulated machine may be slower by this factor than the hardware of the estimate."""
HANDS_OFF_REPEAT_S = 300.0
"""Seconds until a request to an agent whose time counts instructions is repeated. It reports its
start together with its result, up to ten minutes of its own clock later."""


@dataclass(frozen=True)
class CellMeasurement:
    """All results of a cell, before they are checked for plausibility.

    Args:
        outcome: The result of the subject's work.
        took_s: Seconds from the start to the end of the work.
        loads: The reports on the neighbours' loads.
        skew_s: Seconds between the machines' starts; None: there was one machine.
        probes: The probes of the cell, closed.
        stated: The facts that the workload itself derives from the result.
    """

    outcome: Outcome
    took_s: float
    loads: tuple[LoadReport, ...]
    skew_s: float | None
    probes: ProbeStack
    stated: Mapping[str, Any] = field(default_factory=dict)

    def facts(self) -> CellFacts:
        """Return the facts for the cell's record: everything in addition to the values."""
        observed, result = self.probes.facts, self.outcome.value
        neighbours = [report.facts() for report in self.loads]
        found = CellFacts(
            host_cost=self._host_cost(observed["host_cost"]),
            start_skew_s=self.skew_s,
            neighbours=neighbours,
            phases=result.get("phases")
            or next((each["phases"] for each in neighbours if each["phases"]), ()),
        )
        # A workload may state facts that Tare does not know.
        stated = {name: fact for name, fact in self.stated.items() if name != "host_cost"}
        every = {**observed, **found, **disk_facts(result), **stated, **job_facts(result)}
        return cast(CellFacts, every)

    def _host_cost(self, observed: Mapping[str, float]) -> dict[str, float]:
        """Return the cost of the machines; workloads of many stages state it for one of them."""
        own = self.stated.get("host_cost")
        if own is None:
            return dict(observed)
        return {name: observed[name] for name in observed if name == MEMORY} | dict(own)


@dataclass
class Attempt:
    """One attempt at a cell.

    Args:
        context: The context that all cells of the run share.
        cell: The cell.
        roles: The machines; the agent of each is ready.
        facts: The host's facts of these machines.
        number: 1, or 2 for the retry of a transient failure.
        logs: Paths of the subject's logs, relative to the run's folder.
        host_trace: Whether the host is traced if the workload can use that.
        lost: Futures, each set if a whole host, or the network between hosts, is lost.
        watched: The samplers of the hosts' counters.
        unaltered: Raises MachineFault if the host has changed.
        in_step: Synchronises the cell with an arm that is measured at the same time.
        memory_probes: The probes of the host's caches and memory bus.
        added: The probes that other packages add.
        why: Returns the cause of a machine's fault.
    """

    context: CellContext
    cell: Cell
    roles: Roles
    facts: MachineFacts
    number: int = 1
    logs: tuple[str, ...] = ()
    host_trace: bool = False
    lost: tuple[asyncio.Future[MachineFault], ...] = ()
    watched: Sequence[HostSampler] = ()
    unaltered: Callable[[], Awaitable[None]] | None = None
    in_step: InStep | None = None
    memory_probes: Sequence[Probe] = ()
    added: Sequence[Probe] = ()
    why: Callable[[TareError], Awaitable[TareError]] | None = None

    @property
    def workload(self) -> Workload[Any]:
        """The workload that is measured."""
        return self.context.workloads[self.cell.kind]

    @cached_property
    def parameters(self) -> Parameters:
        """The workload's parameters, with which it ends by itself."""
        given = self.workload.parameters.model_validate(dict(self.cell.parameters))
        return self._topology.parameters(self.workload, self.workload.ending(given))

    @cached_property
    def _topology(self) -> Topology:
        """The topology that the workload names, with its machines."""
        return self.roles.topology(self.workload.topology)

    @cached_property
    def _disk(self) -> DiskUse | None:
        """The probe of the subject's own disk; None if the work does not use it."""
        uses_disk = "disk" in self.workload.needs_for(self.parameters)
        return DiskUse(self.roles.subject) if uses_disk and self._topology.uses_own_disk else None

    @cached_property
    def _standstills(self) -> Standstills:
        """The probe that detects stopped machines of the cell."""
        return Standstills(self.roles.machines, looks=not self.context.hands_off)

    @property
    def deadline_s(self) -> float:
        """Seconds after which the cell fails: set by the study, or far beyond the estimate."""
        expected_s, hands_off = self.cell.expected_s, self.context.hands_off
        own_s = self.cell.deadline_s or deadline_s(expected_s, hands_off=hands_off)
        waits = self._topology.takes_turns and self.in_step is not None and self.in_step.by_turns
        return 2 * own_s if waits else own_s

    def _turn(self) -> AbstractAsyncContextManager[None]:
        """Return the turn of the whole cell."""
        if self.in_step is None or self._topology.takes_turns:
            return Undivided().turn()
        return self.in_step.turn()

    async def execute(self) -> TareError | None:
        """Measure the cell and append its events.

        Returns:
            The fault if a machine was lost; then the cell has failed.
        """
        async with self._turn():
            return await self._execute()

    async def _execute(self) -> TareError | None:
        log_started(self.context, self.cell, self.number, self.roles)
        try:
            measured = await run_while_alive(
                tuple(self.roles.machines.values()), self._measure(), *self.lost
            )
            if self.unaltered is not None:
                await self.unaltered()
            result = measured.outcome.value
            if saved := save_output(self.context.folder, self.cell.id, self.workload, result):
                self.logs = (*self.logs, saved)
            values = self.workload.observe(self.parameters, result)
            measured = replace(measured, stated=self.workload.facts(self.parameters, result))
            claim = self.workload.disk_claim(self.parameters, result)
            moved_bytes = {} if self._disk is None else self._disk.moved
            doubted = unmoved(claim, result, moved_bytes, measured.took_s)
            recorded = self.workload.recorded_metrics(self.parameters)
            headlines = [metric.name for metric in recorded if metric.headline]
            kept, left_out = without_unmoved(claim, doubted, values, headlines)
            events = self._events(kept, measured, "" if left_out else str(doubted), left_out)
        except MachineFault as shown:
            fault = shown if self.why is None else await self.why(shown)
            transient = isinstance(fault, MachineFault) and fault.transient
            self._end("failed", str(fault), transient=transient)
            return fault
        except WorkloadFault as fault:
            if standstill := self._standstills.doubt:
                # The partner of a stopped machine waits in vain: the stop is the cause.
                self._end("withheld", f"{standstill}; {fault}")
            else:
                self._end("failed", str(fault))
            return None
        except UNREADABLE as error:
            reason = f"the agent's result of {self.cell.kind} cannot be read: {error!r}"
            self._end("failed", reason)
            return None
        for event in events:
            self.context.log.append(event)
        return None

    def _end(
        self, status: Literal["failed", "withheld"], reason: str, *, transient: bool = False
    ) -> None:
        log_without_values(self.context, self.cell, status, reason, self.logs, transient)

    def _probes(self) -> list[Probe]:
        """Return the probes of the cell in the order in which they begin.

        Probes of other packages begin first and end last. The trace and the clocks are read before
        anything loads the host; the counters record the common start, so they begin last.
        """
        context, roles, looks = self.context, self.roles, not self.context.hands_off
        traced = self.host_trace and self.workload.logs_gaps
        neighbours = {each.role: each.machine for each in roles.neighbours}
        clocks = CellClocks(context.clocks, roles.measuring)
        # A shorter cell would have no second sample to compare with the first.
        counted = not self.workload.realtime and self.cell.expected_s >= LEAST_COUNTED_S
        probes: list[Probe] = [
            *self.added,
            trace_of_cell(context.tracing if traced else None, roles.subject, neighbours),
            clocks,
            HypervisorSide(roles.subject, machines=roles.machines),
            self._standstills,
            *([] if self._disk is None else [self._disk]),
            *self.memory_probes,
            CellCost(self._topology.carriers, looks=counted and looks),
        ]
        if counted:
            counters = Counters(roles.subject, roles.companions, self.watched, clocks.reading)
            probes.append(counters)
        return probes

    async def _measure(self) -> CellMeasurement:
        context, subject, roles = self.context, self.roles.subject, self.roles
        loads = Loads(roles.neighbours, context.workloads, self.facts, roles.peer)
        looks = not context.hands_off
        if not looks:
            subject.agent.repeat_after(HANDS_OFF_REPEAT_S)
        async with probing(self._probes()) as probes:

            async def start() -> None:
                if self._disk is not None:
                    await self._disk.forget()
                if self.in_step is not None:
                    await self.in_step.begin()
                await probes.begin()

            barrier = Barrier(1 + len(roles.neighbours), start)
            beginning = asyncio.ensure_future(loads.begin(barrier))
            began = time.monotonic()
            progress = Watch(
                subject,
                lambda done, fields: context.on_progress(self.cell.id, done, fields),
                polls=looks,
            )
            try:
                work = self._topology.run(self._work(barrier, progress))
                outcome = await loads.run_with_loads(work)
                took_s = time.monotonic() - began
                if self.in_step is not None:
                    self.in_step.end()
                await probes.end(outcome)
                await beginning
                reports = await loads.end()
            except BaseException as error:
                await _abandon(beginning, loads, error)
                raise
            finally:
                await progress.end()
            await probes.close()
        started_ns = barrier.skew_ns if roles.neighbours else None
        skew_s = None if started_ns is None else started_ns * 1e-9
        return CellMeasurement(outcome, took_s, reports, skew_s, probes)

    def _work(self, barrier: Barrier, progress: Watch) -> CellWork:
        return CellWork(
            self.workload,
            self.parameters,
            self.facts,
            barrier,
            self.deadline_s,
            progress.take,
            self.in_step or Undivided(),
        )

    def _metrics(self) -> dict[str, tuple[Metric, ...]]:
        """Return the metrics of each role's work."""
        metrics = {
            each.role: each.metrics(self.context.workloads) for each in self.roles.neighbours
        }
        metrics[SUBJECT] = self.workload.recorded_metrics(self.parameters)
        return metrics

    def _events(
        self, values: Mapping[str, float], measured: CellMeasurement, disk_doubt: str, left_out: str
    ) -> list[Event]:
        """Write the series of a measured cell, and return its events.

        Args:
            values: The subject's values that count.
            measured: All else that was measured.
            disk_doubt: Why the disk's values do not count, and with them the cell.
            left_out: Which values are left out, and why.

        Raises:
            MachineFault: A value is impossible.
            ValueError: An event cannot hold a value or a fact.
        """
        context, cell = self.context, self.cell
        metrics = self._metrics()
        events: list[Event] = observed(cell, metrics[SUBJECT], SUBJECT, values)
        for report in measured.loads:
            events += observed(cell, metrics[report.role], report.role, report.values)
        saved = [(SUBJECT, series) for series in measured.outcome.series]
        saved += measured.probes.series
        events += [save_series(context.folder, cell.id, role, series) for role, series in saved]
        found = {SUBJECT: values, **{each.role: each.values for each in measured.loads}}
        loads = [each.doubt for each in measured.loads]
        doubts = (*measured.probes.doubts, *loads, impossible_values(metrics, found), disk_doubt)
        why = "; ".join(filter(None, doubts))
        events.append(
            CellFinished(
                cell=cell.id,
                status="withheld" if why else "ok",
                reason=why,
                warnings=(
                    *([left_out] if left_out else []),
                    *texts(measured.outcome.value),
                    *warnings(measured.loads),
                ),
                **logs_and_files(context.folder, self.logs),
                measured_s=measured.took_s,
                facts={**measured.facts(), **(self.in_step.facts() if self.in_step else {})},
            )
        )
        return events


async def _abandon(beginning: asyncio.Future[None], loads: Loads, error: BaseException) -> None:
    """Stop the loads; if they could not start, raise that error, because it is the real cause.

    Args:
        beginning: The start of the loads.
        loads: The loads.
        error: Why they are stopped. A cancelled cell is the last one of its machines.
    """
    cancelled = isinstance(error, asyncio.CancelledError)
    beginning.cancel()
    cause = (await asyncio.gather(beginning, return_exceptions=True))[0]
    await loads.abandon(REMOVED_S if cancelled else ANSWER_S)
    if isinstance(cause, TareError) and not cancelled:
        raise cause


def deadline_s(expected_s: float, *, hands_off: bool) -> float:
    """Return the seconds after which a cell fails: far beyond its estimate.

    Args:
        expected_s: The estimate for hardware, in seconds.
        hands_off: Whether its machine's time counts instructions.
    """
    return (HANDS_OFF_LEAST_S if hands_off else LEAST_S) + FACTOR * expected_s
