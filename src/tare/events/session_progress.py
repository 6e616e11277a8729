"""Where a study in sessions stands: which were measured, when, and what is waited for."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tare.events.session_events import SessionFinished, SessionStarted, Waiting


@dataclass(frozen=True)
class Go:
    """One time that a session was measured, or a part of it.

    Args:
        began: In seconds since the epoch.
        planned: The session that was next in the plan.
        booted: Tells boots of the computer apart; empty where they do not show.
        ended: When the session was done; 0 where it was not done in this go.
    """

    began: float
    planned: int
    booted: str
    ended: float = 0.0


@dataclass(frozen=True)
class SessionResult:
    """One session that was begun.

    Args:
        number: In the order that was planned, from 1.
        boot: How the computer was booted.
        round: Which sessions belong together.
        first: The first of its blocks.
        last: The last of them.
        cells: How many cells each of its arms has in a block.
        goes: The times that it was measured: one, unless it was broken off.
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
        """Whether all of it was measured."""
        return bool(self.goes[-1].ended)

    @property
    def blocks(self) -> range:
        """The numbers of its blocks."""
        return range(self.first, self.last + 1)


@dataclass
class SessionsProgress:
    """The sessions of a run, by number, in the order of their first begin.

    Args:
        begun: Those that were begun.
        hosts: How the host was found last in each boot.
        waiting: What the run waits for, if it does.
    """

    begun: dict[int, SessionResult] = field(default_factory=dict)
    hosts: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    waiting: Waiting | None = None

    @property
    def done(self) -> frozenset[int]:
        """The numbers of the sessions that are done."""
        return frozenset(number for number, each in self.begun.items() if each.done)

    def take(self, event: SessionStarted | SessionFinished | Waiting, time: float) -> None:
        """Account for a session's begin or end, or for the wait for one."""
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

    def measure_anew(self, whole: Collection[int]) -> None:
        """Forget the sessions of which something does not count any more.

        Args:
            whole: The blocks that still count.
        """
        self.begun = {
            number: each for number, each in self.begun.items() if set(each.blocks) <= set(whole)
        }
