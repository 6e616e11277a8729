"""Kernel stacks of the threads on some CPUs, with interrupts and softirqs by name.

An instance of the kernel's tracer, with its option ``stacktrace``, writes a stack after each event.
An event inside an interrupt shows what was interrupted: this is how ``rtla timerlat`` finds what
blocked a thread. The kernel resolves the symbols, so its text is read, not its pages. Source: the
kernel's Documentation/trace/ftrace.rst; the format of the lines is in kernel/trace/trace_output.c.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.events.stacks import Sight
from tare.hosts.contract import Host
from tare.hosts.ledger.ledger import Ledger
from tare.hosts.trace.drain import Drain
from tare.hosts.trace.recorder import cpu_mask
from tare.hosts.trace.tracefs import NoTracing, traced

if TYPE_CHECKING:
    import numpy.typing as npt

EVENTS: Mapping[str, str] = {
    # The stack is that of the thread that leaves the CPU.
    "sched/sched_switch": "prev_pid != 0",
    # In all other events, the stack is that of the interrupted thread; an idle CPU delays no
    # thread.
    "irq_vectors/local_timer_entry": "common_pid != 0",
    "irq_vectors/reschedule_entry": "common_pid != 0",
    "irq_vectors/call_function_entry": "common_pid != 0",
    "irq_vectors/call_function_single_entry": "common_pid != 0",
    "irq_vectors/irq_work_entry": "common_pid != 0",
    "irq/irq_handler_entry": "common_pid != 0",
    "irq/softirq_entry": "common_pid != 0",
    "csd/csd_function_entry": "common_pid != 0",
}
"""The recorded events with their filters; a kernel may lack some."""
NEEDED = "sched/sched_switch"
BUFFER_KIB = 4096
"""The buffer size per watched CPU: some 30,000 stacks."""
LOOK_EVERY_S = 5.0
MOST_STACKS = 500_000
MOST_FRAMES = 16
_READ_S = 120.0
_MARKS, _TIMES = 200, 10
"""So few marks take less than a time slice, so some of the repetitions are undisturbed."""
_MARK = (
    f"for i in {' '.join(map(str, range(_TIMES)))}; do "
    f'dd if=/dev/zero of="$1" bs=1 count={_MARKS}; done'
)
_LINE = re.compile(
    r" *(?P<comm>\S.{0,63}?)-(?P<thread>\d{1,10}) +\[(?P<cpu>\d{1,6})\] +(?:\S{1,12} +)?"
    r"(?P<seconds>\d{1,12})\.(?P<micros>\d{6}): (?:(?P<event>[a-z_0-9]{1,64}): ?(?P<rest>.*)|"
    r"<stack trace>)"
)
_FRAME, _LONGEST_NAME = " => ", 200
_LOST = re.compile(r"CPU:\d+ \[LOST (?P<count>\d{1,18}) EVENTS\]")
_OF_TRACER = re.compile(r"trace_event_|__traceiter_|__bpf_trace_|ftrace_|event_triggers_")
_COPIED = re.compile(rb"bytes.* copied, ([0-9.e+-]+) s")
_NAMES: Mapping[str, str] = {
    "local_timer_entry": "timer interrupt",
    "reschedule_entry": "reschedule interrupt",
    "call_function_entry": "function call interrupt",
    "call_function_single_entry": "function call interrupt",
    "irq_work_entry": "irq work interrupt",
}
_ARGUMENTS = {
    "sched_switch": (re.compile(r"==> next_comm=(.{0,64}?) next_pid="), "switch to {}"),
    "irq_handler_entry": (re.compile(r"name=(.{1,64})$"), "interrupt {}"),
    "softirq_entry": (re.compile(r"\[action=(\w{1,32})\]"), "softirq {}"),
    "csd_function_entry": (re.compile(r"func=(\S{1,200}?),? "), "function call {}"),
}


@dataclass(frozen=True)
class Stack:
    """One recorded event with its stack; the time is the kernel's CLOCK_MONOTONIC_RAW."""

    time_ns: int
    cpu: int
    thread: int
    sight: Sight


