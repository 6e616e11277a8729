"""A recorder of the host kernel's scheduling on some CPUs during a measurement, in memory.

The kernel's tracer writes scheduling and interrupt events of the chosen CPUs into its buffer. The
buffer is read after the measurement and, in a long one, whenever it is half full.
``benchmarks/trace_cost.py`` measures the cost for the subject.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.events.host_schedule import HostEvent, SwitchReason, Vector
from tare.hosts.contract import Host
from tare.hosts.ledger.ledger import Ledger
from tare.hosts.trace.drain import Drain
from tare.hosts.trace.pages import (
    Format,
    local_pages,
    page_events,
    parse_data_offset,
    parse_format,
    remote_pages,
)
from tare.hosts.trace.tracefs import NoTracing, traced

if TYPE_CHECKING:
    import numpy.typing as npt

Row = tuple[int, int, int, int, int, int]
"""Time, CPU, kind, who, other, and how the thread left; see :mod:`tare.events.host_schedule`."""


def as_columns(rows: Sequence[Row]) -> dict[str, npt.NDArray[Any]]:
    """Return rows as columns in order of time; see :mod:`tare.events.host_schedule`."""
    # Imported here, because most commands record no trace.
    import numpy as np

    ordered = sorted(rows, key=lambda row: row[0])
    names = ("time_ns", "cpu", "kind", "who", "other", "runnable")
    types = ("u8", "u2", "u1", "u4", "u4", "u1")
    values = list(zip(*ordered, strict=True)) or [()] * len(names)
    return {
        name: np.array(column, dtype=kind)
        for name, kind, column in zip(names, types, values, strict=True)
    }


__all__ = ["HostRecorder", "NoTracing", "Recording", "host_recorder"]

BUFFER_KIB = 8192
"""The buffer size per used CPU. A busy CPU at 1000 Hz writes about 150 KiB/s."""
WAKES_KIB = 256
MOST_WOKEN = 60
"""The limit of threads in a filter; the kernel refuses filters of more than some hundred terms."""
LOOK_EVERY_S = 5.0
"""Interval at which a long recording checks whether the buffer is half full."""
_SLEEPS, _STOPPED = 0xFF, 0x04 | 0x08
"""Bits of ``prev_state`` (include/linux/sched.h, TASK_REPORT and TASK_REPORT_IDLE): a thread that
was merely preempted has none of them, one that a signal or a debugger stopped has T or t."""

_SWITCH, _WAKEUP = "sched/sched_switch", "sched/sched_wakeup"
_IRQ = ("irq/irq_handler_entry", "irq/irq_handler_exit", "irq/softirq_entry", "irq/softirq_exit")
_QUOTA = "timer/hrtimer_expire_entry"
_QUOTA_FILTER = "function.function == sched_cfs_period_timer"
"""The kernel's timer that renews a group's quota (kernel/sched/fair.c)."""
_VECTORS = {
    f"irq_vectors/{vector.name.lower()}_{end}": (vector, kind)
    for vector in Vector
    for end, kind in (("entry", HostEvent.VECTOR_ENTRY), ("exit", HostEvent.VECTOR_EXIT))
}


@dataclass(frozen=True)
class Recording:
    """A finished recording.

    Args:
        cpus: The CPUs that were traced.
        began_ns: The start of the recording (the host's CLOCK_MONOTONIC_RAW).
        ended_ns: The end of the recording, by the same clock.
        columns: The series as :mod:`tare.events.host_schedule` describes it.
        comms: Names of the threads that ran, by id.
        irqs: Names of the devices' interrupts, by number.
        lost: Number of events that found the buffer full.
    """

    cpus: tuple[int, ...]
    began_ns: int
    ended_ns: int
    columns: Mapping[str, npt.NDArray[Any]]
    comms: Mapping[int, str]
    irqs: Mapping[int, str]
    lost: int


@dataclass
class _Taken:
    """Rows and names, collected from pages."""

    rows: list[Row] = field(default_factory=list)
    comms: dict[int, str] = field(default_factory=dict)
    irqs: dict[int, str] = field(default_factory=dict)


_Take = Callable[[bytes, int, int, int, _Taken], None]


@asynccontextmanager
async def host_recorder(
    host: Host, ledger: Ledger, *, looks: bool = True
) -> AsyncIterator[HostRecorder]:
    """Create a recorder of the host's scheduler, and remove all its traces at the end.

    Args:
        host: The host.
        ledger: Records everything that is created there.
        looks: Whether to empty the buffer during the recording; otherwise events that find it full
            are lost.

    Raises:
        NoTracing: The host cannot be traced; the text states the reason.
    """
    async with traced(host, ledger) as instance, traced(host, ledger) as wakes:
        yield HostRecorder(host, instance, wakes, looks=looks)


class HostRecorder:
    """A recorder of scheduling and interrupts on chosen CPUs; created by :func:`host_recorder`.

    A thread may be woken from any CPU, and a quota's timer may be on any. A second instance
    therefore records the wake-ups of a few threads and these timers on all CPUs.
    """

    def __init__(self, host: Host, instance: Path, wakes: Path, *, looks: bool = True) -> None:
        self._host = host
        self._looks = looks
        self._instance = instance
        self._wakes = wakes
        self._online = host.topology().online
        self._takers: dict[int, _Take] = {}
        self._enabled: tuple[str, ...] = ()
        self._everywhere: tuple[str, ...] = (_WAKEUP,)
        self._data_offset = 16
        self._cpus: tuple[int, ...] = ()
        self._taken = _Taken()
        self._drain = Drain(self._empty_full)
        self._began_ns = 0

    async def begin(self, cpus: Sequence[int], threads: Sequence[int]) -> None:
        """Start recording.

        Args:
            cpus: The host CPUs to trace.
            threads: The subject's threads, whose wake-ups are recorded on all CPUs.

        Raises:
            NoTracing: The kernel refuses; the changes made so far have been undone.
        """
        try:
            if not self._takers:
                await self._learn()
            await self._prepare(tuple(sorted(set(cpus))), threads)
            for event in self._enabled:
                await self._write(f"events/{event}/enable", "1")
            for event in self._everywhere:
                await self._host.write(self._wakes / "events" / event / "enable", b"1\n")
            self._taken = _Taken()
            self._began_ns = self._now_ns()
            await self._write("tracing_on", "1")
            await self._host.write(self._wakes / "tracing_on", b"1\n")
        except (OSError, ValueError) as error:
            await self.abandon()
            raise NoTracing(f"the kernel's tracer cannot be set up: {error}") from error
        if self._looks:
            self._drain.start(LOOK_EVERY_S)

    async def end(self) -> Recording:
        """Stop recording, and return the recording."""
        await self._stop()
        ended_ns = self._now_ns()
        await self._read_all()
        lost = sum([await self._lost(self._instance, cpu) for cpu in self._cpus])
        lost += sum([await self._lost(self._wakes, cpu) for cpu in self._online])
        taken, self._taken = self._taken, _Taken()
        columns = as_columns(taken.rows)
        if not self._host.local and taken.rows:
            self._began_ns, ended_ns = int(columns["time_ns"][0]), int(columns["time_ns"][-1])
        return Recording(
            cpus=self._cpus,
            began_ns=self._began_ns,
            ended_ns=ended_ns,
            columns=columns,
            comms=taken.comms,
            irqs=taken.irqs,
            lost=lost,
        )

    async def abandon(self) -> None:
        """Stop recording, and discard the recorded events."""
        with contextlib.suppress(OSError):
            await self._stop()
        self._taken = _Taken()

    async def _stop(self) -> None:
        try:
            await self._write("tracing_on", "0")
        finally:
            await asyncio.gather(self._drain.end(), return_exceptions=True)
        for event in self._enabled:
            await self._write(f"events/{event}/enable", "0")
        await self._host.write(self._wakes / "tracing_on", b"0\n")
        for event in self._everywhere:
            await self._host.write(self._wakes / "events" / event / "enable", b"0\n")

    async def _write(self, control: str, value: str) -> None:
        await self._host.write(self._instance / control, f"{value}\n".encode())

    async def _learn(self) -> None:
        """Find out the available events and their layouts."""
        events = self._instance / "events"
        header = (await self._host.read(self._header_page())).decode()
        self._data_offset = parse_data_offset(header)
        enabled = []
        for event in (_SWITCH, _WAKEUP, *_IRQ, *_VECTORS):
            path = events / event / "format"
            if not await self._host.exists(path):
                if event in (_SWITCH, _WAKEUP):
                    raise ValueError(f"there is no event {event}")
                continue
            layout = parse_format((await self._host.read(path)).decode())
            self._takers[layout.id] = _taker(event, layout)
            if event != _WAKEUP:
                enabled.append(event)
        if await self._filters_quota():
            path = events / _QUOTA / "format"
            layout = parse_format((await self._host.read(path)).decode())
            self._takers[layout.id] = _taker(_QUOTA, layout)
            self._everywhere = (_WAKEUP, _QUOTA)
        self._enabled = tuple(enabled)

    async def _filters_quota(self) -> bool:
        """Return whether this timer can be recorded without all others, which are too many."""
        try:
            path = self._wakes / "events" / _QUOTA / "filter"
            await self._host.write(path, _QUOTA_FILTER.encode())
        except OSError:
            return False
        return True

    def _header_page(self) -> Path:
        # Instances have no copy of this file.
        return self._instance.parent.parent / "events" / "header_page"

    async def _prepare(self, cpus: tuple[int, ...], threads: Sequence[int]) -> None:
        for instance in (self._instance, self._wakes):
            await self._host.write(instance / "tracing_on", b"0\n")
            await self._host.write(instance / "trace", b"\n")
            await self._host.write(instance / "trace_clock", b"mono_raw\n")
            for option in ("overwrite", "record-cmd", "record-tgid"):
                with contextlib.suppress(OSError):
                    await self._host.write(instance / "options" / option, b"0\n")
        if cpus != self._cpus:
            # On a computer with many CPUs, unused ones must not cost memory.
            await self._write("buffer_size_kb", "16")
            for cpu in cpus:
                await self._write(f"per_cpu/cpu{cpu}/buffer_size_kb", str(BUFFER_KIB))
            await self._write("tracing_cpumask", cpu_mask(cpus))
            self._cpus = cpus
        await self._host.write(self._wakes / "buffer_size_kb", str(WAKES_KIB).encode())
        wanted = " || ".join(f"pid == {thread}" for thread in threads[:MOST_WOKEN])
        path = self._wakes / "events" / _WAKEUP / "filter"
        await self._host.write(path, (wanted or "pid == 0").encode())

    async def _empty_full(self) -> None:
        for cpu in self._cpus:
            if await self._stat(self._instance, cpu, "bytes") > BUFFER_KIB * 1024 // 2:
                await self._read(self._instance, cpu)
        for cpu in self._online:
            if await self._stat(self._wakes, cpu, "bytes") > WAKES_KIB * 1024 // 2:
                await self._read(self._wakes, cpu)

    async def _stat(self, instance: Path, cpu: int, name: str) -> int:
        text = (await self._host.read(instance / f"per_cpu/cpu{cpu}/stats")).decode()
        for line in text.splitlines():
            key, _, value = line.partition(": ")
            if key == name:
                return int(value)
        return 0

    async def _lost(self, instance: Path, cpu: int) -> int:
        dropped = await self._stat(instance, cpu, "dropped events")
        return dropped + await self._stat(instance, cpu, "overrun")

    async def _read_all(self) -> None:
        for cpu in self._cpus:
            await self._read(self._instance, cpu)
        for cpu in self._online:
            await self._read(self._wakes, cpu)

    async def _read(self, instance: Path, cpu: int) -> None:
        path = instance / f"per_cpu/cpu{cpu}/trace_pipe_raw"
        if self._host.local:
            await asyncio.to_thread(self._take_pages, local_pages(path), cpu)
        else:
            data = await remote_pages(self._host, path)
            await asyncio.to_thread(self._take_pages, data, cpu)

    def _take_pages(self, pages: Iterable[bytes], cpu: int) -> None:
        for page in pages:
            for time_ns, start, length in page_events(page, self._data_offset):
                if length < 2:
                    continue
                take = self._takers.get(page[start] | page[start + 1] << 8)
                if take is not None:
                    take(page, start, time_ns, cpu, self._taken)

    def _now_ns(self) -> int:
        """Return the host's clock; 0 on another host, because its events contain its time."""
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) if self._host.local else 0


