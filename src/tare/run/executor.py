"""Carry out a plan: check, prepare, then block after block until it is decided to stop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Literal

from tare.errors import InputError, TareError
from tare.events import (
    BlockFinished,
    BlockStarted,
    Decided,
    EventLog,
    Interrupted,
    Planned,
    Preflight,
    RunFinished,
    RunResumed,
    RunStarted,
    Skipped,
    read_events,
)
from tare.run.bench import Bench, Decision, StudySource
from tare.run.caches import find_caches
from tare.run.cell import CellContext
from tare.run.checking import (
    arm_shape,
    check_arms,
    checked_events,
    facts_of,
    image_events,
    is_realtime,
    plan_study,
    prepare_arms,
    recorded_facts,
)
from tare.run.hostside import HostTracing
from tare.run.interrupt import StopRequest, listening
from tare.run.state import RunState, fold
from tare.run.versions import run_versions
from tare.run.visit import ReadyArm, Visitor
from tare.study.quantities import format_duration
from tare.workloads import MachineFacts

if TYPE_CHECKING:
    from tare.platforms.base import Prepared
    from tare.run.folder import RunFolder
    from tare.study.model import Study
    from tare.study.plan import Cell, Plan, Visit


async def execute(
    bench: Bench, study: Study, source: StudySource, folder: RunFolder, run: str, seed: int
) -> RunFinished | None:
    """Carry a study out from its beginning.

    Returns:
        The last event, or None when the run was interrupted and can be resumed.
    """
    verdicts = await check_arms(bench, study)
    plan = plan_study(bench, study, seed, facts_of(bench, study, verdicts))
    prepared = await prepare_arms(bench, study, plan)
    with EventLog(folder.events) as log:
        _subscribe(bench, log)
        log.append(
            RunStarted(
                run=run,
                study=study.model_dump(mode="json"),
                study_path=source.path,
                study_sha256=source.sha256,
                seed=seed,
                host=dict(bench.station.facts),
                versions=run_versions(),
            )
        )
        for event in checked_events(bench, study, verdicts):
            log.append(event)
        for skip in plan.skipped:
            log.append(
                Skipped(
                    arm=skip.arm,
                    scenario=skip.scenario,
                    workload=skip.workload,
                    reason=skip.reason,
                )
            )
        for image in image_events(prepared):
            log.append(image)
        log.append(
            Planned(
                blocks_most=study.blocks.most,
                cells_per_block=sum(len(visit.cells) for visit in plan.block(1)),
                expected_block_s=plan.block_s,
                notes=plan.notes,
            )
        )
        return await _Execution(bench, study, plan, prepared, folder, log, run).carry_out()


async def resume(
    bench: Bench, study: Study, started: RunStarted, state: RunState, folder: RunFolder
) -> RunFinished | None:
    """Go on with an interrupted run at its first unfinished cell.

    Args:
        bench: What the run is carried out with.
        study: The run's study.
        started: The run's first event.
        state: The fold of its events so far.
        folder: The run's folder.

    Raises:
        InputError: What the run would boot has changed since it began.
    """
    verdicts = await check_arms(bench, study)
    recorded = recorded_facts(bench, study, state, verdicts)
    plan = plan_study(bench, study, started.seed, recorded)
    prepared = await prepare_arms(bench, study, plan)
    _require_same_images(state, prepared)
    with EventLog(folder.events) as log:
        _subscribe(bench, log)
        log.append(RunResumed(run=started.run, versions=run_versions()))
        return await _Execution(bench, study, plan, prepared, folder, log, started.run).carry_out()


def _require_same_images(state: RunState, prepared: Mapping[str, Prepared]) -> None:
    for arm, now in prepared.items():
        then = state.images.get(arm, now.digest)
        if then != now.digest:
            raise InputError(
                f"what arm {arm} boots has changed since the run began "
                f"({then[:12]} then, {now.digest[:12]} now), so its cells would not compare",
                "start a new run",
            )


def _subscribe(bench: Bench, log: EventLog) -> None:
    for subscriber in bench.subscribers:
        log.subscribe(subscriber)


class _Execution:
    """One process's part in carrying out a run."""

    def __init__(
        self,
        bench: Bench,
        study: Study,
        plan: Plan,
        prepared: Mapping[str, Prepared],
        folder: RunFolder,
        log: EventLog,
        run: str,
    ) -> None:
        self._bench = bench
        self._study = study
        self._plan = plan
        self._prepared = prepared
        self._folder = folder
        self._log = log
        self._run = run
        self._records = read_events(folder.events)
        self._state = fold(self._records)
        log.subscribe(self._records.append)
        log.subscribe(self._state.take)
        self._began = time.monotonic() - self._state.wall_s

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
            except OSError as error:
                raise TareError(
                    f"{self._folder.path}: {error.strerror or error}",
                    f"make room, then go on with: tare resume {self._folder.path}",
                ) from error
            except TareError as error:
                return self._finish("failed", str(error))
        if stop.finishing:
            return None
        return self._finish("complete", self._state.decided.reason if self._state.decided else "")

    async def _blocks(self, stop: StopRequest) -> None:
        self._log.append(Preflight(checks=await self._bench.preflight()))
        arms = await self._ready_arms()
        async with AsyncExitStack() as held:
            tracing = None
            if any(visit.host_trace for visit in self._plan.visits):
                tracing = await held.enter_async_context(self._bench.station.tracing())
            await self._all_blocks(stop, arms, tracing)

    async def _all_blocks(
        self, stop: StopRequest, arms: dict[str, ReadyArm], tracing: HostTracing | None
    ) -> None:
        visitor = Visitor(
            run=self._run,
            cells=CellContext(
                folder=self._folder,
                log=self._log,
                workloads=self._bench.workloads,
                on_progress=self._bench.on_progress,
                tracing=tracing,
                trusts_any_clock=self._bench.station.counts_instructions,
            ),
            arms=arms,
            station=self._bench.station,
            stop=stop,
        )
        for block in range(1, self._study.blocks.most + 1):
            await self._block(visitor, block)
            if stop.finishing or not self._wants_another(block):
                return

    async def _block(self, visitor: Visitor, block: int) -> None:
        visits = [(visit, self._pending(visit)) for visit in self._plan.block(block)]
        if not any(pending for _, pending in visits):
            return
        self._log.append(
            BlockStarted(
                block=block, order=tuple(f"{visit.arm}/{visit.scenario}" for visit, _ in visits)
            )
        )
        for visit, pending in visits:
            if visitor.stop.finishing:
                return
            if pending:
                await visitor.carry_out(visit, pending)
        if not visitor.stop.finishing:
            self._log.append(BlockFinished(block=block))

    def _pending(self, visit: Visit) -> list[Cell]:
        return [cell for cell in visit.cells if cell.id not in self._state.finished_cells]

    def _wants_another(self, block: int) -> bool:
        decided = self._state.decided
        if decided is not None and decided.block >= block:
            return decided.go_on
        decision = self._over_budget(block) or self._bench.decide(self._study, self._records, block)
        self._log.append(Decided(block=block, go_on=decision.go_on, reason=decision.reason))
        return decision.go_on

    def _over_budget(self, block: int) -> Decision | None:
        blocks = self._study.blocks
        spent_s = time.monotonic() - self._began
        if blocks.budget is None or block < blocks.least or spent_s < blocks.budget:
            return None
        return Decision(False, f"the budget of {format_duration(blocks.budget)} is spent")

    async def _ready_arms(self) -> dict[str, ReadyArm]:
        caches = await find_caches(self._bench.context.host)
        return {
            name: ReadyArm(
                name,
                self._bench.platforms[self._study.arms[name].platform],
                self._study.arms[name].options,
                self._study.kernel_of(name),
                prepared,
                arm_shape(self._study, name),
                is_realtime(self._bench, self._study),
                MachineFacts(
                    emulated=self._state.platforms[name].emulated,
                    memory=arm_shape(self._study, name).memory,
                    last_level_cache=caches.last_level,
                    caches=caches.together,
                ),
            )
            for name, prepared in self._prepared.items()
        }

    def _tell_interrupted(self, finishing: bool, reason: str) -> None:
        self._log.append(Interrupted(finishing=finishing, reason=reason))

    def _finish(self, status: Literal["complete", "stopped", "failed"], reason: str) -> RunFinished:
        finished = RunFinished(
            status=status,
            reason=reason,
            wall_s=time.monotonic() - self._began,
            booting_s=self._state.booting_s,
            measuring_s=self._state.measuring_s,
        )
        self._log.append(finished)
        return finished
