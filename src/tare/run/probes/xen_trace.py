"""The trace of a cell on Xen: which vCPU used which CPU, from Xen's own trace."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tare.agent.clocktrust import ClockReading
from tare.agent.series import Series
from tare.errors import TareError
from tare.events.cell_facts import ClockPlace, TraceClock, TraceFacts
from tare.events.host_schedule import SERIES, HostEvent
from tare.hosts.trace.tracefs import NoTracing
from tare.platforms.xen.trace.schedule import XenSchedule, schedule, vcpu_name
from tare.platforms.xen.trace.tracer import PROGRAM, XenTracer
from tare.run.probes.host_clock import (
    EXACT,
    Bounds,
    alternating_readings,
    counter_offset,
    host_agent,
    kept_busy,
    readings,
)
from tare.run.probes.host_side import HostSide

if TYPE_CHECKING:
    from tare.agent.client import AgentClient, Outcome
    from tare.platforms.contract import HypervisorVcpus, Machine

_GUEST_TYPE = "/sys/hypervisor/guest_type"
_TICK = ("clock", "seconds", "tsc_hz", "undisturbed_s", "gaps", "samples")


@dataclass
class XenTrace(HostSide):
    """Traces one cell with ``xentrace``, as ``HostTrace`` does with the kernel.

    Times of the trace are the processor's cycle counter. A PV guest reads the same. For guests with
    their own counter, both it and dom0's are read before and after the cell.

    Args:
        vcpus: The vCPUs of the machine that measures.
        subject: That machine.
        others: The neighbours by role.
    """

    vcpus: HypervisorVcpus
    subject: Machine
    others: Mapping[str, Machine]
    _held: AsyncExitStack = field(default_factory=AsyncExitStack)
    _tracer: XenTracer | None = None
    _dom0_agent: AgentClient | None = None
    _clock: tuple[ClockReading, ...] = ()
    _dom0: tuple[ClockReading, ...] = ()
    _refused: str = ""

    async def open(self) -> None:
        """Read the counters, before anything loads the host."""
        try:
            if not self.vcpus.raw_counter:
                await self._open_dom0()
            self._clock, self._dom0 = await self._read()
        except (NoTracing, OSError, TareError) as refusal:
            self._refused = f"the host's clock cannot be read: {refusal}"

    async def _open_dom0(self) -> None:
        host = self.vcpus.host
        kind = (await host.read(_GUEST_TYPE)).decode().strip()
        if kind != "PV":
            raise NoTracing(f"dom0 is of type {kind}, whose cycle counter is not the processor's")
        starting = host_agent(host, self.vcpus.ledger, self.vcpus.agent)
        self._dom0_agent = await self._held.enter_async_context(starting)

    async def _read(self) -> tuple[tuple[ClockReading, ...], tuple[ClockReading, ...]]:
        own = self.subject.agent
        if self._dom0_agent is None:
            return await readings(own), ()
        async with AsyncExitStack() as held:
            if self.vcpus.counted:
                await held.enter_async_context(kept_busy(self.vcpus.host, self.vcpus.ledger))
            return await alternating_readings(own, self._dom0_agent)

    async def begin(self) -> None:
        """Start to record; called when all machines are ready and wait for their start."""
        if self._refused:
            return
        tracer = XenTracer(self.vcpus.host, self.vcpus.ledger, self.vcpus.folder)
        try:
            await tracer.begin()
        except NoTracing as refusal:
            self._refused = str(refusal)
            return
        self._tracer = tracer

    async def end(self, outcome: Outcome) -> None:
        """Stop recording, and keep the trace with the facts that are needed to read it."""
        tracer, self._tracer = self._tracer, None
        try:
            if tracer is None:
                raise NoTracing(self._refused)
            trace = await tracer.end()
            own, dom0 = await self._read()
            hz = float(outcome.value["tsc_hz"])
            offset = self._offset(own, dom0)
            origin = round(self._clock[0].tsc + offset.low)
            capped = bool(self.vcpus.limit)
            taken = schedule(trace, hz, origin, capped=capped)
            facts: TraceFacts = {
                **self._facts(taken, outcome, self._places(own, offset, origin, hz)),
                "origin_ticks": origin,
            }
        except (NoTracing, KeyError, TypeError, ValueError, ZeroDivisionError) as refusal:
            self.record_nothing(str(refusal))
            return
        finally:
            await self._close()
        self.record(facts, Series(SERIES, watched(taken, self.vcpus.cpus)))

    async def abandon(self, limit_s: float) -> None:
        """Stop recording after the cell has failed."""
        tracer, self._tracer = self._tracer, None
        if tracer is not None:
            await tracer.abandon()
        await self._close()

    async def _close(self) -> None:
        self._dom0_agent = None
        await self._held.aclose()

    def _offset(self, own: tuple[ClockReading, ...], dom0: tuple[ClockReading, ...]) -> Bounds:
        if self.vcpus.raw_counter:
            return EXACT
        first = counter_offset(self._clock, self._dom0)
        last = counter_offset(own, dom0)
        low, high = max(first.low, last.low), min(first.high, last.high)
        return Bounds(low, high) if low <= high else min(first, last, key=lambda one: one.error)

    def _places(
        self, own: tuple[ClockReading, ...], offset: Bounds, origin: int, hz: float
    ) -> TraceClock:
        """Return the relation of the machine's counter to the trace's time; see ``clock_facts``."""

        def place(ticks: int) -> ClockPlace:
            at = (ticks - origin + offset.middle) * 1e9 / hz
            error = offset.error * 1e9 / hz
            return {"ticks": ticks, "host_ns": round(at), "error_ns": round(error)}

        return {
            "shared": False,
            "first": place(self._clock[0].tsc),
            "last": place(own[-1].tsc),
        }

    def _facts(self, taken: XenSchedule, outcome: Outcome, clock: TraceClock) -> TraceFacts:
        times = taken.columns["time_ns"]
        return {
            "recorded": True,
            "by": PROGRAM,
            "cpus": list(self.vcpus.cpus),
            "began_ns": int(times[0]) if len(times) else 0,
            "ended_ns": int(times[-1]) if len(times) else 0,
            "events": len(times),
            "lost": taken.lost,
            "subject_threads": list(self.vcpus.ids),
            "threads": self._named(taken),
            "irqs": {},
            "clock": clock,
            "limit": self.vcpus.limit,
            # Xen assigns the CPUs here; steal by a hypervisor below Xen is not visible.
            "steal_s": None,
            "tick": {name: outcome.value.get(name) for name in _TICK},
        }

    def _named(self, taken: XenSchedule) -> dict[str, dict[str, str]]:
        roles: dict[int, tuple[str, int]] = {}
        for role, machine in {"subject": self.subject, **self.others}.items():
            below = machine.traced_below()
            for number, vcpu in enumerate(below.ids if below is not None else ()):
                roles[vcpu] = role, number
        names = {}
        for vcpu in sorted(taken.vcpus | set(self.vcpus.ids)):
            if vcpu in roles:
                role, number = roles[vcpu]
                names[str(vcpu)] = {"comm": f"vCPU {number}", "role": role}
            else:
                names[str(vcpu)] = {"comm": vcpu_name(vcpu), "role": ""}
        return names


def watched(taken: XenSchedule, cpus: tuple[int, ...]) -> dict[str, Any]:
    """Return the rows of some CPUs, and all wake-ups; all rows if no CPUs are given."""
    columns = taken.columns
    if not cpus:
        return dict(columns)
    kept = columns["kind"] == HostEvent.WAKEUP
    for cpu in cpus:
        kept |= columns["cpu"] == cpu
    return {name: column[kept] for name, column in columns.items()}