@dataclass
class Stacks:
    """Recorded stacks, with each distinct sight once.

    Args:
        rows: Time, CPU, thread, and the index of the sight.
        sights: The distinct sights.
        lost: The number of events that found no room.
    """

    rows: list[tuple[int, int, int, int]] = field(default_factory=list)
    sights: dict[Sight, int] = field(default_factory=dict)
    lost: int = 0

    def take(self, text: str) -> None:
        """Add the stacks in the kernel's text."""
        found, lost = parse_stacks(text)
        self.lost += lost + max(0, len(self.rows) + len(found) - MOST_STACKS)
        for each in found[: MOST_STACKS - len(self.rows)]:
            place = self.sights.setdefault(each.sight, len(self.sights))
            self.rows.append((each.time_ns, each.cpu, each.thread, place))

    @property
    def span_s(self) -> float:
        """The time from the first stack to the last one."""
        times = [row[0] for row in self.rows]
        return (max(times) - min(times)) * 1e-9 if times else 0.0

    @property
    def facts(self) -> dict[str, Any]:
        """The distinct sights as JSON, with each function's name once."""
        symbols: dict[str, int] = {}
        sights = [
            {
                "what": each.what,
                "comm": each.comm,
                "frames": [symbols.setdefault(frame, len(symbols)) for frame in each.frames],
            }
            for each in self.sights
        ]
        return {"symbols": list(symbols), "sights": sights}

    @property
    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """The series; see :mod:`tare.events.stacks`."""
        # Imported here, because most commands record no stacks.
        import numpy as np

        values = list(zip(*sorted(self.rows), strict=True)) or [()] * 4
        names = (("time_ns", "u8"), ("cpu", "u2"), ("thread", "u4"), ("sight", "u4"))
        return {
            name: np.array(column, dtype=kind)
            for (name, kind), column in zip(names, values, strict=True)
        }


def parse_stacks(text: str) -> tuple[list[Stack], int]:
    """Parse the text of ``trace`` or ``trace_pipe``: events, each followed by its stack.

    Lines of another form are left out, such as comments and a torn end.

    Returns:
        The stacks, and the number of events for which the kernel had no room.
    """
    found: list[Stack] = []
    events: dict[str, re.Match[str]] = {}
    lost, head = 0, None
    frames: list[str] = []

    def end() -> None:
        if head is not None:
            found.append(_stack(head, events.pop(head["cpu"], None), frames))
        frames.clear()

    for line in text.splitlines():
        # Most lines are frames, for which a regular expression would be slow.
        if line.startswith(_FRAME):
            frames.append(line[len(_FRAME) :][:_LONGEST_NAME])
            continue
        end()
        head = None
        if gone := _LOST.fullmatch(line):
            lost += int(gone["count"])
        elif read := _LINE.fullmatch(line):
            if read["event"] is None:
                head = read
            else:
                events[read["cpu"]] = read
    end()
    return found, lost


def _stack(head: re.Match[str], event: re.Match[str] | None, frames: Sequence[str]) -> Stack:
    # If the buffer had no room for an event, its stack follows another event.
    mine = event is not None and event["thread"] == head["thread"]
    own = [frame for frame in frames if not _OF_TRACER.match(frame)]
    sight = Sight(
        _named(event["event"], event["rest"]) if event is not None and mine else "",
        head["comm"],
        tuple(own[:MOST_FRAMES]),
    )
    time_ns = int(head["seconds"]) * 10**9 + int(head["micros"]) * 1_000
    return Stack(time_ns, int(head["cpu"]), int(head["thread"]), sight)


def _named(event: str, rest: str) -> str:
    """Return an event in words, with its interrupt, softirq or thread by name."""
    if event in _ARGUMENTS:
        pattern, words = _ARGUMENTS[event]
        if argument := pattern.search(f"{rest} " if "csd" in event else rest):
            return words.format(argument[1])
    return _NAMES.get(event, event.removesuffix("_entry").replace("_", " "))


@asynccontextmanager
async def stack_recorder(
    host: Host, ledger: Ledger, *, looks: bool = True
) -> AsyncIterator[StackRecorder]:
    """Create a recorder of kernel stacks, and remove all its traces at the end.

    Args:
        host: The host.
        ledger: Records everything that is created there.
        looks: Whether to empty the buffer during the recording; otherwise events that find it full
            are lost.

    Raises:
        NoTracing: The host cannot record stacks; the text states the reason.
    """
    async with traced(host, ledger) as instance:
        if not await host.exists(instance / "options" / "stacktrace"):
            raise NoTracing("this kernel was built without stacks (CONFIG_STACKTRACE)")
        events = [each for each in EVENTS if await host.exists(instance / "events" / each)]
        if NEEDED not in events:
            raise NoTracing(f"there is no event {NEEDED}")
        yield StackRecorder(host, instance, tuple(events), looks=looks)


