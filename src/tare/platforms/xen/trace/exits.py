"""Exits of Xen's guests, by reason: from xentrace's records of how they cross into Xen.

HVM and PVH guests have the processor's exits, each with the time until the guest ran again. Xen
records hypercalls, traps and emulated instructions of PV guests, but not when they ended. Each
crossing is a record, so that recording costs more than on KVM.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tare.errors import InputError
from tare.hosts.contract import Host
from tare.hosts.trace.exits import ExitCount, Exits
from tare.hosts.trace.tracefs import NoTracing
from tare.platforms.machine import HypervisorVcpus
from tare.platforms.xen.trace.records import (
    HVM_ENTRY_EXIT,
    PV_ENTRY,
    SCHED_MIN,
    Crossing,
    LostRecords,
    Runstate,
    RunstateChange,
    Way,
    crossings,
)
from tare.platforms.xen.trace.schedule import vcpu_id
from tare.platforms.xen.trace.tracer import XenTracer

PV = "xen-pv"
"""Takes the place of the architecture for PV guests."""
_ASKED_S = 30.0
_HLT = {"svm": 0x78, "vmx": 12}
"""The exit of a guest that has nothing to do."""
_VENDORS = {b"AuthenticAMD": "svm", b"HygonGenuine": "svm", b"GenuineIntel": "vmx"}


class XenExitRecorder:
    """Records exits of a machine of Xen; has the methods of ``ExitRecorder``.

    Args:
        vcpus: The machine's vCPUs.
    """

    def __init__(self, vcpus: HypervisorVcpus) -> None:
        self._vcpus = vcpus
        self._tracer: XenTracer | None = None
        self._isa = ""
        self._hz = 0.0

    async def begin(self, threads: Sequence[int]) -> None:
        """Start recording.

        Args:
            threads: The numbers of the vCPUs, as the machine itself names them.

        Raises:
            NoTracing: It cannot be done here.
        """
        vcpus = self._vcpus
        if not self._isa:
            self._isa, self._hz = await _processor(vcpus.host)
        events = SCHED_MIN | HVM_ENTRY_EXIT | PV_ENTRY
        tracer = XenTracer(vcpus.host, vcpus.ledger, vcpus.folder, events)
        await tracer.begin()
        self._tracer = tracer

    async def end(self) -> Exits:
        """Stop recording, and return what was recorded.

        Raises:
            NoTracing: It cannot be read.
        """
        tracer, self._tracer = self._tracer, None
        if tracer is None:
            raise NoTracing("nothing was being recorded")
        found = await tracer.end_with(crossings)
        return exits_of(found, self._vcpus.ids, self._isa, self._hz)

    async def abandon(self) -> None:
        """Stop recording, and forget what was recorded."""
        tracer, self._tracer = self._tracer, None
        if tracer is not None:
            await tracer.abandon()


async def _processor(host: Host) -> tuple[str, float]:
    """Return a host's architecture, and the frequency of its cycle counter as Xen has it."""
    information = await host.read("/proc/cpuinfo")
    isa = next((isa for vendor, isa in _VENDORS.items() if vendor in information), "")
    if not isa:
        raise NoTracing("the host's processor is neither AMD's nor Intel's")
    try:
        shown = (await host.run(["xl", "info"], timeout_s=_ASKED_S)).stdout.decode()
    except InputError as error:
        raise NoTracing("xl, which shows the counter's frequency, is not installed") from error
    hz = counter_hz(shown)
    if not hz > 0:
        raise NoTracing("`xl info` does not show the counter's frequency (cpu_mhz)")
    return isa, hz


def counter_hz(information: str) -> float:
    """Return the frequency of the cycle counter from the output of ``xl info``; 0: not shown."""
    found = re.search(r"^cpu_mhz\s*:\s*(\d+(?:\.\d+)?)\s*$", information, re.MULTILINE)
    return float(found[1]) * 1e6 if found else 0.0


def exits_of(
    found: Iterable[RunstateChange | LostRecords | Crossing],
    vcpus: Sequence[int],
    isa: str,
    hz: float,
) -> Exits:
    """Count the exits of some vCPUs, and their run delay, which is not part of any exit.

    Args:
        found: All records; those of each CPU in order.
        vcpus: Their numbers.
        isa: The processor's architecture.
        hz: Frequency of its cycle counter.
    """
    running: dict[int, int] = {}
    left: dict[int, tuple[int, int]] = {}
    ready: dict[int, int] = {}
    blocked: dict[int, int] = {}
    idle = _HLT[isa], 0
    delay = waited = 0
    counts: dict[tuple[int, str, int], tuple[int, int]] = {}
    lost = 0

    def count(vcpu: int, kind: str, code: int, ticks: int) -> None:
        had, took = counts.get((vcpu, kind, code), (0, 0))
        counts[vcpu, kind, code] = had + 1, took + max(0, ticks)

    timed = sorted(_with_times(found), key=lambda one: one[0])
    for _, one in timed:
        if isinstance(one, LostRecords):
            lost += one.records
            running.pop(one.cpu, None)
            ready.clear()
            blocked.clear()
        elif isinstance(one, RunstateChange):
            changed = vcpu_id(one.domain, one.vcpu)
            if one.now == Runstate.RUNNING:
                running[one.cpu] = changed
            if changed in ready:
                late = max(0, one.ticks - ready.pop(changed))
                delay += late
                if changed in left:
                    # A vCPU is descheduled within an exit; its wait is not work of Xen.
                    code, since = left[changed]
                    left[changed] = code, since + late
            waited += max(0, one.ticks - blocked.pop(changed, one.ticks))
            if changed in vcpus and one.now == Runstate.RUNNABLE:
                ready[changed] = one.ticks
            elif one.now == Runstate.BLOCKED and left.get(changed, idle)[0] != idle[0]:
                blocked[changed] = one.ticks
        elif (vcpu := running.get(one.cpu)) in vcpus and vcpu is not None:
            if one.kind == Way.PV:
                count(vcpu, PV, one.code, 0)
            elif one.kind == Way.EXIT:
                left[vcpu] = one.code, one.ticks
            elif vcpu in left:
                code, since = left.pop(vcpu)
                count(vcpu, isa, code, one.ticks - since)
    times = [ticks for ticks, _ in timed]
    return Exits(
        tuple(ExitCount(*key, count, ticks / hz) for key, (count, ticks) in sorted(counts.items())),
        (times[-1] - times[0]) / hz if times else 0.0,
        lost,
        delay / hz,
        waited / hz,
    )


def _with_times(
    found: Iterable[RunstateChange | LostRecords | Crossing],
) -> Iterable[tuple[int, RunstateChange | LostRecords | Crossing]]:
    """Yield records with their time; a loss has that of the record before it on its CPU."""
    at: dict[int, int] = {}
    for one in found:
        if not isinstance(one, LostRecords):
            at[one.cpu] = one.ticks
            yield one.ticks, one
        elif one.cpu in at:
            yield at[one.cpu], one
