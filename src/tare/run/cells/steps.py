"""One step of a block: one batch, or two at once, with a retry after a transient fault."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tare.errors import HostFroze, MachineFault, TareError, WorkloadFault
from tare.run.cells.batch import BatchRunner
from tare.run.cells.duet import Side
from tare.run.cells.tries import Tries
from tare.study.planning.cells import Batch, Cell, cell_label

Step = tuple[tuple[Batch, list[Cell]], ...]
"""Batches that are measured at once, each with its unfinished cells."""


def steps(batches: Sequence[tuple[Batch, list[Cell]]], *, paired: bool) -> list[Step]:
    """Return the steps of a block: single batches, or pairs whose machines run at once.

    Args:
        batches: The batches of a block in sequence, each with its unfinished cells.
        paired: Whether the two of a scenario form a pair; one without its partner is left out.
    """
    if not paired:
        return [(each,) for each in batches if each[1]]
    scenarios = dict.fromkeys(batch.scenario for batch, _ in batches)
    found = [tuple(each for each in batches if each[0].scenario == name) for name in scenarios]
    return [step for step in found if len(step) == 2 and any(pending for _, pending in step)]


async def run_step(runner: BatchRunner, step: Step, *, by_turns: bool) -> None:
    """Measure the unfinished cells of one step; a failed one is logged with its reason.

    Args:
        runner: Boots and measures batches on their host.
        step: The batches to measure at once.
        by_turns: Whether two batches work by turns instead of at the same time.
    """
    batches = [batch for batch, _ in step]
    cells = [pending for _, pending in step]
    if len(step) > 1:
        # A cell that only one of the two has finished is measured by both again.
        wanted = {cell_label(cell.id) for pending in cells for cell in pending}
        cells = [[cell for cell in each.cells if cell_label(cell.id) in wanted] for each in batches]
    await _Repeated(runner, batches, [list(each) for each in cells], by_turns).execute()


class _Repeated:
    """Measures batches, and boots their machines again while that may help.

    A failed cell never ends the run.
    """

    def __init__(
        self,
        runner: BatchRunner,
        batches: Sequence[Batch],
        cells: Sequence[list[Cell]],
        by_turns: bool,
    ) -> None:
        self._runner = runner
        self._batches = batches
        self._cells = cells
        self._by_turns = by_turns
        self._tries = Tries()

    async def execute(self) -> None:
        # A failure before the first boot must not refer to the logs of another arm.
        self._runner.newest = ""
        while self._cells[0] and not self._runner.stop.finishing:
            firsts = [cells[0] for cells in self._cells]
            before = [self._tries.began(first) for first in firsts]
            runners = self._runners()
            ends = await self._measure(runners)
            faults = [end for end in ends if isinstance(end, TareError)]
            if not faults:
                done = min(
                    len(cells) - len(left)
                    for cells, left in zip(self._cells, ends, strict=True)
                    if not isinstance(left, TareError)
                )
                self._cells = [cells[done:] for cells in self._cells]
                continue
            for first, tried in zip(firsts, before, strict=True):
                # A cell that was begun is counted already.
                self._tries.at_least(first, tried + 1)
            for batch, first, end in zip(self._batches, firsts, ends, strict=True):
                if isinstance(end, HostFroze):
                    self._tries.freeze(end, batch, first, self._runner.cells)
            passing = all(isinstance(each, MachineFault) and each.transient for each in faults)
            again = all(self._tries.may_again(first) for first in firsts)
            if passing and again and not self._tries.spoilt:
                continue
            for each, cells, end in zip(runners, self._cells, ends, strict=True):
                lone = WorkloadFault(f"the other arm failed: {faults[0]}")
                each.fail(cells, end if isinstance(end, TareError) else lone)
            return

    def _runners(self) -> list[BatchRunner]:
        """Return the runner of each batch."""
        if len(self._batches) == 1:
            return [self._runner]
        return [self._runner.for_partner() for _ in self._batches]

    async def _measure(self, runners: Sequence[BatchRunner]) -> list[list[Cell] | TareError]:
        """Return for each batch the cells that need another boot, or its fault."""
        if len(runners) == 1:
            return [await self._boot_one(runners[0], self._batches[0], self._cells[0], None)]
        # One after the other, so that one does not remove what the other has just created.
        for runner, batch in zip(runners, self._batches, strict=True):
            try:
                await runner.host_for(batch)
            except TareError as fault:
                return [fault for _ in runners]
        drawn_by = self._cells[0][0].id if self._by_turns else None
        sides = Side.two([batch.arm for batch in self._batches], drawn_by)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._boot_one(*each))
                for each in zip(runners, self._batches, self._cells, sides, strict=True)
            ]
        return [task.result() for task in tasks]

    async def _boot_one(
        self, runner: BatchRunner, batch: Batch, cells: list[Cell], side: Side | None
    ) -> list[Cell] | TareError:
        try:
            return await runner.boot_and_measure(batch, cells, self._tries, side)
        except TareError as fault:
            return await runner.why(fault)
        finally:
            if side is not None:
                side.leave()
