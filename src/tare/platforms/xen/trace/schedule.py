"""The series ``host-sched`` from Xen's trace: its vCPUs take the place of threads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tare.events.host_schedule import IDLE, HostEvent, SwitchReason
from tare.hosts.trace.recorder import Row, as_columns
from tare.platforms.xen.trace.records import IDLE_DOMAIN, LostRecords, Runstate, RunstateChange

if TYPE_CHECKING:
    import numpy.typing as npt

_MOST_VCPUS = 1 << 16
_AGAIN_NS = 1_000_000
"""A running vCPU is recorded once in this time: Xen looks up to 10,000 times a second."""
DOM0 = 0


def vcpu_id(domain: int, vcpu: int) -> int:
    """Return the number by which the series calls a vCPU; Xen's idle vCPUs are IDLE."""
    return IDLE if domain == IDLE_DOMAIN else domain * _MOST_VCPUS + vcpu + 1


def domain_of(number: int) -> tuple[int, int]:
    """Return the domain, and the vCPU's number in it, that the series calls ``number``."""
    return divmod(number - 1, _MOST_VCPUS)


def vcpu_name(number: int) -> str:
    """Return the name of a vCPU that is not a machine's: ``dom0 (vCPU 0)``, ``domain 3 …``."""
    domain, vcpu = domain_of(number)
    return f"{'dom0' if domain == DOM0 else f'domain {domain}'} (vCPU {vcpu})"


@dataclass(frozen=True)
class XenSchedule:
    """The decisions of Xen's scheduler.

    Args:
        columns: The series, as :mod:`tare.events.host_schedule` describes it.
        lost: Records that found a buffer full.
        vcpus: All vCPUs that it names.
    """

    columns: Mapping[str, npt.NDArray[Any]]
    lost: int
    vcpus: frozenset[int]


@dataclass
class _Cpu:
    """The last known state of one CPU."""

    current: int | None = None
    left: tuple[int, SwitchReason, int] | None = None
    """The vCPU that left it last, how and when, while no successor is known."""
    recorded_ns: int = 0
    """When the last row of it was."""


@dataclass
class _Reader:
    hz: float
    origin: int
    capped: bool
    rows: list[Row] = field(default_factory=list)
    vcpus: set[int] = field(default_factory=set)
    cpus: dict[int, _Cpu] = field(default_factory=dict)
    last_on: dict[int, int] = field(default_factory=dict)

    def take(self, change: RunstateChange) -> None:
        who = vcpu_id(change.domain, change.vcpu)
        if who != IDLE:
            self.vcpus.add(who)
        time_ns = round((change.ticks - self.origin) * 1e9 / self.hz)
        cpu = self.cpus.setdefault(change.cpu, _Cpu())
        if change.now == Runstate.RUNNING:
            self._comes(cpu, time_ns, change, who)
        elif change.was == Runstate.RUNNING:
            cpu.left = who, self._leaving_reason(change.now), time_ns
        elif change.now == Runstate.RUNNABLE and who != IDLE:
            onto = self.last_on.get(who, change.cpu)
            self.rows.append((time_ns, change.cpu, HostEvent.WAKEUP, who, onto, 0))

    def _comes(self, cpu: _Cpu, time_ns: int, change: RunstateChange, who: int) -> None:
        runs_on = change.was == Runstate.RUNNING
        if cpu.left is not None and not runs_on:
            before, left, since_ns = cpu.left
            # The leaving one is first: what is between the two is Xen's own switching.
            self.rows.append((since_ns, change.cpu, HostEvent.SWITCH, who, before, left))
        elif cpu.current != who:
            # The vCPU before is not known: this CPU has no records yet, or some were lost.
            before = IDLE if cpu.current is None else cpu.current
            self.rows.append(
                (time_ns, change.cpu, HostEvent.SWITCH, who, before, SwitchReason.READY)
            )
        elif time_ns < cpu.recorded_ns + _AGAIN_NS:
            return
        else:
            self.rows.append((time_ns, change.cpu, HostEvent.RUNS_ON, who, who, 0))
        cpu.current, cpu.left, cpu.recorded_ns = who, None, time_ns
        self.last_on[who] = change.cpu

    def _leaving_reason(self, now: Runstate) -> SwitchReason:
        if now == Runstate.RUNNABLE:
            return SwitchReason.READY
        if now == Runstate.BLOCKED:
            return SwitchReason.WAITING
        # A machine that has used up its cap is parked until the next accounting period
        # (xen/common/sched/credit.c); otherwise the toolstack paused it.
        return SwitchReason.READY if self.capped else SwitchReason.STOPPED

    def forget(self, cpu: int) -> None:
        """Know nothing more of a CPU: records of it were lost."""
        self.cpus.pop(cpu, None)


def schedule(
    recorded: Iterable[RunstateChange | LostRecords],
    hz: float,
    origin: int,
    *,
    capped: bool = False,
) -> XenSchedule:
    """Return the series of the records of :func:`tare.platforms.xen.trace.records.records`.

    Times are the cycle counter's since ``origin``, in nanoseconds: whatever else is to be compared
    with them has to be on that clock.

    Args:
        recorded: The records, those of each CPU in order.
        hz: Frequency of the counter.
        origin: The counter where the series' time is 0; no record is older.
        capped: Whether a limit can take the measuring machine's vCPUs off line.
    """
    reader, lost = _Reader(hz, origin, capped), 0
    changes: list[tuple[int, RunstateChange | LostRecords]] = []
    at: dict[int, int] = {}
    for each in recorded:
        if isinstance(each, LostRecords):
            lost += each.records
            changes.append((at.get(each.cpu, origin), each))
        elif each.ticks >= origin:
            at[each.cpu] = each.ticks
            changes.append((each.ticks, each))
    # Stable: what a CPU noted at one moment stays in its order.
    for _, each in sorted(changes, key=lambda one: one[0]):
        if isinstance(each, LostRecords):
            reader.forget(each.cpu)
        else:
            reader.take(each)
    return XenSchedule(as_columns(reader.rows), lost, frozenset(reader.vcpus))
