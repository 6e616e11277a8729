"""How long a VM's processors waited to run: Hyper-V's *CPU Wait Time Per Dispatch*.

It is kept as two counters for each virtual processor, nanoseconds and dispatches (a counter of the
type PERF_AVERAGE_BULK with its base), and means what the one grew by for each one of the other: an
average, of which no single wait can be told. They are read by their class of WMI, whose names are
the same whatever language Windows speaks, before a cell and after it; nothing is interpolated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tare.events.hypervisor import HypervisorFigure, HypervisorFigures
from tare.platforms.hyperv.command import Cmdlet, Told, chosen, cmdlet

CLASS = "Win32_PerfRawData_HvStats_HyperVHypervisorVirtualProcessor"
WAITED, DISPATCHED = "CPUWaitTimePerDispatch", "CPUWaitTimePerDispatch_Base"
SOURCE = "Hyper-V's CPU Wait Time Per Dispatch: a mean over dispatches, never a maximum"
MOST = 1 << 32
"""Dispatches are counted in 32 bits (PERF_AVERAGE_BASE), and begin anew."""
_VCPU = re.compile(r"^(.*):Hv VP (\d+)$")


@dataclass(frozen=True)
class Reading:
    """Both counters of a VM's processors at one time.

    Args:
        asked: When they were asked for (s, Unix time, this computer's clock).
        told: When they were told; they were read between the two.
        counters: vCPU to nanoseconds waited and times dispatched, since the VM's start.
    """

    asked: float
    told: float
    counters: Mapping[int, tuple[int, int]]


def reading(name: str) -> tuple[Cmdlet, ...]:
    """Return what asks for the counters of the VM of a name."""
    return (
        cmdlet("Get-CimInstance", ClassName=CLASS),
        cmdlet("Where-Object", Property="Name", Like=True, Value=f"{name}:*"),
        chosen("Name", WAITED, DISPATCHED),
    )


def counters_of(name: str, told: Sequence[Told]) -> dict[int, tuple[int, int]]:
    """Return the counters of each of a VM's processors; of what is not told whole, none."""
    counters: dict[int, tuple[int, int]] = {}
    for each in told:
        found = _VCPU.match(each.text("Name"))
        waited, dispatched = each.number(WAITED), each.number(DISPATCHED)
        if found is None or found[1] != name or waited is None or dispatched is None:
            continue
        counters[int(found[2])] = (waited, dispatched)
    return counters


def waits(readings: Sequence[Reading], begun: float, ended: float) -> HypervisorFigures | None:
    """Return how long each processor waited per dispatch, from just before a while to just after.

    Args:
        readings: In the order of time.
        begun: The while's begin (s, Unix time).
        ended: Its end.

    Returns:
        None where there is no reading on either side of it.
    """
    before = [each for each in readings if each.told <= begun]
    after = [each for each in readings if each.asked >= ended]
    if not before or not after:
        return None
    first, last = before[-1], after[0]
    waited_s: list[float] = []
    counts: list[float] = []
    vcpus: list[float] = []
    for vcpu in sorted(first.counters.keys() & last.counters.keys()):
        waited = last.counters[vcpu][0] - first.counters[vcpu][0]
        dispatched = (last.counters[vcpu][1] - first.counters[vcpu][1]) % MOST
        if waited >= 0 and dispatched:
            waited_s.append(waited * 1e-9 / dispatched)
            counts.append(dispatched)
            vcpus.append(vcpu)
    if not vcpus:
        return None
    figure = HypervisorFigure(
        "wait-per-dispatch",
        "how long a vCPU waited for a CPU each time that it was dispatched",
        "s",
        tuple(waited_s),
        tuple(vcpus),
        tuple(counts),
    )
    resolution_s = round(last.told - first.asked, 3)
    return HypervisorFigures(SOURCE, resolution_s, "vCPU", (figure,))
