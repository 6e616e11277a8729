"""One session: the arms of one boot, measured in the blocks of the session while it is up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tare.errors import InputError
from tare.events import (
    EventLog,
    Fold,
    ImageReady,
    Planned,
    PlatformChecked,
    RunFinished,
    SessionFinished,
    SessionStarted,
)
from tare.run.lifecycle.block_schedule import AssignedBlock, Pace, RunPart
from tare.run.lifecycle.cell_counts import (
    account_of_sessions,
    cells_in_a_block,
    failing_arms,
    require_worth,
    unfinished,
)
from tare.run.lifecycle.execution import Execution
from tare.run.lifecycle.executor import record_skips
from tare.run.lifecycle.resume_checks import (
    changed_arms,
    changed_hosts,
    changed_versions,
    hosts_now,
    require_as_begun,
    require_same_images,
)
from tare.run.lifecycle.versions import run_versions
from tare.run.preflight.arm_facts import require_still_usable, restored_facts
from tare.run.preflight.capacity import found_memory, require_room
from tare.run.preflight.checking import (
    check_arms,
    checked_events,
    facts_of,
    image_events,
    plan_study,
    prepare_arms,
)
from tare.run.preflight.toolbox import require_additions
from tare.run.sessions.boot_state import look
from tare.study.model.sessions import part_of

if TYPE_CHECKING:
    from tare.platforms.contract import Prepared, Verdict
    from tare.run.lifecycle.folder import RunFolder
    from tare.run.lifecycle.setup import RunSetup
    from tare.study.model.study import Study
    from tare.study.planning.plan import Plan
    from tare.study.planning.session_plan import Agenda, Session

Ended = Literal["done", "interrupted", "gone"]
"""The state in which a session ended for now: complete, interrupted by the user, or its computer is
gone."""
SETTLE_S = 120.0
"""Seconds to wait for the other arms once some are there: guests start after their host."""
LOOK_EVERY_S = 5.0


@dataclass(frozen=True)
class SessionContext:
    """The context that all sessions of a run share.

    Args:
        study: The whole study.
        path: Its file.
        agenda: All its sessions.
        seed: Determines the order of everything.
        run: The run's identity.
        folder: Its folder.
        fold: Takes the run's events as they happen.
        accept: Whether to continue even if hosts, versions or capabilities have changed.
        open: Opens the event log; takes the changes since this boot was last up.
    """

    study: Study
    path: Path
    agenda: Agenda
    seed: int
    run: str
    folder: RunFolder
    fold: Fold
    accept: bool
    open: Callable[[tuple[str, ...]], EventLog]

    def settled_rounds(self, session: Session) -> bool:
        """Return whether all other sessions of a session's round are done."""
        others = [each for each in self.agenda.sessions if each.round == session.round]
        done = self.fold.sessions.done | {session.number}
        return all(each.number in done for each in others)


@dataclass(frozen=True)
class _Ready:
    """The checks, plan and images of a session, before anything is measured."""

    part: Study
    verdicts: Mapping[str, Verdict]
    checked: tuple[PlatformChecked, ...]
    plan: Plan
    prepared: Mapping[str, Prepared]
    changed: tuple[str, ...]


async def measure(
    given: SessionContext, setup: RunSetup, session: Session, planned: Session, booted: str
) -> RunFinished | Ended:
    """Measure a session, or the rest of it.

    Args:
        given: The context that all sessions share.
        setup: The hosts that are up now.
        session: The session.
        planned: The next session of the plan.
        booted: The text that identifies this boot of the computer.

    Returns:
        How it ended; or the last event, if the run has failed.

    Raises:
        InputError: Something has changed since this boot was last up, or cannot be measured.
    """
    ready = await _ready(given, setup, session)
    log = given.open(ready.changed)
    log.append(
        SessionStarted(
            session=session.number,
            boot=session.boot,
            round=session.round,
            first=session.first,
            last=session.last,
            planned=planned.number,
            cells=_cells(ready.plan),
            host=hosts_now(setup),
            booted=booted,
        )
    )
    _record(log, given, ready)
    blocks = SessionBlocks(given, setup.say, setup.strict, session, ready.plan, log)
    part = RunPart(None, blocks.given(), lambda: account_of_sessions(given.fold, given.study))
    execution = Execution(
        setup, ready.part, ready.plan, ready.prepared, given.folder, log, given.run, given.fold,
        part,
    )  # fmt: skip
    failed = await execution.run()
    if failed is not None:
        return failed
    if blocks.ended == "done":
        log.append(SessionFinished(session=session.number))
    return blocks.ended


async def _ready(given: SessionContext, setup: RunSetup, session: Session) -> _Ready:
    """Check, plan and prepare the arms of a session.

    Raises:
        InputError: See :func:`measure`.
    """
    part = part_of(given.study, session.boot)
    await require_additions(setup, setup.context.builder, part, given.path)
    known = {name: each for name, each in given.fold.platforms.items() if name in part.arms}
    verdicts = await _settled(setup, part, known)
    require_still_usable(known, verdicts)
    fold = given.fold
    menus = {name for name, spec in part.computers.items() if spec.boot is not None}
    found = [
        *changed_hosts(fold.sessions.hosts.get(session.boot, {}), hosts_now(setup), menus),
        *changed_versions(fold.versions, run_versions()),
        *changed_arms(known, verdicts),
    ]
    changed = require_as_begun(found, given.folder.path, accepted=given.accept)
    facts = restored_facts(known, facts_of(setup, part, verdicts))
    plan = plan_study(setup, part, given.seed, facts)
    _require_cells(given, session, plan)
    memory = found_memory(part, setup)
    await require_room(part, plan, setup, memory, setup.context.builder)
    prepared = await prepare_arms(setup, part, plan)
    require_same_images(fold, prepared)
    checked = tuple(
        event
        for event in checked_events(setup, part, verdicts, facts)
        if changed or event.arm not in known
    )
    return _Ready(part, verdicts, checked, plan, prepared, changed)


