"""Follow one thread through the series ``host-sched``: when, for how long and why it was held up.

The measuring thread is either on a CPU, where interrupts may delay it, or off its CPU. That CPU
then runs another thread, or is idle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tare.events.host_schedule import IDLE, HostEvent, SwitchReason, Vector

CauseKind = Literal[
    "preempted",
    "timer interrupt",
    "other interrupt",
    "host throttling",
    "wake-up",
    "idle though ready",
    "host's own steal",
    "platform",
    "stopped",
    "guest's own tick",
    "unexplained",
]


@dataclass(frozen=True, order=True)
class Cause:
    """The reason why time was lost.

    Args:
        kind: ``preempted``: another thread ran. ``timer interrupt`` and ``other interrupt``: the
            host's kernel handled one. ``host throttling``: a limit that was in force held the
            thread back. ``wake-up``: it had been woken, and its idle CPU took this long to resume.
            ``idle though ready``: its CPU was idle and no limit in force, so the host shows what
            happened but not why. ``host's own steal``: nothing happened on the host, and its own
            hypervisor had taken as much time. ``platform``: the thread itself waited, so the
            software that runs the machine was at work (if that in turn was kept from its CPU, the
            kind is ``preempted``). ``stopped``: a signal or a debugger stopped the thread, and
            nothing has continued it yet. ``guest's own tick``: nothing happened on the host, and
            the machine's own timer was due. ``unexplained``: none of these.
        who: The thread (role and name) or the interrupt that was the cause; may be empty.
    """

    kind: CauseKind
    who: str = ""

    @property
    def explains(self) -> bool:
        """Whether it shows why the time was lost, and not only that it was lost."""
        return self.kind not in ("unexplained", "idle though ready")

    @property
    def wanted_to_run(self) -> bool:
        """Whether the thread was ready to run meanwhile."""
        return self.kind not in ("platform", "stopped")

    def __str__(self) -> str:
        if self.kind == "preempted":
            return f"preempted by {self.who}"
        if self.kind == "platform":
            return "waited for its own platform"
        if self.kind == "stopped":
            return "stopped by a signal or a debugger"
        if self.kind == "wake-up":
            return "wake-up of an idle host CPU"
        if self.kind == "idle though ready":
            return "host CPU idle though it was ready"
        return f"{self.kind} ({self.who})" if self.who else self.kind


@dataclass(frozen=True)
class Episode:
    """One period in which the host kept the thread from running, on the host's clock in ns.

    Args:
        begin_ns: The time from which it is certain.
        end_ns: The time until which it is certain.
        cause: The cause.
        before_ns: How much earlier it may have begun, if the kernel did not record a switch.
        after_ns: How much later it may have ended, for the same reason.
    """

    begin_ns: int
    end_ns: int
    cause: Cause
    before_ns: int = 0
    after_ns: int = 0

    @property
    def length_ns(self) -> int:
        """The certain length, in ns."""
        return self.end_ns - self.begin_ns

    @property
    def unseen_ns(self) -> int:
        """How much longer it may have been, in ns."""
        return self.before_ns + self.after_ns


@dataclass(frozen=True)
class Track:
    """The periods in which the host kept one thread from running.

    Args:
        thread: The thread's id.
        episodes: The periods in which it was kept from running, in order.
        running_ns: The time for which it had a CPU, interrupts included.
        missed: The number of switches that the kernel did not record, as the next event shows.
    """

    thread: int
    episodes: tuple[Episode, ...]
    running_ns: int
    missed: int = 0


_TIMER_SOFTIRQS = {1, 7, 8, 9}
_SOFTIRQS = ("hi", "timer", "net-tx", "net-rx", "block", "irq-poll", "tasklet", "sched", "hrtimer")
_ENTRIES = {HostEvent.IRQ_ENTRY, HostEvent.SOFTIRQ_ENTRY, HostEvent.VECTOR_ENTRY}
_EXITS = {HostEvent.IRQ_EXIT, HostEvent.SOFTIRQ_EXIT, HostEvent.VECTOR_EXIT}
JOINED_NS = 1_000
"""The largest gap between interrupts that are joined: a softirq runs right after its interrupt."""

WAKE_UP = Cause("wake-up")
IDLE_READY = Cause("idle though ready")
STOPPED = Cause("stopped")

Columns = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class ThreadNames:
    """The names of threads and interrupts.

    Args:
        threads: Thread id to ``comm`` and ``role``, as the cell's facts hold them.
        irqs: Interrupt number to its device.
        subject: The role of the measuring machine.
    """

    threads: Mapping[int, Mapping[str, str]]
    irqs: Mapping[int, str]
    subject: str = "subject"

    def thread(self, thread: int) -> str:
        """Return ``neighbour-1 (cpu-load)`` for a machine's thread, else the thread's name."""
        known = self.threads.get(thread, {})
        comm, role = known.get("comm", "") or f"thread {thread}", known.get("role", "")
        return f"{role} ({comm})" if role else comm

    def interrupt(self, kind: HostEvent, who: int) -> Cause:
        """Return the cause of lost time that stands for an interrupt."""
        if kind == HostEvent.VECTOR_ENTRY:
            if who == Vector.LOCAL_TIMER:
                return Cause("timer interrupt")
            name = Vector(who).name.lower().replace("_", "-") if who in set(Vector) else str(who)
            return Cause("other interrupt", name)
        if kind == HostEvent.SOFTIRQ_ENTRY:
            if who in _TIMER_SOFTIRQS:
                return Cause("timer interrupt")
            return Cause("other interrupt", _SOFTIRQS[who] if who < len(_SOFTIRQS) else str(who))
        device = self.irqs.get(who, f"irq {who}")
        return Cause("timer interrupt" if "timer" in device else "other interrupt", device)


def follow(columns: Columns, threads: Sequence[int], names: ThreadNames) -> Track | None:
    """Follow the one of ``threads`` that ran longest.

    A machine with several virtual CPUs measures on one of them, which is never idle.

    Args:
        columns: The series ``host-sched``.
        threads: The ids of the candidates.
        names: The names of threads and interrupts.

    Returns:
        The track; None if none of them ran.
    """
    tracks = [track_thread(columns, thread, names) for thread in threads]
    best = max(tracks, key=lambda track: track.running_ns, default=None)
    return best if best is not None and best.running_ns > 0 else None


def track_thread(columns: Columns, thread: int, names: ThreadNames) -> Track:
    """Return the track of ``thread``; see :func:`follow`."""
    follower = _Follower(thread, names)
    rows = zip(
        *(
            columns[name].tolist()
            for name in ("time_ns", "cpu", "kind", "who", "other", "runnable")
        ),
        strict=True,
    )
    for time_ns, cpu, kind, who, other, left in rows:
        follower.take(time_ns, cpu, kind, who, other, left)
    return Track(thread, tuple(joined(follower.episodes)), follower.running_ns, follower.missed)


class _Follower:
    def __init__(self, thread: int, names: ThreadNames) -> None:
        self.episodes: list[Episode] = []
        self.running_ns = 0
        self.missed = 0
        self._seen: dict[int, int] = {}
        self._unseen = 0
        self._thread = thread
        self._names = names
        self._current: dict[int, int] = {}
        self._arrived: dict[int, int] = {}
        self._cpu: int | None = None
        self._since = 0
        self._ready = True
        self._stopped = False
        self._woken = False
        self._began = 0
        self._interrupts: list[tuple[int, Cause]] = []
        self._helpers = {
            other for other, known in names.threads.items() if known.get("role") == names.subject
        } - {thread}
        self._waiting: dict[int, int] = {}

    def take(self, time_ns: int, cpu: int, kind: int, who: int, other: int, left: int) -> None:
        if kind != HostEvent.WAKEUP:
            # Every event names the running thread; it must be the one that was switched to.
            if self._current.get(cpu, other) != other:
                self._missed(time_ns, cpu, other)
            self._seen[cpu] = time_ns
        if kind == HostEvent.SWITCH:
            if not self._ready and self._cpu is not None and not self._running():
                self._absent(time_ns)
            self._switch(time_ns, cpu, who, other, left)
            self._waiting.pop(who, None)
            if other in self._helpers:
                self._waiting.pop(other, None)
                if left == SwitchReason.READY:
                    self._waiting[other] = cpu
        elif kind == HostEvent.WAKEUP:
            # A wake-up does not show which thread runs, so it can only end a wait.
            if self._cpu is not None and not self._running() and not self._ready:
                self._absent(time_ns)
                if who == self._thread:
                    # From here on, the thread on the CPU that it is to run on keeps it waiting.
                    self._ready = self._woken = True
                    self._cpu = other
            if who in self._helpers and self._current.get(other) != who:
                self._waiting[who] = other
        elif kind == HostEvent.RUNS_ON:
            if self._running() and cpu == self._cpu:
                self.running_ns += time_ns - self._began
                self._began = time_ns
        elif self._running() and cpu == self._cpu:
            self._interrupt(time_ns, HostEvent(kind), who)

    def _running(self) -> bool:
        return self._cpu is not None and self._current.get(self._cpu) == self._thread

    def _switch(self, time_ns: int, cpu: int, who: int, other: int, left: int) -> None:
        if who == self._thread:
            if self._cpu is not None:
                self._moved(cpu, other)
                self._absent(time_ns)
            self._cpu, self._since, self._began = cpu, time_ns, time_ns
            self._interrupts.clear()
        elif other == self._thread:
            if self._running() and cpu == self._cpu:
                self.running_ns += time_ns - self._began
                # An interrupt that is being handled when the thread leaves ends with the switch.
                self._end_interrupts(time_ns)
            self._cpu, self._since = cpu, time_ns
            self._ready, self._stopped = left == SwitchReason.READY, left == SwitchReason.STOPPED
            self._woken = False
        elif cpu == self._cpu:
            self._absent(time_ns)
        self._current[cpu], self._arrived[cpu] = who, time_ns

    def _moved(self, cpu: int, other: int) -> None:
        """Attribute the wait of a thread that returns on another CPU to ``other``, which ran there.

        Nothing shows when the thread was moved from the CPU that it left. It can have waited on the
        new CPU no longer than ``other`` was there. An idle CPU that it is moved to is woken for it.
        """
        assert self._cpu is not None
        idle = self._current.get(self._cpu, IDLE) == IDLE
        if cpu == self._cpu or not idle or not self._ready or other == self._thread:
            return
        if other == IDLE:
            self._woken = True
            return
        arrived = self._arrived.get(cpu, self._since)
        if arrived > self._since:
            self._absent(arrived)
        self._cpu = cpu

    def _missed(self, time_ns: int, cpu: int, shown: int) -> None:
        """Record that ``shown`` runs on ``cpu`` although no switch to it was recorded."""
        self.missed += 1
        last = self._seen.get(cpu, time_ns)
        if self._running() and cpu == self._cpu:
            # The switch away was not recorded: certainly off now, perhaps since the last event.
            self.running_ns += last - self._began
            self._interrupts.clear()
            self._since = max(last, time_ns - 1)
            self._unseen, self._ready, self._woken = self._since - last, True, False
        elif shown == self._thread:
            if self._cpu is not None:
                surely = max(last, self._since + 1)
                self._absent(surely)
                if self.episodes and self.episodes[-1].end_ns == surely:
                    self.episodes[-1] = replace(
                        self.episodes[-1], after_ns=max(0, time_ns - surely)
                    )
            self._cpu, self._since, self._began = cpu, time_ns, time_ns
        elif cpu == self._cpu:
            if shown in self._helpers and self._ready and last > self._since:
                # Both were held back or released together, so it came at the last event here.
                self._absent(last)
                self._current[cpu] = shown
            self._absent(time_ns)
        self._current[cpu], self._arrived[cpu] = shown, time_ns

    def _absent(self, time_ns: int) -> None:
        """End the current part of an absence; the next part begins now."""
        assert self._cpu is not None
        occupant = self._current.get(self._cpu, IDLE)
        if occupant != self._thread and time_ns > self._since:
            cause = self._why(occupant)
            self.episodes.append(Episode(self._since, time_ns, cause, self._unseen))
            self._unseen = 0
        self._since = time_ns

    def _why(self, occupant: int) -> Cause:
        if not self._ready:
            if self._stopped:
                return STOPPED
            # Whatever the thread waits for may itself be kept from its CPU.
            for cpu in self._waiting.values():
                holder = self._current.get(cpu, IDLE)
                if holder not in (IDLE, self._thread) and holder not in self._helpers:
                    return Cause("preempted", self._names.thread(holder))
            return Cause("platform")
        if occupant == IDLE:
            return WAKE_UP if self._woken else IDLE_READY
        return Cause("preempted", self._names.thread(occupant))

    def _interrupt(self, time_ns: int, kind: HostEvent, who: int) -> None:
        if kind in _ENTRIES:
            self._interrupts.append((time_ns, self._names.interrupt(kind, who)))
        elif kind in _EXITS and self._interrupts:
            begin, cause = self._interrupts.pop()
            # A nested interrupt is part of the outer one.
            if not self._interrupts and time_ns > begin:
                self.episodes.append(Episode(begin, time_ns, cause))

    def _end_interrupts(self, time_ns: int) -> None:
        if self._interrupts and time_ns > self._interrupts[0][0]:
            begin, cause = self._interrupts[0]
            self.episodes.append(Episode(begin, time_ns, cause))
        self._interrupts.clear()


def joined(episodes: Iterable[Episode]) -> list[Episode]:
    """Join interrupts that follow directly on one another, and neighbours with the same cause.

    Joined episodes have the cause of the first part: a softirq runs because of the interrupt that
    raised it.
    """
    result: list[Episode] = []
    for episode in sorted(episodes, key=lambda each: (each.begin_ns, each.end_ns)):
        last = result[-1] if result else None
        if last is not None:
            close = episode.begin_ns - last.end_ns
            both_interrupts = "interrupt" in last.cause.kind and "interrupt" in episode.cause.kind
            if (both_interrupts and close <= JOINED_NS) or (
                last.cause == episode.cause and close == 0
            ):
                result[-1] = replace(last, end_ns=episode.end_ns, after_ns=episode.after_ns)
                continue
        result.append(episode)
    return result


def columns_of(rows: Sequence[tuple[int, int, int, int, int, int]]) -> dict[str, NDArray[Any]]:
    """Return rows as the columns of ``host-sched``, in the order given."""
    names = ("time_ns", "cpu", "kind", "who", "other", "runnable")
    values = np.array(rows, dtype=np.int64).reshape(-1, len(names))
    return {name: values[:, number] for number, name in enumerate(names)}
