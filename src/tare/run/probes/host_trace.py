"""The trace of the host during a cell, and its relation to the subject's clock."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tare.agent.series import Series
from tare.errors import MachineFault, TareError
from tare.events.cell_facts import ClockPlace, TraceClock, TraceFacts
from tare.events.host_schedule import SERIES
from tare.hosts.trace.recorder import HostRecorder, NoTracing, Recording, host_recorder
from tare.hosts.trace.threads import (
    QuotaStops,
    allowed_cpus,
    quota_files,
    quota_of,
    realtime_limited,
    throttled,
)
from tare.platforms.linux.cgroups import cgroup_mounts
from tare.run.probes.host_clock import (
    alternating_readings,
    bounded_readings,
    host_agent,
    kept_busy,
    readings,
)
from tare.run.probes.host_side import HostSide
from tare.run.probes.xen_trace import XenTrace

if TYPE_CHECKING:
    from pathlib import Path

    from tare.agent.client import AgentClient, Outcome
    from tare.agent.clocktrust import ClockReading
    from tare.hosts import Host
    from tare.platforms.contract import Context, Machine

_OFF = "recording was not requested"
_PROOF_S = 60.0


@dataclass(frozen=True)
class HostTracing:
    """The recorder of the host's side in this run, or the reason why there is none."""

    host: Host
    recorder: HostRecorder | None
    reason: str = ""
    context: Context | None = None
    """The context of the recorder; None if there is none."""
    counts_steal: bool = False
    """Whether the host counts steal by a hypervisor below it; true if there is no hypervisor."""


@asynccontextmanager
async def host_tracing(context: Context) -> AsyncIterator[HostTracing]:
    """Yield the recorder of the host's side; if it is impossible, the reason."""
    async with AsyncExitStack() as held:
        try:
            # On a host whose time counts instructions, each reading takes time from the workload,
            # and their number depends on the speed of this computer.
            making = host_recorder(context.host, context.ledger, looks=not context.counted)
            recorder = await held.enter_async_context(making)
        except NoTracing as refusal:
            yield HostTracing(context.host, None, str(refusal))
            return
        counts = await counts_steal(context.host, str(context.host_agent))
        yield HostTracing(context.host, recorder, context=context, counts_steal=counts)


async def counts_steal(host: Host, agent: str) -> bool:
    """Return whether a host's kernel really counts steal, so that even zero is a measured value.

    Args:
        host: The host.
        agent: The agent's program there.
    """
    try:
        proved = await host.run([agent, "proof"], timeout_s=_PROOF_S)
        seen = json.loads(proved.stdout)["hypervisor"]
        # Null if no hypervisor announces itself: then there is no steal.
        return seen["tells_steal"] is not False
    except (TareError, OSError, ValueError, LookupError, TypeError):
        return False


def trace_of_cell(
    tracing: HostTracing | None, subject: Machine, others: Mapping[str, Machine]
) -> HostSide:
    """Return the probe that traces the host in one cell; see :class:`HostTrace`."""
    below = subject.traced_below()
    if tracing is None or below is None:
        return HostTrace(tracing, subject, others)
    return XenTrace(below, subject, others)


