"""Start or resume a run: check, plan and prepare, then execute the plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from tare.events import EventLog, Fold, Planned, RunFinished, RunResumed, RunStarted, Skipped
from tare.run.lifecycle.block_schedule import RunPart
from tare.run.lifecycle.folder import open_event_log
from tare.run.lifecycle.resume_checks import (
    changed,
    hosts_now,
    require_as_begun,
    require_same_host,
    require_same_images,
    require_same_plan,
    require_same_work,
)
from tare.run.lifecycle.setup import RunSetup, StudySource
from tare.run.lifecycle.versions import run_versions
from tare.run.preflight.arm_facts import require_still_usable, restored_facts
from tare.run.preflight.capacity import found_memory, require_room
from tare.run.preflight.checking import (
    Unprepared,
    check_arms,
    checked_events,
    facts_of,
    image_events,
    left_out,
    plan_study,
    prepare_arms,
    with_possible_baseline,
)

if TYPE_CHECKING:
    from tare.events import PlatformChecked
    from tare.platforms.contract import Prepared, Verdict
    from tare.run.lifecycle.folder import RunFolder
    from tare.study.model.study import Study
    from tare.study.planning.plan import ArmFacts, Plan, Skip


async def execute(
    setup: RunSetup,
    study: Study,
    source: StudySource,
    folder: RunFolder,
    run: str,
    seed: int,
    fold: Fold,
    part: RunPart | None = None,
) -> RunFinished | None:
    """Run a study from its beginning.

    Args:
        setup: The hosts, workloads and callbacks of the run.
        study: The study to run.
        source: The origin of the study.
        folder: The run's folder.
        run: The run's identity.
        seed: Determines the order of everything.
        fold: Takes the run's events as they happen.
        part: The blocks of this host, if several hosts share the run; None: all blocks.

    Returns:
        The last event, or None when the run was interrupted and can be resumed, or is shared.
    """
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
        # An arm that cannot boot on this host is skipped, like one that cannot run on it.
        if before is not None or study.baseline in error.arms:
            raise
        verdicts = left_out(verdicts, error)
        plan, facts, prepared = await planned(verdicts)
    if before is not None:
        require_same_work(before, plan, prepared)
    with open_event_log(folder) as log:
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
        record_plan(log, fold, checked, plan, prepared)
        # Imported here, so that the run has started by then.
        from tare.run.lifecycle.execution import Execution

        execution = Execution(setup, study, plan, prepared, folder, log, run, fold, part)
        return await execution.run()


async def resume(
    setup: RunSetup,
    study: Study,
    started: RunStarted,
    fold: Fold,
    folder: RunFolder,
    *,
    accept: bool = False,
) -> RunFinished | None:
    """Resume an interrupted run at its first unfinished cell.

    Args:
        setup: The hosts, workloads and callbacks of the run.
        study: The run's study.
        started: The run's first event.
        fold: The fold of its events so far; takes those that follow.
        folder: The run's folder.
        accept: Whether to resume though hosts, versions or capabilities have changed.

    Raises:
        InputError: An arm cannot run any more, its image has changed since the run began, or
            another change is not accepted.
    """
    verdicts = await check_arms(setup, study)
    require_still_usable(fold.platforms, verdicts)
    found = changed(fold, study, setup, verdicts, run_versions())
    differing = require_as_begun(found, folder.path, accepted=accept)
    facts = restored_facts(fold.platforms, facts_of(setup, study, verdicts))
    plan = plan_study(setup, study, started.seed, facts)
    require_same_plan(fold, plan)
    prepared = await prepare_arms(setup, study, plan)
    require_same_images(fold, prepared)
    with open_event_log(folder) as log:
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
        record_plan(log, fold, checked, plan, prepared, repeat=bool(differing))
        from tare.run.lifecycle.execution import Execution

        execution = Execution(setup, study, plan, prepared, folder, log, started.run, fold)
        return await execution.run()


def _subscribe(setup: RunSetup, log: EventLog, fold: Fold) -> None:
    log.subscribe(fold.take)
    for subscriber in setup.subscribers:
        log.subscribe(subscriber)


def record_plan(
    log: EventLog,
    fold: Fold,
    checked: Sequence[PlatformChecked],
    plan: Plan,
    prepared: Mapping[str, Prepared],
    *,
    repeat: bool = False,
) -> None:
    """Append the events that precede the first block, unless a former process did so.

    Args:
        log: The run's event log.
        fold: The run's events so far.
        checked: The result of the check of each arm.
        plan: The run's plan.
        prepared: The image that each arm boots.
        repeat: Whether to append the checks again, because capabilities have changed.
    """
    for event in checked:
        if repeat or event.arm not in fold.platforms:
            log.append(event)
    if fold.planned is not None:
        return
    record_skips(log, plan.skipped)
    for image in image_events(prepared):
        log.append(image)
    log.append(
        Planned(
            blocks_most=plan.study.blocks.most,
            cells_per_block=sum(len(batch.cells) for batch in plan.block(1)),
            expected_block_s=plan.block_s,
            notes=plan.notes,
        )
    )


def record_skips(log: EventLog, skipped: Iterable[Skip]) -> None:
    """Append an event for each skipped part of the study, with its reason."""
    for skip in skipped:
        log.append(
            Skipped(
                arm=skip.arm, scenario=skip.scenario, workload=skip.workload, reason=skip.reason
            )
        )