def cpu_mask(cpus: Sequence[int]) -> str:
    """Return CPUs in the kernel's mask format: groups of 32 bits, the highest first."""
    mask = sum(1 << cpu for cpu in cpus)
    groups = [f"{mask >> shift & 0xFFFFFFFF:08x}" for shift in range(0, mask.bit_length() or 1, 32)]
    return ",".join(reversed(groups))


def switch_reason(prev_state: int) -> SwitchReason:
    """Return how a thread left its CPU, from ``sched_switch``'s field ``prev_state``."""
    if prev_state & _STOPPED:
        return SwitchReason.STOPPED
    return SwitchReason.WAITING if prev_state & _SLEEPS else SwitchReason.READY


def _taker(event: str, layout: Format) -> _Take:
    """Return a function that turns one record of ``event`` into a row."""
    fields = layout.fields
    running = fields["common_pid"]
    if event == _SWITCH:
        prev, state, after, prev_comm, comm = (
            fields[name]
            for name in ("prev_pid", "prev_state", "next_pid", "prev_comm", "next_comm")
        )

        def switch(page: bytes, start: int, time_ns: int, cpu: int, taken: _Taken) -> None:
            now, before = after.number(page, start), prev.number(page, start)
            for thread, name in ((now, comm), (before, prev_comm)):
                if thread not in taken.comms:
                    taken.comms[thread] = name.text(page, start)
            left = switch_reason(state.number(page, start))
            taken.rows.append((time_ns, cpu, HostEvent.SWITCH, now, before, left))

        return switch
    if event == "irq/irq_handler_entry":
        number, name = fields["irq"], fields["name"]

        def device(page: bytes, start: int, time_ns: int, cpu: int, taken: _Taken) -> None:
            irq = number.number(page, start)
            if irq not in taken.irqs:
                taken.irqs[irq] = name.located_text(page, start)
            now = running.number(page, start)
            taken.rows.append((time_ns, cpu, HostEvent.IRQ_ENTRY, irq, now, 0))

        return device
    if event in _VECTORS:
        vector, kind = _VECTORS[event]

        def interrupt(page: bytes, start: int, time_ns: int, cpu: int, taken: _Taken) -> None:
            taken.rows.append((time_ns, cpu, kind, vector, running.number(page, start), 0))

        return interrupt
    if event == _QUOTA:
        timer = fields["hrtimer"]

        def quota(page: bytes, start: int, time_ns: int, cpu: int, taken: _Taken) -> None:
            # The kernel aligns its structures to 64 bytes.
            mark = timer.number(page, start) >> 6 & 0xFFFFFFFF
            now = running.number(page, start)
            taken.rows.append((time_ns, cpu, HostEvent.QUOTA_PERIOD, mark, now, 0))

        return quota
    if event == _WAKEUP:
        woken, target = fields["pid"], fields["target_cpu"]

        def wakeup(page: bytes, start: int, time_ns: int, cpu: int, taken: _Taken) -> None:
            thread, onto = woken.number(page, start), target.number(page, start)
            taken.rows.append((time_ns, cpu, HostEvent.WAKEUP, thread, max(0, onto), 0))

        return wakeup
    column, what = {
        "irq/irq_handler_exit": ("irq", HostEvent.IRQ_EXIT),
        "irq/softirq_entry": ("vec", HostEvent.SOFTIRQ_ENTRY),
        "irq/softirq_exit": ("vec", HostEvent.SOFTIRQ_EXIT),
    }[event]
    who = fields[column]

    def other(page: bytes, start: int, time_ns: int, cpu: int, taken: _Taken) -> None:
        now = running.number(page, start)
        taken.rows.append((time_ns, cpu, what, who.number(page, start), now, 0))

    return other
