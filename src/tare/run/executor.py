"""Carry out a plan: check, prepare, then block after block until it is decided to stop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from itertools import count
from typing import TYPE_CHECKING

from tare.errors import TareError
from tare.events import (
    BlockFinished,
    BlockStarted,
    Decided,
    EventLog,
    Fold,
    Interrupted,
    Preflight,
    RunFinished,
    RunResumed,
    RunStarted,
)
from tare.run.account import (
    Status,
    account,
    failing_arms,
    require_worth,
    run_finished,
    unfinished,
)
from tare.run.appending import appending
from tare.run.arm_facts import require_still_usable, restored_facts
from tare.run.batch import BatchRunner
from tare.run.beginning import tell_plan
from tare.run.believable import Clocks
from tare.run.caches import find_caches
from tare.run.cell import CellContext
from tare.run.checking import (
    arm_shape,
    check_arms,
    checked_events,
    facts_of,
    is_realtime,
    plan_study,
    prepare_arms,
)
from tare.run.duet import carry_out, steps
from tare.run.interrupt import StopRequest, listening
from tare.run.pacing import Pace
from tare.run.part import Part
from tare.run.rejoining import require_same_host, require_same_work
from tare.run.resuming import (
    changed,
    hosts_now,
    require_as_begun,
    require_same_images,
    require_same_plan,
)
from tare.run.room import found_memory, require_room
from tare.run.setup import Decision, RunSetup, StudySource, platform_of
from tare.run.sites import OtherHosts, ReadyArm
from tare.run.slow_libraries import SlowLibraries
from tare.run.toolbox import study_needs
from tare.run.versions import run_versions
from tare.study.quantities import format_duration
from tare.workloads import MachineFacts

if TYPE_CHECKING:
    from tare.platforms.contract import Prepared
    from tare.run.folder import RunFolder
    from tare.study.model import Study
    from tare.study.plan import Plan


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
    facts = facts_of(setup, study, verdicts)
    before = None if part is None else part.before
    if before is not None:
        require_same_host(before, study, setup, verdicts)
        facts = restored_facts({event.arm: event for event in before.checked}, facts)
    plan = plan_study(setup, study, seed, facts)
    await require_room(study, plan, setup, found_memory(study, setup), setup.context.builder)
    prepared = await prepare_arms(setup, study, plan)
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
        execution = _Execution(
            setup, study, plan, prepared, folder, log, run, fold, libraries, part
        )
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
        execution = _Execution(
            setup, study, plan, prepared, folder, log, started.run, fold, libraries
        )
        return await execution.carry_out()


def _subscribe(setup: RunSetup, log: EventLog, fold: Fold) -> None:
    log.subscribe(fold.take)
    for subscriber in setup.subscribers:
        log.subscribe(subscriber)


class _Execution:
    """One process's part in carrying out a run."""

    def __init__(
        self,
        setup: RunSetup,
        study: Study,
        plan: Plan,
        prepared: Mapping[str, Prepared],
        folder: RunFolder,
        log: EventLog,
        run: str,
        fold: Fold,
        libraries: SlowLibraries,
        part: Part | None = None,
    ) -> None:
        self._part = part
        self._setup = setup
        self._study = study
        self._plan = plan
        self._prepared = prepared
        self._folder = folder
        self._log = log
        self._run = run
        self._fold = fold
        self._libraries = libraries
        self._began = time.monotonic() - fold.wall_s

    async def carry_out(self) -> RunFinished | None:
        task = asyncio.current_task()
        assert task is not None
        stop = StopRequest(task, self._tell_interrupted)
        with listening(stop):
            try:
                await self._blocks(stop)
            except asyncio.CancelledError:
                if not stop.now:
                    raise
                task.uncancel()
                return None
            except TareError as error:
                return self._finish("failed", str(error))
        if stop.finishing or self._part is not None:
            return None
        return self._finish("complete", self._fold.decided.reason if self._fold.decided else "")

    async def _blocks(self, stop: StopRequest) -> None:
        self._log.append(Preflight(checks=await self._setup.preflight()))
        for each in await self._setup.calibrate():
            self._log.append(each)
        arms = await self._ready_arms()
        # No name of a machine comes twice in a run, or one's cells would point to another's log.
        numbers, others = count(len(self._fold.machines) + 1), OtherHosts(self._setup.run_hosts)
        async with AsyncExitStack() as held:
            runners = {
                name: BatchRunner(
                    run=self._run,
                    cells=await self._cells_on(name, held),
                    arms=arms,
                    run_host=run_host,
                    others=others,
                    stop=stop,
                    numbers=numbers,
                    libraries=self._libraries,
                )
                for name, run_host in self._setup.run_hosts.items()
            }
            if self._part is None:
                await self._all_blocks(stop, runners)
            else:
                await self._given_blocks(stop, runners, self._part)

    async def _given_blocks(
        self, stop: StopRequest, runners: Mapping[str, BatchRunner], part: Part
    ) -> None:
        async for given in part.blocks:
            await self._block(runners, stop, given.number, given.settled, given.ended)
            if stop.finishing:
                return

    async def _cells_on(self, host: str, held: AsyncExitStack) -> CellContext:
        """Return what all cells on a host are carried out with."""
        run_host = self._setup.run_hosts[host]
        tracing = None
        if any(batch.host_trace for batch in self._plan.batches if batch.host == host):
            tracing = await held.enter_async_context(run_host.tracing())
        return CellContext(
            folder=self._folder,
            log=self._log,
            workloads=self._setup.workloads,
            on_progress=self._setup.on_progress,
            tracing=tracing,
            clocks=Clocks(virtual=run_host.counts_instructions),
        )

    async def _all_blocks(self, stop: StopRequest, runners: Mapping[str, BatchRunner]) -> None:
        pace = Pace(self._study.blocks.every, lambda: stop.finishing)
        for block in range(1, self._study.blocks.most + 1):
            if any(pending for _, pending in unfinished(self._plan, block, self._fold.finished)):
                await pace.wait()
            await self._block(runners, stop, block)
            if stop.finishing:
                return
            self._end_failing_arms(block)
            if not self._wants_another(block):
                return

    def _end_failing_arms(self, block: int) -> None:
        """End the arms that have failed too often; what blocks of long ago say is told already.

        Raises:
            TareError: The run is not worth going on.
        """
        if block == max(self._fold.block.finished):
            for ended in failing_arms(self._plan, self._fold, block):
                self._log.append(ended)
        ended_by_now = [each for each in self._fold.arms_ended if each.block <= block]
        require_worth(ended_by_now, self._study.baseline, strict=self._setup.strict)

    async def _block(
        self,
        runners: Mapping[str, BatchRunner],
        stop: StopRequest,
        block: int,
        settled: frozenset[str] = frozenset(),
        ended_elsewhere: frozenset[str] = frozenset(),
    ) -> None:
        ended = {each.arm for each in self._fold.arms_ended if each.block < block}
        ended |= ended_elsewhere
        batches = [
            (batch, pending)
            for batch, pending in unfinished(self._plan, block, self._fold.settled | settled)
            if batch.arm not in ended
        ]
        at_once = steps(batches, duet=self._study.blocks.duet)
        if not at_once:
            # The former process ended between the last cell and the end of its block.
            if block not in self._fold.block.finished:
                self._log.append(BlockFinished(block=block))
            return
        self._log.append(
            BlockStarted(
                block=block, order=tuple(f"{batch.arm}/{batch.scenario}" for batch, _ in batches)
            )
        )
        for step in at_once:
            if stop.finishing:
                return
            await carry_out(runners[step[0][0].host], step)
        if not stop.finishing:
            self._log.append(BlockFinished(block=block))

    def _wants_another(self, block: int) -> bool:
        decided = self._fold.decided
        if decided is not None and decided.block >= block:
            return decided.go_on
        decision = self._over_budget(block) or self._setup.decide(self._study, self._fold, block)
        self._log.append(Decided(block=block, go_on=decision.go_on, reason=decision.reason))
        return decision.go_on

    def _over_budget(self, block: int) -> Decision | None:
        blocks = self._study.blocks
        spent_s = time.monotonic() - self._began
        if blocks.budget is None or block < blocks.least or spent_s < blocks.budget:
            return None
        return Decision(False, f"the budget of {format_duration(blocks.budget)} is spent")

    async def _ready_arms(self) -> dict[str, ReadyArm]:
        found = {
            host: await find_caches(run_host.context.host)
            for host, run_host in self._setup.run_hosts.items()
        }
        caches = {name: found[self._study.host_of(name)] for name in self._prepared}
        return {
            name: ReadyArm(
                name,
                platform_of(self._setup, self._study, name),
                self._study.arms[name].options,
                self._plan.kernel_of(name),
                prepared,
                arm_shape(self._study, name),
                is_realtime(self._setup, self._study),
                MachineFacts(
                    emulated=self._fold.platforms[name].emulated,
                    memory=arm_shape(self._study, name).memory,
                    last_level_cache=caches[name].last_level,
                    caches=caches[name].together,
                ),
                study_needs(self._setup, self._study),
                self._study.release_of(name),
            )
            for name, prepared in self._prepared.items()
        }

    def _tell_interrupted(self, finishing: bool, reason: str) -> None:
        self._log.append(Interrupted(finishing=finishing, reason=reason))

    def _finish(self, status: Status, reason: str) -> RunFinished:
        cells, wall_s = account(self._plan, self._fold), time.monotonic() - self._began
        finished = run_finished(cells, self._fold, self._study.baseline, status, reason, wall_s)
        self._log.append(finished)
        return finished
