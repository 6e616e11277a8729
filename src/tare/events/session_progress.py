"""The progress of a study in sessions: measured sessions with times, and the boot it waits for."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tare.events.session_events import SessionFinished, SessionStarted, Waiting


@dataclass(frozen=True)
class Go:
    """One period in which a session, or a part of it, was measured.

    Args:
        began: Its start, in seconds since the epoch.
        planned: The session that was next in the plan.
        booted: The text that identifies the boot of the computer; empty if nothing identifies it.
        ended: The end of the session, in seconds since the epoch; 0 if it did not end in this
            period.
    """

    began: float
    planned: int
    booted: str
    ended: float = 0.0


@dataclass(frozen=True)
class SessionResult:
    """One session that was begun.

    Args:
        number: Its number in the plan, from 1.
        boot: The boot of the computer.
        round: The round of sessions to which it belongs.
        first: The first of its blocks.
        last: The last of them.
        cells: The number of cells of each arm in a block.
        goes: The periods in which it was measured: one, unless it was interrupted.
    """

    number: int
    boot: str
    round: int
    first: int
    last: int
    cells: Mapping[str, int]
    goes: tuple[Go, ...]

    @property
    def done(self) -> bool:
        """Whether the whole session was measured."""
        return bool(self.goes[-1].ended)

    @property
    def blocks(self) -> range:
        """The numbers of its blocks."""
        return range(self.first, self.last + 1)


@dataclass
class SessionsProgress:
    """The sessions of a run by number, in the sequence of their first start.

    Args:
        begun: The sessions that were begun.
        hosts: The last facts of the host in each boot.
        waiting: The boot that the run waits for, if it does.
    """

    begun: dict[int, SessionResult] = field(default_factory=dict)
    hosts: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    waiting: Waiting | None = None

    @property
    def done(self) -> frozenset[int]:
        """The numbers of the sessions that are done."""
        return frozenset(number for number, each in self.begun.items() if each.done)

    def take(self, event: SessionStarted | SessionFinished | Waiting, time: float) -> None:
        """Take a session's start or end, or the wait for one."""
        match event:
            case SessionStarted():
                go = Go(time, event.planned, event.booted)
                before = self.begun.get(event.session)
                self.begun[event.session] = SessionResult(
                    number=event.session,
                    boot=event.boot,
                    round=event.round,
                    first=event.first,
                    last=event.last,
                    cells=event.cells,
                    goes=(*(before.goes if before else ()), go),
                )
                self.hosts[event.boot] = event.host
                self.waiting = None
            case SessionFinished():
                known = self.begun.get(event.session)
                if known is not None:
                    last = replace(known.goes[-1], ended=time)
                    self.begun[event.session] = replace(known, goes=(*known.goes[:-1], last))
            case Waiting():
                self.waiting = event

    def discard_incomplete(self, whole: Collection[int]) -> None:
        """Forget the sessions with blocks that do not count any more.

        Args:
            whole: The blocks that still count.
        """
        self.begun = {
            number: each for number, each in self.begun.items() if set(each.blocks) <= set(whole)
        }
