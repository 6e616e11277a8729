"""Begin a run, or go on with one: check, plan and prepare, then have the plan carried out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tare.events import EventLog, Fold, RunFinished, RunResumed, RunStarted
from tare.run.hosts.rejoining import require_same_host, require_same_work
from tare.run.lifecycle.appending import appending
from tare.run.lifecycle.beginning import tell_plan
from tare.run.lifecycle.execution import Execution
from tare.run.lifecycle.part import Part
from tare.run.lifecycle.resuming import (
    changed,
    hosts_now,
    require_as_begun,
    require_same_images,
    require_same_plan,
)
from tare.run.lifecycle.setup import RunSetup, StudySource
from tare.run.lifecycle.slow_libraries import SlowLibraries
from tare.run.lifecycle.versions import run_versions
from tare.run.preflight.arm_facts import require_still_usable, restored_facts
from tare.run.preflight.checking import (
    Unprepared,
    check_arms,
    checked_events,
    facts_of,
    left_out,
    plan_study,
    prepare_arms,
    with_possible_baseline,
)
from tare.run.preflight.room import found_memory, require_room

if TYPE_CHECKING:
    from tare.platforms.contract import Prepared, Verdict
    from tare.run.lifecycle.folder import RunFolder
    from tare.study.model.study import Study
    from tare.study.planning.plan import ArmFacts, Plan


async def execute(
    setup: RunSetup,
    study: Study,
    source: StudySource,
    folder: RunFolder,
    run: str,
    seed: int,
    fold: Fold,
    part: Part | None = None,
) -> RunFinished | None:
    """Carry a study out from its beginning.

    Args:
        setup: What the run is carried out with.
        study: What to measure.
        source: Where the study came from.
        folder: The run's folder.
        run: The run's identity.
        seed: Determines the order of everything.
        fold: Takes the run's events as they happen.
        part: Which blocks are this host's, where several hosts share a run; all of them if None.

    Returns:
        The last event, or None when the run was interrupted and can be resumed, or is shared.
    """
    libraries = SlowLibraries()
    libraries.begin()
    verdicts = await check_arms(setup, study)
    study = with_possible_baseline(setup, study, verdicts)
    before = None if part is None else part.before
    if before is not None:
        require_same_host(before, study, setup, verdicts)

    async def planned(
        found: dict[str, Verdict],
    ) -> tuple[Plan, dict[str, ArmFacts], dict[str, Prepared]]:
        facts = facts_of(setup, study, found)
        if before is not None:
            facts = restored_facts({event.arm: event for event in before.checked}, facts)
        plan = plan_study(setup, study, seed, facts)
        await require_room(study, plan, setup, found_memory(study, setup), setup.context.builder)
        return plan, facts, await prepare_arms(setup, study, plan)

    try:
        plan, facts, prepared = await planned(verdicts)
    except Unprepared as error:
        # What this host cannot boot is left out, as what it cannot run is.
        if before is not None or study.baseline in error.arms:
            raise
        verdicts = left_out(verdicts, error)
        plan, facts, prepared = await planned(verdicts)
    if before is not None:
        require_same_work(before, plan, prepared)
    with appending(folder) as log:
        _subscribe(setup, log, fold)
        log.append(
            RunStarted(
                run=run,
                study=study.model_dump(mode="json"),
                study_path=source.path,
                study_sha256=source.sha256,
                seed=seed,
                host=hosts_now(setup),
                versions=run_versions(),
                changes=source.changes,
            )
        )
        checked = checked_events(setup, study, verdicts, facts)
        tell_plan(log, fold, checked, plan, prepared)
        execution = Execution(setup, study, plan, prepared, folder, log, run, fold, libraries, part)
        return await execution.carry_out()


async def resume(
    setup: RunSetup,
    study: Study,
    started: RunStarted,
    fold: Fold,
    folder: RunFolder,
    *,
    accept: bool = False,
) -> RunFinished | None:
    """Go on with an interrupted run at its first unfinished cell.

    Args:
        setup: What the run is carried out with.
        study: The run's study.
        started: The run's first event.
        fold: The fold of its events so far; takes those that follow.
        folder: The run's folder.
        accept: Whether to go on though hosts, versions or capabilities have changed.

    Raises:
        InputError: An arm cannot run any more, or what it would boot has changed since the run
            began; or something else has, and is not accepted.
    """
    libraries = SlowLibraries()
    libraries.begin()
    verdicts = await check_arms(setup, study)
    require_still_usable(fold.platforms, verdicts)
    found = changed(fold, study, setup, verdicts, run_versions())
    differing = require_as_begun(found, folder.path, accepted=accept)
    facts = restored_facts(fold.platforms, facts_of(setup, study, verdicts))
    plan = plan_study(setup, study, started.seed, facts)
    require_same_plan(fold, plan)
    prepared = await prepare_arms(setup, study, plan)
    require_same_images(fold, prepared)
    with appending(folder) as log:
        _subscribe(setup, log, fold)
        log.append(
            RunResumed(
                run=started.run,
                versions=run_versions(),
                doubts=fold.doubts,
                host=hosts_now(setup),
                changed=differing,
            )
        )
        checked = checked_events(setup, study, verdicts, facts)
        tell_plan(log, fold, checked, plan, prepared, anew=bool(differing))
        execution = Execution(
            setup, study, plan, prepared, folder, log, started.run, fold, libraries
        )
        return await execution.carry_out()


def _subscribe(setup: RunSetup, log: EventLog, fold: Fold) -> None:
    log.subscribe(fold.take)
    for subscriber in setup.subscribers:
        log.subscribe(subscriber)
