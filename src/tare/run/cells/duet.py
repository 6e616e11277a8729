"""Keep two arms in step that are up at once: cells begin in both together, or work by turns."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from tare.errors import WorkloadFault
from tare.events.cell_facts import CellFacts
from tare.run.cells.turns import Undivided

DUET, TURNS = "duet", "turns"
"""The facts of a cell that tell who was beside it: for which share of its time, or by turns."""


class _News:
    """Wakes all who wait for something to have changed."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def tell(self) -> None:
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self) -> None:
        await self._event.wait()


class Floor:
    """Gives the two sides of a cell their turns: one each, then one each again.

    Which is first is drawn, and is the other way round the next time: what disturbs the host at
    even intervals is then not always in the same side's turn.

    Args:
        cell: The cell's place in the batch, from 0.
        sides: Both.
        chance: Draws.
    """

    def __init__(self, cell: int, sides: tuple[Side, Side], chance: random.Random) -> None:
        self._cell = cell
        self._sides = sides
        self._chance = chance
        self._pairs: deque[tuple[Side, ...]] = deque()
        self._coming: deque[Side] = deque()
        self._taken = False

    @asynccontextmanager
    async def turn(self, side: Side) -> AsyncIterator[None]:
        """Hold a turn; the other side's is waited for.

        Args:
            side: Whose turn it is to be.
        """
        while self._taken or self._next() is not side:
            await side.news.wait()
        self._coming.popleft()
        self._taken = True
        try:
            yield
        finally:
            self._taken = False
            side.news.tell()

    def begin_pair(self) -> None:
        """Let the next turns be a pair, whatever was left of the one before."""
        self._coming.clear()

    def _next(self) -> Side:
        """Return whose turn it is, of those who want one; at least one of them does."""
        while True:
            if not self._coming:
                self._coming.extend(self._drawn())
            if self._coming[0].wants_turns(self._cell):
                return self._coming[0]
            self._coming.popleft()

    def _drawn(self) -> tuple[Side, ...]:
        if not self._pairs:
            first = tuple(self._chance.sample(self._sides, 2))
            self._pairs.extend((first, first[::-1]))
        return self._pairs.popleft()


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
        self._in_sync: Counter[int] = Counter()
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
        return self._is_in(cell) and self._in_sync[cell] <= self._others_in_sync(cell)

    def _is_in(self, cell: int) -> bool:
        return self._reached == cell and cell not in self._over and not self._gone

    def _others_in_sync(self, cell: int) -> float:
        """Return how often the other has come in sync in a cell; nobody waits for it for ever."""
        return self.partner._in_sync[cell] if self.partner._is_in(cell) else math.inf

    async def wait_in_sync(self, cell: int) -> None:
        """Wait, between turns, until the other side has called this as often, or is not there."""
        if self._floors is None:
            return
        self._in_sync[cell] += 1
        if self._in_sync[cell] == self._others_in_sync(cell):
            self._floors.of(cell).begin_pair()
        self.news.tell()
        while self._in_sync[cell] > self._others_in_sync(cell):
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

    async def wait_in_sync(self) -> None:
        """Wait until the other side has come as far."""
        await self.side.wait_in_sync(self.cell)

    async def over(self) -> None:
        """Want no further turn, and wait until the other side wants none."""
        await self.side.over(self.cell)

    def end(self) -> None:
        """Note that the work has ended."""
        self.side.end(self.cell)

    def facts(self) -> CellFacts:
        """Return what the cell's record keeps of it."""
        return self.side.facts(self.cell)
