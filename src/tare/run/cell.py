"""Carry out one cell: measure in a machine that runs, and tell of it in events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from tare.agent.barrier import Barrier
from tare.agent.clocktrust import ClockTrust, judge
from tare.errors import MachineFault, TareError, WorkloadFault
from tare.events import CellFinished, CellStarted, Observed
from tare.events.hostsched import FACTS as HOST_FACTS
from tare.run.cost import CellCost
from tare.run.diskside import disk_facts, forget_disk
from tare.run.hostside import WATCHED, HostRecord, HostSide, HostTracing
from tare.run.hostwatch import Counted, Counters, HostWatch
from tare.run.neighbours import LoadReport, Loads, Neighbour, inner_cpus
from tare.run.outputs import save_output
from tare.run.series import save_series
from tare.run.watching import Watch
from tare.workloads import MachineFacts, agent_name, ending, fitted
from tare.workloads.ends import TwoEnded
from tare.workloads.needs import needs_of

if TYPE_CHECKING:
    from tare.agent.client import Outcome
    from tare.agent.clocktrust import ClockReading
    from tare.events import EventLog
    from tare.platforms.base import Machine
    from tare.run.folder import RunFolder
    from tare.run.peers import Peer
    from tare.study.plan import Cell
    from tare.workloads.base import Parameters, Workload

PHASES = "phases"
"""The fact that lists what neighbours did in turn, for the report's courses."""
CLOCK_DRIFT_LIMIT_PPM = 500.0
"""The adjustment an NTP daemon may make to a healthy clock (adjtimex(2), MAXFREQ)."""

T = TypeVar("T")

LEAST_DEADLINE_S = 30.0
IMPOSSIBLE = 1e15
"""No figure of a machine, in s, B/s or 1/s, is as large: it would be thirty million years."""
LAST_WORDS_S = 1.0
LEAST_COUNTED_S = 2.0
DEADLINE_FACTOR = 20.0
"""An emulated machine may be that much slower than the hardware the estimate is made for."""


@dataclass(frozen=True)
class CellContext:
    """What every cell of a run shares."""

    folder: RunFolder
    log: EventLog
    workloads: Mapping[str, Workload]
    on_progress: Callable[[str, float, Mapping[str, Any]], None]
    clocks: dict[str, ClockReading] = field(default_factory=dict)
    """The last reading of each machine's clock: the next cell on it begins there."""
    tracing: HostTracing | None = None
    """What the host's side of cells is recorded with."""
    trusts_any_clock: bool = False
    """Whether machines' time is virtual, so that no clock of this computer can judge theirs."""


@dataclass(frozen=True)
class _Measured:
    outcome: Outcome
    trust: ClockTrust
    took_s: float
    loads: tuple[LoadReport, ...]
    skew_s: float | None
    cost: Mapping[str, float]
    host: HostRecord
    counters: Counted
    host_cache: Mapping[str, Any]


async def carry_out_cell(
    context: CellContext,
    cell: Cell,
    subject: Machine,
    neighbours: tuple[Neighbour, ...],
    facts: MachineFacts,
    attempt: int,
    logs: tuple[str, ...],
    host_trace: bool = False,
    lost: asyncio.Future[MachineFault] | None = None,
    peer: Peer | None = None,
    watch: HostWatch | None = None,
    unaltered: Callable[[], Awaitable[None]] | None = None,
) -> MachineFault | None:
    """Measure ``cell`` in ``subject`` and append its events.

    Args:
        context: What every cell of the run shares.
        cell: What to measure.
        subject: A machine whose agent is ready.
        neighbours: Machines that carry loads while the subject measures.
        facts: What the host knows of these machines.
        attempt: 1, or 2 for the retry of a transient failure.
        logs: Paths of the machine's logs, relative to the run's folder.
        host_trace: Whether the host's side is recorded where the workload can use it.
        lost: Set if the host is lost as a whole.
        peer: The other end of workloads that have two.
        watch: What samples the host's counters beside the machine's.
        unaltered: Raises MachineFault where the host is no longer as the machines need it.

    Returns:
        The fault if a machine was lost; the cell has failed then, and the machines with it.
    """
    workload = context.workloads[cell.kind]
    parameters = ending(workload, workload.parameters.model_validate(dict(cell.parameters)))
    context.log.append(
        CellStarted(
            cell=cell.id,
            block=cell.block,
            arm=cell.arm,
            scenario=cell.scenario,
            workload=cell.workload,
            parameters=dict(cell.parameters),
            attempt=attempt,
        )
    )
    try:
        machines = [subject, *(neighbour.machine for neighbour in neighbours)]
        machines += [peer.machine] if peer is not None else []
        measured = await while_alive(
            machines,
            _measure(
                context,
                cell,
                workload,
                parameters,
                subject,
                neighbours,
                facts,
                host_trace,
                peer,
                watch,
            ),
            lost,
        )
        if unaltered is not None:
            await unaltered()
        said = save_output(context.folder, cell.id, measured.outcome.value)
        logs = (*logs, said) if said else logs
        values = workload.observe(parameters, measured.outcome.value)
        require_possible(values)
    except MachineFault as fault:
        _finish_failed(context, cell, str(fault), fault.transient, logs)
        return fault
    except WorkloadFault as fault:
        _finish_failed(context, cell, str(fault), False, logs)
        return None
    except (KeyError, ValueError, TypeError) as error:
        reason = f"the agent's result of {cell.kind} cannot be read: {error!r}"
        _finish_failed(context, cell, reason, False, logs)
        return None
    _tell(context, cell, workload, values, measured, logs)
    return None


