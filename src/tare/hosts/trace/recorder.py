"""Record what the host's kernel does on some CPUs while a subject measures: cheaply, in memory.

The kernel's own tracer writes scheduling and interrupt events into its buffer, of the chosen CPUs
only; the buffer is read when the measurement is over (and, in a long one, whenever it is half
full). What this costs the subject is measured by ``benchmarks/trace_cost.py``.
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

from tare.events.host_schedule import HostEvent, Left, Vector
from tare.hosts.contract import Host
from tare.hosts.ledger.ledger import Ledger
from tare.hosts.trace.page_files import far_pages, local_pages
from tare.hosts.trace.pages import Format, page_events, parse_data_offset, parse_format
from tare.hosts.trace.rows import Row, as_columns
from tare.hosts.trace.tracefs import NoTracing, traced

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["HostRecorder", "NoTracing", "Recording", "host_recorder"]

BUFFER_KIB = 8192
"""Per CPU in use. A busy CPU at 1000 Hz writes some 150 KiB a second."""
WAKES_KIB = 256
MOST_WOKEN = 60
"""The kernel refuses filters of more than some hundred terms."""
LOOK_EVERY_S = 5.0
"""How often a long recording looks whether the buffer is half full."""
_SLEEPS, _STOPPED = 0xFF, 0x04 | 0x08
"""Bits of ``prev_state`` (include/linux/sched.h, TASK_REPORT and TASK_REPORT_IDLE): a thread that
was merely preempted has none of them, one that a signal or a debugger stopped has T or t."""

_SWITCH, _WAKEUP = "sched/sched_switch", "sched/sched_wakeup"
_IRQ = ("irq/irq_handler_entry", "irq/irq_handler_exit", "irq/softirq_entry", "irq/softirq_exit")
_QUOTA = "timer/hrtimer_expire_entry"
_QUOTA_FILTER = "function.function == sched_cfs_period_timer"
"""The kernel's timer at which a group's quota is granted again (kernel/sched/fair.c)."""
_VECTORS = {
    f"irq_vectors/{vector.name.lower()}_{end}": (vector, kind)
    for vector in Vector
    for end, kind in (("entry", HostEvent.VECTOR_ENTRY), ("exit", HostEvent.VECTOR_EXIT))
}


@dataclass(frozen=True)
class Recording:
    """What was recorded.

    Args:
        cpus: The CPUs that were watched.
        began_ns: When recording began (the host's CLOCK_MONOTONIC_RAW).
        ended_ns: When it ended.
        columns: The series as :mod:`tare.events.host_schedule` describes it.
        comms: Names of the threads that ran, by id.
        irqs: Names of the devices' interrupts, by number.
        lost: Events that found the buffer full.
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
    """Rows and names, gathered from pages."""

    rows: list[Row] = field(default_factory=list)
    comms: dict[int, str] = field(default_factory=dict)
    irqs: dict[int, str] = field(default_factory=dict)


_Take = Callable[[bytes, int, int, int, _Taken], None]


@asynccontextmanager
async def host_recorder(
    host: Host, ledger: Ledger, *, looks: bool = True
) -> AsyncIterator[HostRecorder]:
    """Make a recorder of the host's scheduler, and leave nothing of it behind.

    Args:
        host: The host.
        ledger: Records what is made there.
        looks: Whether the buffer is emptied while it records; what finds it full is lost otherwise.

    Raises:
        NoTracing: The host cannot be traced; the text says why.
    """
    async with traced(host, ledger) as instance, traced(host, ledger) as wakes:
        yield HostRecorder(host, instance, wakes, looks=looks)


class HostRecorder:
    """Records scheduling and interrupts of chosen CPUs; made by :func:`host_recorder`.

    A thread may be woken from any CPU, and a quota's timer may be on any, so both are recorded on
    all of them, in a second instance: the wake-ups of a few threads, and these timers alone.
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
        self._drain: asyncio.Task[None] | None = None
        self._began_ns = 0

    async def begin(self, cpus: Sequence[int], threads: Sequence[int]) -> None:
        """Begin to record.

        Args:
            cpus: The host CPUs to watch.
            threads: The subject's threads, whose wake-ups are recorded too, wherever.

        Raises:
            NoTracing: The kernel refuses; what was begun has been undone.
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
            self._drain = asyncio.create_task(self._look())

    async def end(self) -> Recording:
        """Stop recording, and return what was recorded."""
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
        """Stop recording, and forget what was recorded."""
        with contextlib.suppress(OSError):
            await self._stop()
        self._taken = _Taken()

    async def _stop(self) -> None:
        drain, self._drain = self._drain, None
        await self._write("tracing_on", "0")
        if drain is not None:
            drain.cancel()
            await asyncio.gather(drain, return_exceptions=True)
        for event in self._enabled:
            await self._write(f"events/{event}/enable", "0")
        await self._host.write(self._wakes / "tracing_on", b"0\n")
        for event in self._everywhere:
            await self._host.write(self._wakes / "events" / event / "enable", b"0\n")

    async def _write(self, control: str, value: str) -> None:
        await self._host.write(self._instance / control, f"{value}\n".encode())

    async def _learn(self) -> None:
        """Find out which events there are and how they are laid out."""
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
        """Return whether this timer alone can be recorded; all others would be far too many."""
        try:
            path = self._wakes / "events" / _QUOTA / "filter"
            await self._host.write(path, _QUOTA_FILTER.encode())
        except OSError:
            return False
        return True

    def _header_page(self) -> Path:
        # Instances have no copy of it.
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
            # On a computer with many CPUs the idle ones must not cost memory.
            await self._write("buffer_size_kb", "16")
            for cpu in cpus:
                await self._write(f"per_cpu/cpu{cpu}/buffer_size_kb", str(BUFFER_KIB))
            await self._write("tracing_cpumask", cpu_mask(cpus))
            self._cpus = cpus
        await self._host.write(self._wakes / "buffer_size_kb", str(WAKES_KIB).encode())
        wanted = " || ".join(f"pid == {thread}" for thread in threads[:MOST_WOKEN])
        path = self._wakes / "events" / _WAKEUP / "filter"
        await self._host.write(path, (wanted or "pid == 0").encode())

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
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
            data = await far_pages(self._host, path)
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
        """Return the host's clock; 0 where only its events tell of it."""
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) if self._host.local else 0


def cpu_mask(cpus: Sequence[int]) -> str:
    """Return CPUs as the kernel's masks are written: 32 bits a group, the highest first."""
    mask = sum(1 << cpu for cpu in cpus)
    groups = [f"{mask >> shift & 0xFFFFFFFF:08x}" for shift in range(0, mask.bit_length() or 1, 32)]
    return ",".join(reversed(groups))


def how_left(prev_state: int) -> Left:
    """Return how a thread left its CPU, by the field of that name of ``sched_switch``."""
    if prev_state & _STOPPED:
        return Left.STOPPED
    return Left.WAITING if prev_state & _SLEEPS else Left.READY


def _taker(event: str, layout: Format) -> _Take:
    """Return what turns one record of ``event`` into a row."""
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
            left = how_left(state.number(page, start))
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
            # The kernel's structures lie at multiples of 64 bytes.
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