@dataclass
class HostTrace(HostSide):
    """Traces the host during one cell.

    Args:
        tracing: The run's recorder; None if this cell is not recorded.
        subject: The machine that measures.
        others: The neighbours by role.
    """

    tracing: HostTracing | None
    subject: Machine
    others: Mapping[str, Machine]
    _threads: tuple[int, ...] = ()
    _names: dict[int, dict[str, str]] = field(default_factory=dict)
    _quota: tuple[Path, ...] = ()
    _throttled: QuotaStops = field(default_factory=lambda: QuotaStops(0, 0.0))
    _steal: float = 0.0
    _limited: bool = False
    _refused: str = ""
    _recording: bool = False
    _clock: tuple[ClockReading, ...] = ()
    _held: AsyncExitStack = field(default_factory=AsyncExitStack)
    _host_agent: AgentClient | None = None

    async def read_clock(self) -> tuple[ClockReading, ...]:
        """Read the subject's clock several times, to align it with the host's."""
        if self.tracing is None or self.tracing.recorder is None or self.subject.shares_clock:
            return ()
        if self._host_agent is None:
            return await readings(self.subject.agent)
        async with AsyncExitStack() as held:
            context = self.tracing.context
            if context is not None and context.counted:
                await held.enter_async_context(kept_busy(context.host, context.ledger))
            own, its = await alternating_readings(self.subject.agent, self._host_agent)
        return bounded_readings(own, its)

    async def open(self) -> None:
        """Read the subject's clock, before anything loads the host."""
        tracing = self.tracing
        far = tracing is not None and not tracing.host.local and not self.subject.shares_clock
        if far and tracing is not None and tracing.context is not None:
            context = tracing.context
            starting = host_agent(context.host, context.ledger, context.host_agent)
            try:
                self._host_agent = await self._held.enter_async_context(starting)
            except (MachineFault, OSError) as error:
                self._refused = f"the clock of {tracing.host.name} cannot be read: {error}"
                return
        self._clock = await self.read_clock()

    async def begin(self) -> None:
        """Start to record; called when all machines are ready and wait for their start."""
        if self.tracing is None or self.tracing.recorder is None or self._refused:
            return
        host = self.tracing.host
        self._threads = await self.subject.measuring_threads()
        machines = {"subject": self.subject, **self.others}
        for role, machine in machines.items():
            for thread, comm in (await machine.threads()).items():
                self._names.setdefault(thread, {"comm": comm, "role": role})
        cpus = {cpu for thread in self._threads for cpu in await allowed_cpus(host, thread)}
        cpus &= set(host.topology().online)
        if not cpus:
            self._refused = "the subject's threads were not found on the host"
            return
        mounts = await cgroup_mounts(host)
        mount = mounts.controllers.get("cpu", mounts.unified)
        self._quota = await quota_files(host, self._threads[0], mount)
        self._throttled = await throttled(host, self._quota)
        self._steal = await _steal_s(host, cpus)
        self._limited = await realtime_limited(host, self._threads[0])
        try:
            own = [each for each, known in self._names.items() if known["role"] == "subject"]
            woken = dict.fromkeys([*self._threads, *own])
            await self.tracing.recorder.begin(sorted(cpus), tuple(woken))
            self._recording = True
        except NoTracing as refusal:
            self._refused = str(refusal)

    async def end(self, outcome: Outcome) -> None:
        """Stop recording, and keep the trace with the facts that are needed to read it."""
        try:
            await self._end(outcome)
        finally:
            await self._held.aclose()

    async def _end(self, outcome: Outcome) -> None:
        if self.tracing is None:
            self.record_nothing(_OFF)
            return
        recorder = self.tracing.recorder
        if recorder is None or not self._recording:
            self.record_nothing(self._refused or self.tracing.reason)
            return
        self._recording = False
        taken = await recorder.end()
        after = await throttled(self.tracing.host, self._quota)
        quota = await quota_of(self.tracing.host, self._quota)
        steal_s = await _steal_s(self.tracing.host, taken.cpus) - self._steal
        facts: TraceFacts = {
            "recorded": True,
            "cpus": list(taken.cpus),
            "began_ns": taken.began_ns,
            "ended_ns": taken.ended_ns,
            "events": len(taken.columns["time_ns"]),
            "lost": taken.lost,
            "subject_threads": list(self._threads),
            "threads": self._named(taken),
            "irqs": {str(number): name for number, name in sorted(taken.irqs.items())},
            "clock": clock_facts(self._clock, await self.read_clock(), self.subject.shares_clock),
            "throttled": {
                "times": after.times - self._throttled.times,
                "seconds": after.seconds - self._throttled.seconds,
                "quota_ns": quota.quota_ns if quota else None,
                "period_ns": quota.period_ns if quota else None,
            },
            "realtime": {"limited": self._limited},
            # Without a counter, zero means nothing.
            "steal_s": steal_s if steal_s > 0 or self.tracing.counts_steal else None,
            "tick": {
                name: outcome.value.get(name)
                for name in ("clock", "seconds", "tsc_hz", "undisturbed_s", "gaps", "samples")
            },
        }
        self.record(facts, Series(SERIES, taken.columns))

    async def abandon(self, limit_s: float) -> None:
        """Stop recording after the cell has failed."""
        if self._recording and self.tracing is not None and self.tracing.recorder is not None:
            self._recording = False
            await self.tracing.recorder.abandon()
        await self._held.aclose()

    def _named(self, taken: Recording) -> dict[str, dict[str, str]]:
        seen = set(taken.columns["who"][taken.columns["kind"] == 0].tolist())
        seen |= set(taken.columns["other"][taken.columns["kind"] == 0].tolist())
        return {
            str(thread): self._names.get(thread)
            or {"comm": taken.comms.get(thread, ""), "role": ""}
            for thread in sorted(seen | set(self._threads))
            if thread
        }


def clock_facts(
    first: Sequence[ClockReading], last: Sequence[ClockReading], shared: bool
) -> TraceClock:
    """Return the relation of the subject's cycle counter to the host's CLOCK_MONOTONIC_RAW.

    This uses the counter, not the subject's clock: a guest that was stopped for long may lose time
    on its clock, but never on its counter. Each exchange shows that the host's clock was between
    the host's two readings when the counter was read. All exchanges of one moment must agree, so
    their intersection is valid (Marzullo's algorithm, 1984, with no faulty source).

    Args:
        first: Exchanges before the measurement.
        last: Exchanges after it.
        shared: Whether the subject's clock is the host's own.

    Returns:
        ``shared``; if it is False also ``first`` and ``last``, each with ``ticks`` (of the
        counter), ``host_ns`` (the host's clock then) and ``error_ns`` (half the width of the
        remaining interval).
    """
    if shared:
        return {"shared": True}
    passed = last[-1].tsc - first[0].tsc
    tick_ns = (_middle(last[-1]) - _middle(first[0])) / max(1, passed)
    return {"shared": False, "first": _place(first, tick_ns), "last": _place(last, tick_ns)}


def _middle(reading: ClockReading) -> float:
    return (reading.host_before_ns + reading.host_after_ns) / 2


def _place(readings: Sequence[ClockReading], tick_ns: float) -> ClockPlace:
    best = min(readings, key=lambda reading: reading.host_after_ns - reading.host_before_ns)
    passed = [round((reading.tsc - best.tsc) * tick_ns) for reading in readings]
    low = max(each.host_before_ns - since for each, since in zip(readings, passed, strict=True))
    high = min(each.host_after_ns - since for each, since in zip(readings, passed, strict=True))
    if low > high:
        # The counter does not run evenly: use only the tightest exchange.
        low, high = best.host_before_ns, best.host_after_ns
    return {"ticks": best.tsc, "host_ns": (low + high) // 2, "error_ns": (high - low + 1) // 2}


async def _steal_s(host: Host, cpus: Sequence[int] | set[int]) -> float:
    """Return the seconds that a hypervisor below the host has taken from these CPUs, proc(5)."""
    wanted = {f"cpu{cpu}" for cpu in cpus}
    total = 0
    for line in (await host.read("/proc/stat")).decode().splitlines():
        fields = line.split()
        if fields and fields[0] in wanted and len(fields) > 8:
            total += int(fields[8])
    return total / 100.0