def require_possible(values: Mapping[str, float]) -> None:
    """See that a machine can have had these values, in SI units.

    Raises:
        MachineFault: One is so large that the machine cannot have calculated rightly, so nothing
            more is asked of it. Guests in an emulated host were seen to lose their floating-point
            registers.
    """
    for name, value in values.items():
        if abs(value) >= IMPOSSIBLE:
            raise MachineFault(
                f"{name} is {value:g}, so the machine did not calculate rightly", transient=True
            )


async def _measure(
    context: CellContext,
    cell: Cell,
    workload: Workload,
    parameters: Parameters,
    subject: Machine,
    neighbours: tuple[Neighbour, ...],
    facts: MachineFacts,
    host_trace: bool,
    peer: Peer | None = None,
    watch: HostWatch | None = None,
) -> _Measured:
    deadline_s = cell.deadline_s or LEAST_DEADLINE_S + DEADLINE_FACTOR * cell.expected_s
    loads = Loads(neighbours, context.workloads, facts, peer)
    side = HostSide(
        context.tracing if host_trace and cell.kind in WATCHED else None,
        subject,
        {neighbour.role: neighbour.machine for neighbour in neighbours},
    )
    uses_disk = "disk" in needs_of(workload)
    forgotten: dict[str, Any] = {}

    async def begin() -> None:
        if uses_disk:
            # When all files are made, and before any is measured.
            forgotten.update(await forget_disk(subject))
        await side.begin()
        await cost.begin()
        counters.start_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)

    cost = CellCost(subject)
    barrier = Barrier(1 + len(neighbours), begin)
    await side.open()
    first = context.clocks.pop(subject.name, None) or await subject.agent.clock()
    # Not where there would be no second sample to compare the first with.
    counted = not workload.realtime and cell.expected_s >= LEAST_COUNTED_S
    counters = Counters(subject, watch, counted)
    await counters.begin(first)
    beginning = asyncio.ensure_future(loads.begin(barrier))
    began = time.monotonic()
    progress = Watch(subject, lambda done, fields: context.on_progress(cell.id, done, fields))
    try:
        if isinstance(workload, TwoEnded):
            if peer is None:
                raise WorkloadFault(f"{cell.kind} needs a peer, and this visit has none")
            work = peer.carry_out(
                workload.ends(parameters),
                subject,
                barrier=barrier,
                deadline_s=deadline_s,
                on_progress=progress.hear,
            )
        else:
            work = subject.agent.run(
                agent_name(workload),
                fitted(workload, workload.request(parameters), facts),
                cpus=inner_cpus(subject),
                barrier=barrier,
                deadline_s=deadline_s,
                on_progress=progress.hear,
            )
        outcome = await loads.beside(work)
        took_s = time.monotonic() - began
        await cost.end()
        host = await side.end(outcome)
        await beginning
        reports = await loads.end()
        taken = await counters.end()
    except BaseException:
        await side.abandon()
        await counters.abandon()
        await _abandon(beginning, loads)
        raise
    finally:
        await progress.end()
    last = context.clocks[subject.name] = await subject.agent.clock()
    trust = judge(first, last, CLOCK_DRIFT_LIMIT_PPM)
    skew_s = barrier.skew_ns * 1e-9 if neighbours and barrier.skew_ns is not None else None
    spent = cost.of(outcome, counters.resident)
    return _Measured(outcome, trust, took_s, reports, skew_s, spent, host, taken, forgotten)