async def _settled(
    setup: RunSetup, part: Study, known: Mapping[str, PlatformChecked]
) -> Mapping[str, Verdict]:
    """Check the arms, and wait a while for those that may just not be up yet."""
    loop = asyncio.get_running_loop()
    until = loop.time() + SETTLE_S
    announced = False
    while True:
        verdicts = await check_arms(setup, part)
        missing = [
            name
            for name, verdict in verdicts.items()
            if not verdict.usable
            and not verdict.lasting
            and (name not in known or known[name].usable)
        ]
        if not missing or loop.time() > until:
            return verdicts
        if not announced:
            setup.say(f"waiting up to {SETTLE_S:.0f} s for {', '.join(missing)}")
            announced = True
        await asyncio.sleep(LOOK_EVERY_S)


def _cells(plan: Plan) -> dict[str, int]:
    return {
        arm: sum(len(batch.cells) for batch in plan.batches if batch.arm == arm)
        for arm in plan.arms
    }


def _require_cells(given: SessionContext, session: Session, plan: Plan) -> None:
    """Check that a block has cells, and as many as in earlier sessions of the boot.

    Raises:
        InputError: It has none, or another number.
    """
    cells = _cells(plan)
    if not cells:
        reasons = "; ".join(dict.fromkeys(f"{skip.arm}: {skip.reason}" for skip in plan.skipped))
        raise InputError(
            f"nothing can be measured in the boot {session.boot}: {reasons or 'it has no cells'}",
            "make one of its arms usable",
        )
    for before in given.fold.sessions.begun.values():
        if before.boot == session.boot and dict(before.cells) != cells:
            raise InputError(
                f"a block of {session.boot} would have {sum(cells.values())} cells now, and had "
                f"{sum(before.cells.values())} in session {before.number}: they would not be "
                "comparable",
                "restore the computer, or start a new run",
            )


def _record(log: EventLog, given: SessionContext, ready: _Ready) -> None:
    """Append the events that precede a session's first block, unless an earlier session did."""
    fold, plan = given.fold, ready.plan
    for event in ready.checked:
        log.append(event)
    recorded = {(each.arm, each.scenario, each.workload) for each in fold.skipped}
    new_skips = (
        skip for skip in plan.skipped if (skip.arm, skip.scenario, skip.workload) not in recorded
    )
    record_skips(log, new_skips)
    new: list[ImageReady] = [
        image
        for image in image_events(ready.prepared)
        if fold.first_digest(image.arm) != image.digest
    ]
    for image in new:
        log.append(image)
    if not new and fold.planned is not None:
        return
    log.append(
        Planned(
            blocks_most=given.study.blocks.most,
            cells_per_block=cells_in_a_block(fold, given.study),
            expected_block_s=plan.block_s,
            notes=tuple(dict.fromkeys((*fold.notes, *plan.notes))),
        )
    )


class SessionBlocks:
    """The blocks of a session, assigned one after another.

    Args:
        given: The context that all sessions share.
        say: Shows the user a sentence.
        strict: Whether the run ends as soon as an arm does.
        session: The session.
        plan: The plan of its arms.
        log: The run's events.
    """

    def __init__(
        self,
        given: SessionContext,
        say: Callable[[str], None],
        strict: bool,
        session: Session,
        plan: Plan,
        log: EventLog,
    ) -> None:
        self._given = given
        self._say = say
        self._strict = strict
        self._session = session
        self._plan = plan
        self._log = log
        self.ended: Ended = "interrupted"

    async def given(self) -> AsyncIterator[AssignedBlock]:
        """Yield the blocks; each is done when the next is requested.

        Raises:
            TareError: The run is not worth continuing.
        """
        fold, study = self._given.fold, self._given.study
        pace = Pace(study.blocks.every, lambda: False)
        whole = self._given.settled_rounds(self._session)
        for number in self._session.blocks:
            pending = any(left for _, left in unfinished(self._plan, number, fold.finished))
            began = frozenset(fold.finished)
            if pending:
                await pace.wait()
            yield AssignedBlock(number, whole=whole)
            if await self._is_gone(began):
                self.ended = "gone"
                return
            if pending:
                for ended in failing_arms(self._plan, fold, number):
                    self._log.append(ended)
            over = [each for each in fold.arms_ended if each.block <= number]
            require_worth(over, study.baseline, strict=self._strict)
        self.ended = "done"

    async def _is_gone(self, before: frozenset[str]) -> bool:
        """Return whether all new cells of a block failed because the boot is not up any more.

        The rest of the session is measured once it is up again. It does not count against an arm.
        """
        finished = self._given.fold.finished
        new = [done.result for cell, done in finished.items() if cell not in before]
        if not new or any(cell.status != "failed" for cell in new):
            return False
        seen = await look(self._given.study, self._session.boot)
        if not seen.up:
            self._say(f"{self._session.boot} is no longer up: {seen.why}")
        return not seen.up
