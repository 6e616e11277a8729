"""Carry out two batches at once: each cell begins in both together, or both work by turns."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tare.errors import HostFroze, MachineFault, TareError, WorkloadFault
from tare.events.cell_facts import CellFacts
from tare.run.tries import Tries
from tare.run.turns import Floor, Undivided
from tare.study.cells import cell_label

if TYPE_CHECKING:
    from tare.run.batch import BatchRunner
    from tare.study.cells import Batch, Cell

Step = tuple[tuple["Batch", list["Cell"]], ...]
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
    """Run the cells of one step that are not finished; one that fails is told of.

    Args:
        runner: Carries batches out on their host.
        step: What is measured at once.
        by_turns: Whether two batches work by turns, and not at the same time.
    """
    if len(step) == 1:
        await runner.carry_out(*step[0])
        return
    # A cell that only one of the two has finished is measured by both anew.
    wanted = {cell_label(cell.id) for _, pending in step for cell in pending}
    batches = tuple(batch for batch, _ in step)
    cells = [[cell for cell in each.cells if cell_label(cell.id) in wanted] for each in batches]
    await _Two(runner, batches, cells, by_turns).carry_out()


class _Two:
    def __init__(
        self,
        runner: BatchRunner,
        batches: Sequence[Batch],
        cells: Sequence[list[Cell]],
        by_turns: bool,
    ) -> None:
        self._by_turns = by_turns
        self._runner = runner
        self._batches = batches
        self._cells = cells
        self._tries = Tries()

    async def carry_out(self) -> None:
        while self._cells[0] and not self._runner.stop.finishing:
            firsts = [cells[0] for cells in self._cells]
            before = [self._tries.began(first) for first in firsts]
            runners = [self._runner.for_partner() for _ in self._batches]
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

    async def _both(self, runners: Sequence[BatchRunner]) -> list[list[Cell] | TareError]:
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
        self, runner: BatchRunner, batch: Batch, cells: list[Cell], side: Side
    ) -> list[Cell] | TareError:
        try:
            return await runner.boot_and_measure(batch, cells, self._tries, side)
        except TareError as fault:
            return await runner.why(fault)
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


class _Floors:
    """Whose turn it is, cell by cell.

    Args:
        drawn_by: The seed of which side is first.
    """

    sides: tuple[Side, Side]

    def __init__(self, drawn_by: str) -> None:
        self._drawn_by = drawn_by
        self._found: dict[int, Floor] = {}

    def of(self, cell: int) -> Floor:
        """Return the floor of a cell, by its place in the batch."""
        if cell not in self._found:
            chance = random.Random(f"{self._drawn_by}/{cell}")
            self._found[cell] = Floor(cell, self.sides, chance)
        return self._found[cell]


class Side:
    """One of two arms that are up at once, as it keeps step with the other.

    Args:
        arm: Its name.
        news: Shared with the other side.
        floors: Whose turn it is in each cell, shared too; None: both work at the same time.
    """

    def __init__(self, arm: str, news: _News, floors: _Floors | None) -> None:
        self.arm = arm
        self.partner: Side = self
        self.news = news
        self._floors = floors
        self._reached = -1
        self._ready: set[int] = set()
        self._over: set[int] = set()
        self._gone = False
        self._abreast: Counter[int] = Counter()
        self._began: dict[int, float] = {}
        self._ended: dict[int, float] = {}

    @classmethod
    def two(cls, arms: Sequence[str], drawn_by: str | None = None) -> tuple[Side, Side]:
        """Return two sides.

        Args:
            arms: Their names.
            drawn_by: The seed of which is first, where they work by turns; None: they do not.
        """
        news = _News()
        floors = None if drawn_by is None else _Floors(drawn_by)
        first, second = (cls(arm, news, floors) for arm in arms)
        first.partner, second.partner = second, first
        if floors is not None:
            floors.sides = first, second
        return first, second

    @property
    def by_turns(self) -> bool:
        """Whether one is at work while the other waits."""
        return self._floors is not None

    def leave(self) -> None:
        """Say that this side measures no more, so that nobody waits for it."""
        self._gone = True
        self.news.tell()

    async def meets(self, cell: int) -> bool:
        """Wait for the other side before a cell; return whether it came so far.

        Args:
            cell: The cell's place in the batch, from 0.
        """
        self._reached = cell
        self.news.tell()
        while self.partner._reached < cell and not self.partner._gone:
            await self.news.wait()
        return self.partner._reached >= cell

    def turn(self, cell: int) -> AbstractAsyncContextManager[None]:
        """Return a turn in a cell, to be held; where both work at once nobody waits for it."""
        if self._floors is None:
            return Undivided().turn()
        return self._floors.of(cell).turn(self)

    def wants_turns(self, cell: int) -> bool:
        """Return whether this side may ask for a turn in a cell before the other has had one."""
        return self._is_in(cell) and self._abreast[cell] <= self._others_abreast(cell)

    def _is_in(self, cell: int) -> bool:
        return self._reached == cell and cell not in self._over and not self._gone

    def _others_abreast(self, cell: int) -> float:
        """Return how often the other has come abreast in a cell; it is not waited for for ever."""
        return self.partner._abreast[cell] if self.partner._is_in(cell) else math.inf

    async def abreast(self, cell: int) -> None:
        """Wait, between turns, until the other side has called this as often, or is not there."""
        if self._floors is None:
            return
        self._abreast[cell] += 1
        if self._abreast[cell] == self._others_abreast(cell):
            self._floors.of(cell).begin_pair()
        self.news.tell()
        while self._abreast[cell] > self._others_abreast(cell):
            await self.news.wait()

    async def begin(self, cell: int) -> None:
        """Wait until both can begin a cell at once; by turns neither waits.

        Raises:
            WorkloadFault: The other side cannot.
        """
        self._ready.add(cell)
        self.news.tell()
        other = self.partner
        while not self.by_turns and (
            cell not in other._ready and other._reached <= cell and not other._gone
        ):
            await self.news.wait()
        if not self.by_turns and cell not in other._ready:
            raise WorkloadFault(
                f"nothing ran beside it: {other.arm}, the other arm of the duet, could not begin "
                "this cell"
            )
        self._began[cell] = time.monotonic()

    async def over(self, cell: int) -> None:
        """Want no further turn in a cell, and wait until the other side wants none."""
        self._over.add(cell)
        self.news.tell()
        while self.partner._is_in(cell):
            await self.news.wait()

    def end(self, cell: int) -> None:
        """Note that the work of a cell has ended."""
        self._ended[cell] = time.monotonic()
        self._over.add(cell)

    def overlap(self, cell: int) -> float:
        """Return for which share of a cell's time the other side was at work too."""
        began, ended = self._began[cell], self._ended[cell]
        other = self.partner
        from_s = max(began, other._began.get(cell, ended))
        until_s = min(ended, other._ended.get(cell, ended))
        return max(until_s - from_s, 0.0) / max(ended - began, 1e-9)

    def facts(self, cell: int) -> CellFacts:
        """Return what a cell's record keeps of the arm beside it."""
        if self.by_turns:
            return {"turns": {"with": self.partner.arm}}
        return {"duet": {"beside": self.partner.arm, "share": self.overlap(cell)}}


@dataclass(frozen=True)
class InStep:
    """One cell of one side."""

    side: Side
    cell: int

    @property
    def by_turns(self) -> bool:
        """Whether one side is at work while the other waits."""
        return self.side.by_turns

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Return a turn, to be held."""
        return self.side.turn(self.cell)

    async def begin(self) -> None:
        """Wait until both can begin; raises WorkloadFault where the other side cannot."""
        await self.side.begin(self.cell)

    async def abreast(self) -> None:
        """Wait until the other side has come as far."""
        await self.side.abreast(self.cell)

    async def over(self) -> None:
        """Want no further turn, and wait until the other side wants none."""
        await self.side.over(self.cell)

    def end(self) -> None:
        """Note that the work has ended."""
        self.side.end(self.cell)

    def facts(self) -> CellFacts:
        """Return what the cell's record keeps of it."""
        return self.side.facts(self.cell)