async def _abandon(beginning: asyncio.Future[None], loads: Loads) -> None:
    """Stop the loads; what kept them from starting is the real reason, so it is raised."""
    beginning.cancel()
    cause = (await asyncio.gather(beginning, return_exceptions=True))[0]
    await loads.abandon()
    if isinstance(cause, TareError):
        raise cause


async def while_alive(
    machines: Sequence[Machine],
    work: Coroutine[Any, Any, T],
    lost: asyncio.Future[MachineFault] | None = None,
) -> T:
    """Return what ``work`` returns, unless one of ``machines`` dies before, or the host is lost.

    Raises:
        MachineFault: A machine died; what its platform says of it, rather than that its channel
            broke, which is only how it shows first.
    """
    task = asyncio.ensure_future(work)
    # The host's end says more than that of the machines, which end with it.
    deaths = [*([lost] if lost is not None else []), *(machine.died for machine in machines)]
    try:
        either: list[asyncio.Future[Any]] = [task, *deaths]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if deaths and task.done() and isinstance(task.exception(), MachineFault):
            await asyncio.wait(deaths, timeout=LAST_WORDS_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    for death in deaths:
        if death.done():
            raise death.result()
    return task.result()


def _tell(
    context: CellContext,
    cell: Cell,
    workload: Workload,
    values: Mapping[str, float],
    measured: _Measured,
    logs: tuple[str, ...],
) -> None:
    _observe(context, cell, workload, "subject", values)
    for report in measured.loads:
        _observe(context, cell, context.workloads[report.load], report.role, report.values)
    saved = [("subject", series) for series in measured.outcome.series]
    for role, series in (*saved, *measured.counters.series):
        context.log.append(save_series(context.folder, cell.id, role, series))
    if measured.host.series is not None:
        context.log.append(save_series(context.folder, cell.id, "host", measured.host.series))
    status, reason = ("ok", "")
    if not measured.trust.trusted and not context.trusts_any_clock:
        status, reason = "withheld", f"the machine's clock is not to be trusted: {measured.trust}"
    context.log.append(
        CellFinished(
            cell=cell.id,
            status="ok" if status == "ok" else "withheld",
            reason=reason,
            warnings=(*_texts(measured.outcome.value), *_warnings(measured.loads)),
            logs=logs,
            measured_s=measured.took_s,
            facts={
                "clock_drift_ppm": measured.trust.drift_ppm,
                "clock_uncertainty_ppm": measured.trust.uncertainty_ppm,
                "host_cost": dict(measured.cost),
                "start_skew_s": measured.skew_s,
                "neighbours": [asdict(report) for report in measured.loads],
                PHASES: next((report.phases for report in measured.loads if report.phases), ()),
                HOST_FACTS: dict(measured.host.facts),
                **measured.counters.facts,
                **({"host_cache": dict(measured.host_cache)} if measured.host_cache else {}),
                **disk_facts(measured.outcome.value),
            },
        )
    )


def _texts(result: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(text) for text in result.get("warnings", ()))


def _warnings(reports: Sequence[LoadReport]) -> tuple[str, ...]:
    return tuple(f"{each.role}, {each.load}: {text}" for each in reports for text in each.warnings)


def _observe(
    context: CellContext, cell: Cell, workload: Workload, role: str, values: Mapping[str, float]
) -> None:
    for metric in workload.metrics:
        if metric.name in values:
            context.log.append(
                Observed(
                    cell=cell.id,
                    role=role,
                    metric=metric.name,
                    unit=metric.unit,
                    better=metric.better,
                    kind=metric.kind,
                    headline=metric.headline and role == "subject",
                    value=values[metric.name],
                )
            )


def _finish_failed(
    context: CellContext, cell: Cell, reason: str, transient: bool, logs: tuple[str, ...]
) -> None:
    context.log.append(
        CellFinished(cell=cell.id, status="failed", reason=reason, transient=transient, logs=logs)
    )


def fail_cell(context: CellContext, cell: Cell, error: TareError, logs: tuple[str, ...]) -> None:
    """Tell that ``cell`` could not even be begun, and why."""
    context.log.append(
        CellStarted(
            cell=cell.id,
            block=cell.block,
            arm=cell.arm,
            scenario=cell.scenario,
            workload=cell.workload,
            parameters=dict(cell.parameters),
        )
    )
    transient = isinstance(error, MachineFault) and error.transient
    _finish_failed(context, cell, str(error), transient, logs)
