"""The time during which a VM's processors waited to run: *CPU Wait Time Per Dispatch*.

Hyper-V has two counters for each virtual processor: nanoseconds and dispatches (a counter of the
type PERF_AVERAGE_BULK with its base). The figure is the growth of the first divided by the growth
of the second: an average, which does not show individual waits. The counters are read before a cell
and after it, by their WMI class, whose names are the same in every language of Windows. Nothing is
interpolated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tare.events.hypervisor import HypervisorFigure, HypervisorFigures
from tare.platforms.hyperv.command import Cmdlet, PsObject, chosen, cmdlet

CLASS = "Win32_PerfRawData_HvStats_HyperVHypervisorVirtualProcessor"
WAITED, DISPATCHED = "CPUWaitTimePerDispatch", "CPUWaitTimePerDispatch_Base"
SOURCE = "Hyper-V's CPU Wait Time Per Dispatch: a mean over dispatches, never a maximum"
MOST = 1 << 32
"""The size of the dispatch counter: it has 32 bits (PERF_AVERAGE_BASE), and wraps around."""
_VCPU = re.compile(r"^(.*):Hv VP (\d+)$")


@dataclass(frozen=True)
class Reading:
    """Both counters of a VM's processors at one time.

    Args:
        asked: The time of the request (s, Unix time, this computer's clock).
        answered: The time of the answer, by the same clock; the counters were read between the two.
        counters: By vCPU: the nanoseconds waited and the number of dispatches since the VM's start.
    """

    asked: float
    answered: float
    counters: Mapping[int, tuple[int, int]]


def reading(name: str) -> tuple[Cmdlet, ...]:
    """Return the pipeline that requests the counters of the VM with a name."""
    return (
        cmdlet("Get-CimInstance", ClassName=CLASS),
        cmdlet("Where-Object", Property="Name", Like=True, Value=f"{name}:*"),
        chosen("Name", WAITED, DISPATCHED),
    )


def counters_of(name: str, found: Sequence[PsObject]) -> dict[int, tuple[int, int]]:
    """Return the counters of each of a VM's processors; incomplete ones are left out."""
    counters: dict[int, tuple[int, int]] = {}
    for each in found:
        instance = _VCPU.match(each.text("Name"))
        waited, dispatched = each.number(WAITED), each.number(DISPATCHED)
        if instance is None or instance[1] != name or waited is None or dispatched is None:
            continue
        counters[int(instance[2])] = (waited, dispatched)
    return counters


def waits(readings: Sequence[Reading], begun: float, ended: float) -> HypervisorFigures | None:
    """Return how long each vCPU waited per dispatch, from just before a period to just after it.

    Args:
        readings: The readings, oldest first.
        begun: The period's start (s, Unix time).
        ended: The period's end.

    Returns:
        None if no reading is before the period, or none is after it.
    """
    before = [each for each in readings if each.answered <= begun]
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
    resolution_s = round(last.answered - first.asked, 3)
    return HypervisorFigures(SOURCE, resolution_s, "vCPU", (figure,))
