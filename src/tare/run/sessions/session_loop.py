"""The loop over the sessions of a run: measure boots that are up, and wait for the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tare.events import (
    BlockFinished,
    Decided,
    Event,
    EventLog,
    Fold,
    Record,
    RunFinished,
    RunResumed,
    SessionFinished,
    Waiting,
)
from tare.run.lifecycle.cell_counts import account_of_sessions, run_finished
from tare.run.lifecycle.folder import open_event_log
from tare.run.lifecycle.session import run_session
from tare.run.lifecycle.setup import Decide, Decision
from tare.run.lifecycle.versions import run_versions
from tare.run.sessions.agenda_text import agenda_of, described, deviation, swap
from tare.run.sessions.boot_state import BootCheck, boots_by_itself, canonical_boot, look
from tare.run.sessions.one_session import Ended, SessionContext, measure
from tare.study.model.sessions import part_of
from tare.units import format_duration

if TYPE_CHECKING:
    from tare.events.session_progress import SessionResult
    from tare.run.lifecycle.folder import RunFolder
    from tare.study.model.study import Study
    from tare.study.planning.session_plan import Session

POLL_S = 5.0
"""Seconds between two checks whether the next boot is up."""


@dataclass
class RunInSessions:
    """The execution of a study in sessions by this process.

    Args:
        study: The study.
        run: The run's identity.
        seed: Determines the order of everything.
        folder: The run's folder.
        fold: Its events so far; takes those that follow.
        begin: The first event of this run; None: the run is resumed.
        decide: Decides after whole rounds whether to continue.
        subscribers: Receive every record as it is written.
        on_progress: Receives progress within a cell.
        say: Shows the user a sentence.
        strict: Whether the run ends as soon as an arm does.
        accept: Whether to resume though something has changed.
        wait: Whether to wait for a boot that is not up, instead of ending.
    """

    study: Study
    run: str
    seed: int
    folder: RunFolder
    fold: Fold
    begin: Event | None
    decide: Decide
    subscribers: tuple[Callable[[Record], None], ...]
    on_progress: Callable[[str, float, Mapping[str, Any]], None]
    say: Callable[[str], None]
    strict: bool = False
    accept: bool = False
    wait: bool = False
    _log: EventLog | None = None
    _held: ExitStack = field(default_factory=ExitStack)
    _last: Session | None = None
    """The session that this process measured last."""

    async def execute(self) -> RunFinished | Waiting | None:
        """Measure session after session.

        Returns:
            The last event; the boot that has to be up before the run can be resumed; or None if
            the run was interrupted.
        """
        with self._held:
            if self.begin is not None:
                self._append(self.begin)
            while True:
                if (ended := self._record_ended()) is not None:
                    return ended
                found = await self._next()
                if isinstance(found, Waiting):
                    return found
                session, seen = found
                done = await self._measured(session, seen)
                if isinstance(done, RunFinished):
                    return done
                if done == "interrupted":
                    return None
                # If the computer was swapped meanwhile, it has been booted again in any case.
                self._last = session if done == "done" else None

    # Events

    def _open(self, changed: tuple[str, ...]) -> EventLog:
        """Return the event log; a resumed run first records its resumption and the changes."""
        if self._log is None or changed:
            self._append(
                RunResumed(
                    run=self.run,
                    versions=run_versions(),
                    doubts=self.fold.doubts if self._log is None else (),
                    changed=changed,
                )
            )
        assert self._log is not None
        return self._log

    def _append(self, event: Event) -> None:
        if self._log is None:
            self._log = self._held.enter_context(open_event_log(self.folder))
            for subscriber in (self.fold.take, *self.subscribers):
                self._log.subscribe(subscriber)
        self._log.append(event)

    # The next session

    def _record_ended(self) -> RunFinished | None:
        """Record ended sessions and blocks, and decide; return the last event if all is done."""
        self._close_sessions()
        agenda = agenda_of(self.study)
        rounds = agenda.rounds_done(self.fold.sessions.done)
        if rounds == 0 or not agenda.decided_at(rounds):
            return None
        block = agenda.blocks_of(rounds)[-1]
        decided = self.fold.decided
        if decided is None or decided.block < block:
            judged = self._judged(block, last=rounds == agenda.most)
            decided = Decided(block=block, go_on=judged.continues, reason=judged.reason)
            self._open(())
            self._append(decided)
        if decided.go_on:
            return None
        self._open(())
        cells = account_of_sessions(self.fold, self.study)
        finished = run_finished(
            cells, self.fold, self.study.baseline, "complete", decided.reason, self.fold.wall_s
        )
        self._append(finished)
        return finished

    def _judged(self, block: int, *, last: bool) -> Decision:
        budget = self.study.blocks.budget
        if last:
            return Decision(False, f"{block} blocks are done, the most asked for")
        if budget is not None and self.fold.wall_s >= budget:
            return Decision(False, f"the budget of {format_duration(budget)} is spent")
        return self.decide(self.study, self.fold, block)

    def _close_sessions(self) -> None:
        """Record the end of sessions and blocks whose process ended before it recorded that."""
        begun = self.fold.sessions.begun
        whole = [each for each in begun.values() if not each.done and self._measured_whole(each)]
        for each in whole:
            self._open(())
            self._append(SessionFinished(session=each.number))
        done = self.fold.sessions.done
        rounds: dict[int, list[int]] = {}
        for session in agenda_of(self.study).sessions:
            rounds.setdefault(session.round, []).append(session.number)
        for round_, numbers in rounds.items():
            if not done.issuperset(numbers):
                continue
            for block in agenda_of(self.study).blocks_of(round_):
                if block not in self.fold.block.finished:
                    self._open(())
                    self._append(BlockFinished(block=block))

    def _measured_whole(self, each: SessionResult) -> bool:
        """Return whether all cells of a session have ended, except those of ended arms."""
        ended = {arm.arm: arm.block for arm in self.fold.arms_ended}
        cells = [cell.result for cell in self.fold.finished.values()]
        return all(
            sum(cell.arm == arm and cell.block == block for cell in cells) >= wanted
            for arm, wanted in each.cells.items()
            for block in each.blocks
            if block <= ended.get(arm, block)
        )

    async def _next(self) -> tuple[Session, BootCheck] | Waiting:
        """Return the session to measure now; or, if none is up, the boot to wait for."""
        left = agenda_of(self.study).left(self.fold.sessions.done)
        was_away, announced = False, False
        while True:
            whys = {}
            for session in self._candidates(left):
                seen = self._with_known_boot(await look(self.study, session.boot))
                if seen.up and self._is_rebooted(session, seen, was_away=was_away):
                    return session, seen
                whys[session.boot] = seen.why
                was_away |= not seen.up and self._is_again(session)
            waiting = self._waiting(left[0])
            if not announced:
                announced = True
                self._announce_waiting(waiting, whys)
            if not self.wait:
                return waiting
            await asyncio.sleep(POLL_S)

    def _candidates(self, left: tuple[Session, ...]) -> list[Session]:
        """Return the sessions to consider: after one only the next, else one per boot."""
        if self._last is not None:
            return [left[0]]
        return [next(each for each in left if each.boot == boot) for boot in _boots(left)]

    def _is_again(self, session: Session) -> bool:
        """Return whether a session has the same boot as the last one, and so needs a reboot."""
        return self._last is not None and self._last.boot == session.boot

    def _is_rebooted(self, session: Session, seen: BootCheck, *, was_away: bool) -> bool:
        if not self._is_again(session) or was_away or boots_by_itself(self.study, session.boot):
            return True
        before = self._previous_boot_text(session.boot)
        return bool(seen.booted and before and seen.booted != before)

    def _with_known_boot(self, seen: BootCheck) -> BootCheck:
        """Return the check, with the boot's text of an earlier session if it is the same boot."""
        goes = [go.booted for each in self.fold.sessions.begun.values() for go in each.goes]
        return BootCheck(seen.up, seen.why, canonical_boot(seen.booted.split(), goes))

    def _previous_boot_text(self, boot: str) -> str:
        """Return the text that identified the last session's boot; empty if there is none."""
        goes = [each.goes[-1] for each in self.fold.sessions.begun.values() if each.boot == boot]
        return max(goes, key=lambda go: go.began).booted if goes else ""

    def _waiting(self, session: Session) -> Waiting:
        assert self.study.sessions is not None
        by_itself = partial(boots_by_itself, self.study)
        words = swap(self.study.sessions, agenda_of(self.study), session, by_itself)
        return Waiting(session=session.number, boot=session.boot, swap=words)

    def _announce_waiting(self, waiting: Waiting, whys: Mapping[str, str]) -> None:
        if self._log is not None:
            self._append(waiting)
        for boot, why in whys.items():
            if why:
                self.say(f"{boot} is not up: {why}")
        if self.wait:
            self.say(f"{waiting.swap}; waiting for it")

    # One session

    async def _measured(self, session: Session, seen: BootCheck) -> RunFinished | Ended:
        agenda = agenda_of(self.study)
        planned = agenda.left(self.fold.sessions.done)[0]
        self._announce_session(session, planned, seen)
        part = part_of(self.study, session.boot)
        given = SessionContext(
            study=self.study,
            path=self.folder.study,
            agenda=agenda,
            seed=self.seed,
            run=self.run,
            folder=self.folder,
            fold=self.fold,
            accept=self.accept,
            open=self._open,
        )
        async with run_session(
            self.run,
            part,
            output=self.folder.path,
            decide=self.decide,
            subscribers=(),
            on_progress=self.on_progress,
            say=self.say,
        ) as setup:
            strictly = replace(setup, strict=self.strict)
            return await measure(given, strictly, session, planned, seen.booted)

    def _announce_session(self, session: Session, planned: Session, seen: BootCheck) -> None:
        total = len(agenda_of(self.study).sessions)
        self.say(f"session {session.number} of {total}: {described(session)}")
        if words := deviation(session, planned):
            self.say(words)
        others = [
            each.number
            for each in self.fold.sessions.begun.values()
            if each.number != session.number
            and seen.booted
            and seen.booted in {go.booted for go in each.goes}
        ]
        if others:
            self.say(
                f"{session.boot} was not booted since session {others[-1]}: the two count as one "
                "session in comparisons"
            )


def _boots(left: tuple[Session, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each.boot for each in left))
