"""Carry out one cell: measure in a machine that runs, and tell of it in events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from tare.agent.barrier import Barrier
from tare.errors import MachineFault, TareError, WorkloadFault
from tare.events import CellFinished
from tare.platforms.contract import SUBJECT
from tare.run.cells import patience
from tare.run.cells.alive import ANSWER_S, REMOVED_S, while_alive
from tare.run.cells.cell_events import log_started, log_without_values, observed, texts, warnings
from tare.run.cells.neighbours import LoadReport, Loads
from tare.run.cells.outputs import logs_and_files, save_output
from tare.run.cells.plausibility import CellClocks, all_impossible, unmoved
from tare.run.cells.series import save_series
from tare.run.cells.turns import Undivided
from tare.run.probes.cost import HOST_COST, MEMORY, CellCost
from tare.run.probes.disk_use import DiskUse, disk_facts
from tare.run.probes.host_counters import Counters, HostSampler
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
"""What it raises to take a result for what it is not: the machine's fault, and no end of a run."""
LEAST_COUNTED_S = 2.0
PHASES = "phases"
"""The fact that lists what neighbours, or a job's tasks, did in turn."""


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
        """Return what the cell's record keeps in addition to the values."""
        observed = self.probes.facts
        return {
            **observed,
            HOST_COST: self._host_cost(observed[HOST_COST]),
            "start_skew_s": self.skew_s,
            "neighbours": [report.facts() for report in self.loads],
            PHASES: self.outcome.value.get(PHASES)
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


@dataclass
class Attempt:
    """One attempt at a cell.

    Args:
        context: What every cell of the run shares.
        cell: What to measure.
        roles: The machines; the agent of each is ready.
        facts: What the host knows of these machines.
        number: 1, or 2 for the retry of a transient failure.
        logs: Paths of the subject's logs, relative to the run's folder.
        host_trace: Whether the host's side is recorded where the workload can use it.
        lost: Each set if a host is lost as a whole, or the network between hosts.
        watched: What samples the hosts' counters beside the machines'.
        unaltered: Raises MachineFault where the host is no longer as the machines need it.
        in_step: What keeps it in step with an arm that is up beside it.
        memory_probes: What observes the host's caches and memory bus.
        added: The probes that other packages add.
        why: Returns what a fault of a machine comes from.
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
        """What is measured."""
        return self.context.workloads[self.cell.kind]

    @cached_property
    def parameters(self) -> Parameters:
        """Its parameters, with which it ends by itself."""
        asked = self.workload.parameters.model_validate(dict(self.cell.parameters))
        return self._topology.parameters(self.workload, self.workload.ending(asked))

    @cached_property
    def _topology(self) -> Topology:
        """The machines that it works on, by the topology that the workload names."""
        return self.roles.topology(self.workload.topology)

    @cached_property
    def _disk(self) -> DiskUse | None:
        """What counts what the subject's own disk moves; None where the work does not use it."""
        uses_disk = "disk" in self.workload.needs_for(self.parameters)
        return DiskUse(self.roles.subject) if uses_disk and self._topology.uses_own_disk else None

    @cached_property
    def _standstills(self) -> Standstills:
        """What looks whether any machine of the cell is stopped."""
        return Standstills(self.roles.machines, looks=not self.context.hands_off)

    @property
    def deadline_s(self) -> float:
        """Seconds after which it has failed: the study's, or far beyond what is expected."""
        expected_s, hands_off = self.cell.expected_s, self.context.hands_off
        own_s = self.cell.deadline_s or patience.deadline_s(expected_s, hands_off=hands_off)
        waits = self._topology.takes_turns and self.in_step is not None and self.in_step.by_turns
        return 2 * own_s if waits else own_s

    def _turn(self) -> AbstractAsyncContextManager[None]:
        """Return the turn that it has as a whole."""
        if self.in_step is None or self._topology.takes_turns:
            return Undivided().turn()
        return self.in_step.turn()

    async def carry_out(self) -> TareError | None:
        """Measure the cell and append its events.

        Returns:
            The fault if a machine was lost; the cell has failed then, and the machines with it.
        """
        async with self._turn():
            return await self._carry_out()

    async def _carry_out(self) -> TareError | None:
        log_started(self.context, self.cell, self.number, self.roles)
        try:
            measured = await while_alive(
                tuple(self.roles.machines.values()), self._measure(), *self.lost
            )
            if self.unaltered is not None:
                await self.unaltered()
            result = measured.outcome.value
            if said := save_output(self.context.folder, self.cell.id, self.workload, result):
                self.logs = (*self.logs, said)
            values = self.workload.observe(self.parameters, result)
            measured = replace(measured, stated=self.workload.facts(self.parameters, result))
            claim = self.workload.disk_claim(self.parameters, result)
            moved_bytes = {} if self._disk is None else self._disk.moved
            stayed = unmoved(claim, result, moved_bytes, measured.took_s)
            told = self._told(values, measured, stayed)
        except MachineFault as shown:
            fault = shown if self.why is None else await self.why(shown)
            transient = isinstance(fault, MachineFault) and fault.transient
            self._end("failed", str(fault), transient=transient)
            return fault
        except WorkloadFault as fault:
            if stood := self._standstills.doubt:
                # A partner of a stopped machine waits in vain: the stop is the cause.
                self._end("withheld", f"{stood}; {fault}")
            else:
                self._end("failed", str(fault))
            return None
        except UNREADABLE as error:
            reason = f"the agent's result of {self.cell.kind} cannot be read: {error!r}"
            self._end("failed", reason)
            return None
        for event in told:
            self.context.log.append(event)
        return None

    def _end(
        self, status: Literal["failed", "withheld"], reason: str, *, transient: bool = False
    ) -> None:
        log_without_values(self.context, self.cell, status, reason, self.logs, transient)

    def _probes(self) -> list[Probe]:
        """Return what observes the cell, in the order in which it begins.

        What other packages add begins first and ends last. The trace and the clocks are read before
        anything loads the host; the counters note the common start, so they begin last.
        """
        context, roles, looks = self.context, self.roles, not self.context.hands_off
        traced = self.host_trace and self.workload.logs_gaps
        neighbours = {each.role: each.machine for each in roles.neighbours}
        clocks = CellClocks(context.clocks, roles.measuring)
        # Not where there would be no second sample to compare the first with.
        counted = not self.workload.realtime and self.cell.expected_s >= LEAST_COUNTED_S
        probes: list[Probe] = [
            *self.added,
            trace_of_cell(context.tracing if traced else None, roles.subject, neighbours),
            clocks,
            HypervisorSide(roles.subject, beside=roles.machines),
            self._standstills,
            *([] if self._disk is None else [self._disk]),
            *self.memory_probes,
            CellCost(self._topology.carriers, looks=counted and looks),
        ]
        if counted:
            counters = Counters(roles.subject, roles.companions, self.watched, clocks.reading)
            probes.append(counters)
        return probes

    async def _measure(self) -> Measured:
        context, subject, roles = self.context, self.roles.subject, self.roles
        loads = Loads(roles.neighbours, context.workloads, self.facts, roles.peer)
        looks = not context.hands_off
        if not looks:
            subject.agent.repeat_after(patience.HANDS_OFF_REPEAT_S)
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
                looks=looks,
            )
            try:
                work = self._topology.run(self._work(barrier, progress))
                outcome = await loads.while_all_run(work)
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
        return Measured(outcome, took_s, reports, skew_s, probes)

    def _work(self, barrier: Barrier, progress: Watch) -> CellWork:
        return CellWork(
            self.workload,
            self.parameters,
            self.facts,
            barrier,
            self.deadline_s,
            progress.hear,
            self.in_step or Undivided(),
        )

    def _metrics(self) -> dict[str, tuple[Metric, ...]]:
        """Return what each role's work tells."""
        metrics = {
            each.role: each.metrics(self.context.workloads) for each in self.roles.neighbours
        }
        metrics[SUBJECT] = self.workload.recorded_metrics(self.parameters)
        return metrics

    def _told(self, values: Mapping[str, float], measured: Measured, stayed: str) -> list[Event]:
        """Return what is to be told of a cell that was measured; its series are written by then.

        Raises:
            MachineFault: A value is impossible.
            ValueError: A value or a fact is of a kind that no event holds.
        """
        context, cell = self.context, self.cell
        metrics = self._metrics()
        told: list[Event] = observed(cell, metrics[SUBJECT], SUBJECT, values)
        for report in measured.loads:
            told += observed(cell, metrics[report.role], report.role, report.values)
        saved = [(SUBJECT, series) for series in measured.outcome.series]
        saved += measured.probes.series
        told += [save_series(context.folder, cell.id, role, series) for role, series in saved]
        found = {SUBJECT: values, **{each.role: each.values for each in measured.loads}}
        loads = [each.doubt for each in measured.loads]
        doubts = (*measured.probes.doubts, *loads, all_impossible(metrics, found), stayed)
        why = "; ".join(filter(None, doubts))
        told.append(
            CellFinished(
                cell=cell.id,
                status="withheld" if why else "ok",
                reason=why,
                warnings=(*texts(measured.outcome.value), *warnings(measured.loads)),
                **logs_and_files(context.folder, self.logs),
                measured_s=measured.took_s,
                facts=measured.facts() | (self.in_step.facts() if self.in_step else {}),
            )
        )
        return told


async def _abandon(beginning: asyncio.Future[None], loads: Loads, error: BaseException) -> None:
    """Stop the loads; what kept them from starting is the real reason, so it is raised.

    Args:
        beginning: Their start.
        loads: They.
        error: Why they are stopped. A cell that is cancelled is the last one of its machines.
    """
    cancelled = isinstance(error, asyncio.CancelledError)
    beginning.cancel()
    cause = (await asyncio.gather(beginning, return_exceptions=True))[0]
    await loads.abandon(REMOVED_S if cancelled else ANSWER_S)
    if isinstance(cause, TareError) and not cancelled:
        raise cause
