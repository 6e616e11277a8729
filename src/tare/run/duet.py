"""Carry out two batches at once: each cell begins in both together, or it is no duet."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from tare.errors import MachineFault, TareError, WorkloadFault
from tare.study.cells import cell_label

if TYPE_CHECKING:
    from tare.run.batch import BatchRunner
    from tare.study.cells import Batch, Cell

DUET = "duet"
"""The fact of a cell that tells who was beside it, and for which share of its time."""
TRIES = 2

Step = tuple[tuple["Batch", list["Cell"]], ...]
"""What is measured at once: batches, each with its cells that are not finished."""


def steps(batches: Sequence[tuple[Batch, list[Cell]]], *, duet: bool) -> list[Step]:
    """Return what is measured one after another: batches, or of duets two at once.

    Args:
        batches: Those of a block in order, each with its cells that are not finished.
        duet: Whether the two of a scenario belong together; one without its partner is left out.
    """
    if not duet:
        return [(each,) for each in batches if each[1]]
    scenarios = dict.fromkeys(batch.scenario for batch, _ in batches)
    found = [tuple(each for each in batches if each[0].scenario == name) for name in scenarios]
    return [step for step in found if len(step) == 2 and any(pending for _, pending in step)]


async def carry_out(runner: BatchRunner, step: Step) -> None:
    """Run the cells of one step that are not finished; one that fails is told of.

    Args:
        runner: Carries batches out on their host.
        step: What is measured at once.
    """
    if len(step) == 1:
        await runner.carry_out(*step[0])
        return
    # A cell that only one of the two has finished is measured by both anew.
    wanted = {cell_label(cell.id) for _, pending in step for cell in pending}
    batches = tuple(batch for batch, _ in step)
    cells = [[cell for cell in each.cells if cell_label(cell.id) in wanted] for each in batches]
    await _Duet(runner, batches, cells).carry_out()


class _Duet:
    def __init__(
        self, runner: BatchRunner, batches: Sequence[Batch], cells: Sequence[list[Cell]]
    ) -> None:
        self._runner = runner
        self._batches = batches
        self._cells = cells
        self._attempts: dict[str, int] = {}

    async def carry_out(self) -> None:
        while self._cells[0] and not self._runner.stop.finishing:
            firsts = [cells[0].id for cells in self._cells]
            before = [self._attempts.get(first, 0) for first in firsts]
            # Each has the newest machine's name for itself; what is left on the host, together.
            runners = [replace(self._runner, newest="") for _ in self._batches]
            ends = await self._both(runners)
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
                self._attempts[first] = max(self._attempts.get(first, 0), tried + 1)
            passing = all(isinstance(each, MachineFault) and each.transient for each in faults)
            if passing and max(self._attempts[first] for first in firsts) < TRIES:
                continue
            for each, cells, end in zip(runners, self._cells, ends, strict=True):
                lone = WorkloadFault(f"the other arm of the duet failed: {faults[0]}")
                each.fail(cells, end if isinstance(end, TareError) else lone)
            return

    async def _both(self, runners: Sequence[BatchRunner]) -> list[list[Cell] | TareError]:
        # One after the other: what is cleared away must not be what the other has just made.
        for runner, batch in zip(runners, self._batches, strict=True):
            try:
                await runner.host_for(batch)
            except TareError as fault:
                return [fault for _ in runners]
        sides = Side.two([batch.arm for batch in self._batches])
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._one(*each))
                for each in zip(runners, self._batches, self._cells, sides, strict=True)
            ]
        return [task.result() for task in tasks]

    async def _one(
        self, runner: BatchRunner, batch: Batch, cells: list[Cell], side: Side
    ) -> list[Cell] | TareError:
        try:
            return await runner.boot_and_measure(batch, cells, self._attempts, side)
        except TareError as fault:
            return fault
        finally:
            side.leave()


class _News:
    """Wakes all who wait for something to have changed."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def tell(self) -> None:
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self) -> None:
        await self._event.wait()


class Side:
    """One arm of a duet, as it keeps step with the other.

    Args:
        arm: Its name.
        news: Shared with the other side.
    """

    def __init__(self, arm: str, news: _News) -> None:
        self.arm = arm
        self.partner: Side = self
        self._news = news
        self._reached = -1
        self._ready: set[int] = set()
        self._gone = False
        self._began: dict[int, float] = {}
        self._ended: dict[int, float] = {}

    @classmethod
    def two(cls, arms: Sequence[str]) -> tuple[Self, Self]:
        """Return the two sides of a duet."""
        news = _News()
        first, second = (cls(arm, news) for arm in arms)
        first.partner, second.partner = second, first
        return first, second

    def leave(self) -> None:
        """Say that this side measures no more, so that nobody waits for it."""
        self._gone = True
        self._news.tell()

    async def meets(self, cell: int) -> bool:
        """Wait for the other side before a cell; return whether it came so far.

        Args:
            cell: The cell's place in the batch, from 0.
        """
        self._reached = cell
        self._news.tell()
        while self.partner._reached < cell and not self.partner._gone:
            await self._news.wait()
        return self.partner._reached >= cell

    async def begin(self, cell: int) -> None:
        """Wait until both can begin a cell at once.

        Raises:
            WorkloadFault: The other side cannot.
        """
        self._ready.add(cell)
        self._news.tell()
        other = self.partner
        while cell not in other._ready and other._reached <= cell and not other._gone:
            await self._news.wait()
        if cell not in other._ready:
            raise WorkloadFault(
                f"nothing ran beside it: {other.arm}, the other arm of the duet, could not begin "
                "this cell"
            )
        self._began[cell] = time.monotonic()

    def end(self, cell: int) -> None:
        """Note that the work of a cell has ended."""
        self._ended[cell] = time.monotonic()

    def overlap(self, cell: int) -> float:
        """Return for which share of a cell's time the other side was at work too."""
        began, ended = self._began[cell], self._ended[cell]
        other = self.partner
        from_s = max(began, other._began.get(cell, ended))
        until_s = min(ended, other._ended.get(cell, ended))
        return max(until_s - from_s, 0.0) / max(ended - began, 1e-9)

    def facts(self, cell: int) -> dict[str, Any]:
        """Return what a cell's record keeps of its being one half of a duet."""
        return {DUET: {"beside": self.partner.arm, "share": self.overlap(cell)}}


@dataclass(frozen=True)
class InStep:
    """One cell of one side of a duet."""

    side: Side
    cell: int

    async def begin(self) -> None:
        """Wait until both can begin; raises WorkloadFault where the other side cannot."""
        await self.side.begin(self.cell)

    def end(self) -> None:
        """Note that the work has ended."""
        self.side.end(self.cell)

    def facts(self) -> dict[str, Any]:
        """Return what the cell's record keeps of it."""
        return self.side.facts(self.cell)
