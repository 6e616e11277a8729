"""Execution of a plan by one process: block after block until a decision to stop."""

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
)
from tare.run.cells.batch import BatchRunner
from tare.run.cells.cell_context import CellContext
from tare.run.cells.placement import OtherHosts, ReadyArm
from tare.run.cells.plausibility import Clocks
from tare.run.cells.steps import run_step, steps
from tare.run.hosts.host_facts import find_caches
from tare.run.lifecycle.block_schedule import AssignedBlock, Pace, RunPart
from tare.run.lifecycle.cell_counts import (
    Status,
    account,
    failing_arms,
    require_worth,
    run_finished,
    unfinished,
)
from tare.run.lifecycle.early_work import BeforeCells
from tare.run.lifecycle.folder import resume_command
from tare.run.lifecycle.interrupt import StopRequest, listening
from tare.run.lifecycle.setup import Decision, RunSetup, platform_of
from tare.run.preflight.checking import arm_shape, is_realtime
from tare.run.preflight.noise import noise_check
from tare.run.preflight.toolbox import study_needs
from tare.units import format_duration
from tare.workloads import MachineFacts

if TYPE_CHECKING:
    from tare.platforms.contract import Prepared
    from tare.run.lifecycle.folder import RunFolder
    from tare.study.model.study import Study
    from tare.study.planning.plan import Plan


class Execution:
    """The execution of a run, or of one part of it, by this process."""

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
        part: RunPart | None = None,
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
        self._began = time.monotonic() - fold.wall_s

    async def run(self) -> RunFinished | None:
        """Run the remaining blocks of the run, or of this process's part of it.

        Returns:
            The last event, or None when the run was interrupted and can be resumed, or is shared.
        """
        task = asyncio.current_task()
        assert task is not None
        stop = StopRequest(task, self._record_interruption, self._leave)
        resume = resume_command(self._folder.path, self._fold.started) if self._part is None else ""
        with listening(stop, self._folder.path, resume):
            try:
                await self._blocks(stop)
            except (asyncio.CancelledError, TareError, OSError) as error:
                if stop.now:
                    # If a host is lost during clean-up, its fault replaces the cancellation. The
                    # run was stopped by request nevertheless.
                    task.uncancel()
                    return None
                if not isinstance(error, TareError):
                    raise
                return self._finish("failed", str(error))
        if stop.finishing:
            self._leave()
        if stop.finishing or self._part is not None:
            return None
        return self._finish("complete", self._fold.decided.reason if self._fold.decided else "")

    def _leave(self) -> None:
        for run_host in self._setup.run_hosts.values():
            run_host.context.leaving.leave()

    async def _blocks(self, stop: StopRequest) -> None:
        checks, noise = await self._setup.preflight(), await self._setup.noise()
        self._log.append(Preflight(checks=(*checks, *map(noise_check, noise))))
        for each in noise:
            self._log.append(each)
        before_cells = BeforeCells(self._calibrate)
        before_cells.begin()
        # Another computer may be rebooted for the first arm, and cannot be calibrated meanwhile.
        if not all(run_host.here for run_host in self._setup.run_hosts.values()):
            await before_cells.done()
        try:
            await self._blocks_after(before_cells, stop)
        finally:
            await before_cells.abandon()

    async def _calibrate(self) -> None:
        for each in await self._setup.calibrate():
            self._log.append(each)

    async def _blocks_after(self, before_cells: BeforeCells, stop: StopRequest) -> None:
        arms = await self._ready_arms()
        # Names of machines are unique within a run, because cells refer to logs by them.
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
                    before_cells=before_cells,
                )
                for name, run_host in self._setup.run_hosts.items()
            }
            if self._part is None:
                await self._run_blocks(stop, runners)
            else:
                await self._given_blocks(stop, runners, self._part)

    async def _given_blocks(
        self, stop: StopRequest, runners: Mapping[str, BatchRunner], part: RunPart
    ) -> None:
        async for given in part.blocks:
            await self._block(runners, stop, given)
            if stop.finishing:
                return

    async def _cells_on(self, host: str, held: AsyncExitStack) -> CellContext:
        """Return the context that all cells on a host share."""
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
            probe_kinds=self._setup.probe_kinds,
            clocks=Clocks(virtual=run_host.counts_instructions),
            hands_off=run_host.counts_instructions,
        )

    async def _run_blocks(self, stop: StopRequest, runners: Mapping[str, BatchRunner]) -> None:
        pace = Pace(self._study.blocks.every, lambda: stop.finishing)
        for block in range(1, self._study.blocks.most + 1):
            if any(pending for _, pending in unfinished(self._plan, block, self._fold.finished)):
                await pace.wait()
            await self._block(runners, stop, AssignedBlock(block))
            if stop.finishing:
                return
            self._end_failing_arms(block)
            if not self._wants_another(block):
                return

    def _end_failing_arms(self, block: int) -> None:
        """End the arms that have failed too often; former processes did so for older blocks.

        Raises:
            TareError: The run is not worth continuing.
        """
        if block == max(self._fold.block.finished):
            for ended in failing_arms(self._plan, self._fold, block):
                self._log.append(ended)
        ended_by_now = [each for each in self._fold.arms_ended if each.block <= block]
        require_worth(ended_by_now, self._study.baseline, strict=self._setup.strict)

    async def _block(
        self, runners: Mapping[str, BatchRunner], stop: StopRequest, given: AssignedBlock
    ) -> None:
        block = given.number
        ended = {each.arm for each in self._fold.arms_ended if each.block < block}
        ended |= given.ended
        batches = [
            (batch, pending)
            for batch, pending in unfinished(self._plan, block, self._fold.settled | given.settled)
            if batch.arm not in ended
        ]
        at_once = steps(batches, paired=self._study.blocks.paired)
        if not at_once:
            # The former process ended after the last cell, but before the event of the block.
            if given.whole and block not in self._fold.block.finished:
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
            runner = runners[step[0][0].host]
            await run_step(runner, step, by_turns=self._study.blocks.turns)
        if given.whole and not stop.finishing:
            self._log.append(BlockFinished(block=block))

    def _wants_another(self, block: int) -> bool:
        decided = self._fold.decided
        if decided is not None and decided.block >= block:
            return decided.go_on
        decision = self._over_budget(block) or self._setup.decide(self._study, self._fold, block)
        self._log.append(Decided(block=block, go_on=decision.continues, reason=decision.reason))
        return decision.continues

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

    def _record_interruption(self, finishing: bool, reason: str) -> None:
        self._log.append(Interrupted(finishing=finishing, reason=reason))

    def _finish(self, status: Status, reason: str) -> RunFinished:
        counted = None if self._part is None else self._part.account
        cells = account(self._plan, self._fold) if counted is None else counted()
        wall_s = time.monotonic() - self._began
        finished = run_finished(cells, self._fold, self._study.baseline, status, reason, wall_s)
        self._log.append(finished)
        return finished
