"""Carry out one step of a block: one batch or two at once, again after a passing fault."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tare.errors import HostFroze, MachineFault, TareError, WorkloadFault
from tare.run.cells.batch import BatchRunner
from tare.run.cells.duet import Side
from tare.run.cells.tries import Tries
from tare.study.planning.cells import Batch, Cell, cell_label

Step = tuple[tuple[Batch, list[Cell]], ...]
"""What is measured at once: batches, each with its cells that are not finished."""


def steps(batches: Sequence[tuple[Batch, list[Cell]]], *, paired: bool) -> list[Step]:
    """Return what is measured one after another: batches, or two whose machines are up at once.

    Args:
        batches: Those of a block in order, each with its cells that are not finished.
        paired: Whether the two of a scenario belong together; one without its partner is left out.
    """
    if not paired:
        return [(each,) for each in batches if each[1]]
    scenarios = dict.fromkeys(batch.scenario for batch, _ in batches)
    found = [tuple(each for each in batches if each[0].scenario == name) for name in scenarios]
    return [step for step in found if len(step) == 2 and any(pending for _, pending in step)]


async def carry_out(runner: BatchRunner, step: Step, *, by_turns: bool) -> None:
    """Run the cells of one step that are not finished; one that fails is logged with its reason.

    Args:
        runner: Boots and measures batches on their host.
        step: What is measured at once.
        by_turns: Whether two batches work by turns, and not at the same time.
    """
    batches = [batch for batch, _ in step]
    cells = [pending for _, pending in step]
    if len(step) > 1:
        # A cell that only one of the two has finished is measured by both again.
        wanted = {cell_label(cell.id) for pending in cells for cell in pending}
        cells = [[cell for cell in each.cells if cell_label(cell.id) in wanted] for each in batches]
    await _Repeated(runner, batches, [list(each) for each in cells], by_turns).carry_out()


class _Repeated:
    """Measures batches, and boots their machines again as long as that may help.

    A cell that fails never ends the run.
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

    async def carry_out(self) -> None:
        # What fails before anything is booted must not point to the logs of another arm.
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
                # A cell that was begun is counted already, whatever broke after it.
                self._tries.at_least(first, tried + 1)
            for batch, first, end in zip(self._batches, firsts, ends, strict=True):
                if isinstance(end, HostFroze):
                    self._tries.freeze(end, batch, first, self._runner.cells)
            passing = all(isinstance(each, MachineFault) and each.transient for each in faults)
            again = all(self._tries.may_again(first) for first in firsts)
            if passing and again and not self._tries.spoilt:
                continue
            for each, cells, end in zip(runners, self._cells, ends, strict=True):
                lone = WorkloadFault(f"the arm beside it failed: {faults[0]}")
                each.fail(cells, end if isinstance(end, TareError) else lone)
            return

    def _runners(self) -> list[BatchRunner]:
        """Return what each batch is measured by."""
        if len(self._batches) == 1:
            return [self._runner]
        return [self._runner.for_partner() for _ in self._batches]

    async def _measure(self, runners: Sequence[BatchRunner]) -> list[list[Cell] | TareError]:
        """Return for each batch the cells that another boot is needed for, or what it failed of."""
        if len(runners) == 1:
            return [await self._one(runners[0], self._batches[0], self._cells[0], None)]
        # One after the other: what is cleared away must not be what the other has just made.
        for runner, batch in zip(runners, self._batches, strict=True):
            try:
                await runner.host_for(batch)
            except TareError as fault:
                return [fault for _ in runners]
        drawn_by = self._cells[0][0].id if self._by_turns else None
        sides = Side.two([batch.arm for batch in self._batches], drawn_by)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._one(*each))
                for each in zip(runners, self._batches, self._cells, sides, strict=True)
            ]
        return [task.result() for task in tasks]

    async def _one(
        self, runner: BatchRunner, batch: Batch, cells: list[Cell], side: Side | None
    ) -> list[Cell] | TareError:
        try:
            return await runner.boot_and_measure(batch, cells, self._tries, side)
        except TareError as fault:
            return await runner.why(fault)
        finally:
            if side is not None:
                side.leave()