class StackRecorder:
    """A recorder of kernel stacks on chosen CPUs; created by :func:`stack_recorder`."""

    def __init__(self, host: Host, instance: Path, events: tuple[str, ...], *, looks: bool) -> None:
        self._host = host
        self._instance = instance
        self._events = events
        self._looks = looks
        self._cpus: tuple[int, ...] = ()
        self._taken = Stacks()
        self._drain = Drain(self._empty_full)

    async def cost_s(self) -> float | None:
        """Return the seconds that one stack costs, from marks with and without a stack.

        The result is None if the host cannot measure it.
        """
        trigger = self._instance / "events/ftrace/print/trigger"
        marking = ["sh", "-c", _MARK, "sh", str(self._instance / "trace_marker")]
        best: list[float] = []
        try:
            for word in ("", "stacktrace"):
                if word:
                    await self._host.write(trigger, word.encode())
                done = await self._host.run(marking, timeout_s=_READ_S, env={"LC_ALL": "C"})
                took = [float(found) for found in _COPIED.findall(done.stderr)]
                best.append(min(took) / _MARKS)
            await self._host.write(trigger, b"!stacktrace")
        except (OSError, ValueError):
            return None
        return max(0.0, best[1] - best[0])

    async def begin(self, cpus: Sequence[int]) -> None:
        """Start recording on some CPUs.

        Raises:
            NoTracing: The kernel refuses.
        """
        self._taken, self._cpus = Stacks(), tuple(sorted(cpus))
        try:
            await self._write("tracing_on", "0")
            await self._write("trace", "")
            await self._write("trace_clock", "mono_raw")
            await self._write("options/overwrite", "0")
            await self._write("options/stacktrace", "1")
            await self._write("buffer_size_kb", "16")
            for cpu in self._cpus:
                await self._write(f"per_cpu/cpu{cpu}/buffer_size_kb", str(BUFFER_KIB))
            await self._write("tracing_cpumask", cpu_mask(self._cpus))
            for event in self._events:
                await self._write(f"events/{event}/filter", EVENTS[event])
                await self._write(f"events/{event}/enable", "1")
            await self._write("tracing_on", "1")
        except OSError as error:
            await self.abandon()
            raise NoTracing(f"the kernel's tracer cannot be set up for stacks: {error}") from error
        if self._looks:
            self._drain.start(LOOK_EVERY_S)

    async def stop(self) -> None:
        """Stop recording; :meth:`end` returns the recorded stacks."""
        try:
            await self._write("tracing_on", "0")
        finally:
            await self._drain.end()
        await self._write("events/enable", "0")

    async def end(self) -> Stacks:
        """Stop recording if it was not stopped, and return the recorded stacks."""
        await self.stop()
        for cpu in self._cpus:
            await self._read(cpu)
            # Stops of the writer are shown in the text only once another event follows.
            self._taken.lost += await self._stat(cpu, "dropped events")
        return self._taken

    async def abandon(self) -> None:
        """Stop recording, and discard the recorded stacks."""
        with contextlib.suppress(OSError):
            await self.stop()

    async def _empty_full(self) -> None:
        for cpu in self._cpus:
            if await self._stat(cpu, "bytes") > BUFFER_KIB * 1024 // 2:
                await self._read(cpu)

    async def _read(self, cpu: int) -> None:
        # At the end, the kernel returns EAGAIN, which dd reports as an error.
        pipe = self._instance / f"per_cpu/cpu{cpu}/trace_pipe"
        argv = ["dd", f"if={pipe}", "bs=65536", "iflag=nonblock", "status=none"]
        done = await self._host.run(argv, timeout_s=_READ_S)
        await asyncio.to_thread(self._taken.take, done.stdout.decode(errors="replace"))

    async def _stat(self, cpu: int, name: str) -> int:
        stats = (await self._host.read(self._instance / f"per_cpu/cpu{cpu}/stats")).decode()
        found = re.search(rf"^{name}: (\d+)$", stats, re.MULTILINE)
        return int(found[1]) if found else 0

    async def _write(self, control: str, value: str) -> None:
        await self._host.write(self._instance / control, f"{value}\n".encode())
