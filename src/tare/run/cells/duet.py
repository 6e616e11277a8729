"""Two arms that run at once: their cells start together, or work by turns."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from tare.errors import WorkloadFault
from tare.events.cell_facts import CellFacts


class Turns(Protocol):
    """The turns of work that can pause between its parts."""

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Return a turn; while it is held, no other side works."""

    async def wait_in_sync(self) -> None:
        """Wait until the other side has reached this point, so that the next turns form a pair."""

    async def over(self) -> None:
        """Request no further turns, and wait until the other side needs none either.

        The remaining work, such as stopping servers and keeping results, needs no turn.
        """


class Undivided:
    """The turns of work that has its host for itself, which never wait."""

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Return a turn that begins at once."""
        return nullcontext()

    async def wait_in_sync(self) -> None:
        """Return at once."""

    async def over(self) -> None:
        """Return at once."""


class _Changes:
    """Wakes all tasks that wait for a change."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self) -> None:
        await self._event.wait()


class TurnTaking:
    """Assigns turns to the two sides of a cell: one to each, then one to each again.

    The first side is drawn at random, and the next pair has the reverse sequence, so that periodic
    disturbances of the host do not always hit the same side.

    Args:
        cell: The cell's index in the batch, from 0.
        sides: The two sides.
        chance: The random generator.
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
        """Wait for a turn and hold it.

        Args:
            side: The side that requests it.
        """
        while self._taken or self._next() is not side:
            await side.changes.wait()
        self._coming.popleft()
        self._taken = True
        try:
            yield
        finally:
            self._taken = False
            side.changes.notify()

    def begin_pair(self) -> None:
        """Start a new pair of turns, and drop the rest of the last one."""
        self._coming.clear()

    def _next(self) -> Side:
        """Return the side with the next turn, of those that need one; at least one does."""
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


class _TurnsOfCells:
    """The turns of all cells.

    Args:
        drawn_by: The seed for the first side.
    """

    sides: tuple[Side, Side]

    def __init__(self, drawn_by: str) -> None:
        self._drawn_by = drawn_by
        self._found: dict[int, TurnTaking] = {}

    def of(self, cell: int) -> TurnTaking:
        """Return the turns of a cell, by its index in the batch."""
        if cell not in self._found:
            chance = random.Random(f"{self._drawn_by}/{cell}")
            self._found[cell] = TurnTaking(cell, self.sides, chance)
        return self._found[cell]


class Side:
    """One of two arms that run at once, synchronised with the other.

    Args:
        arm: Its name.
        changes: Shared with the other side.
        turns: The turns in each cell, shared too; None: both work at the same time.
    """

    def __init__(self, arm: str, changes: _Changes, turns: _TurnsOfCells | None) -> None:
        self.arm = arm
        self.partner: Side = self
        self.changes = changes
        self._turns = turns
        self._reached = -1
        self._ready: set[int] = set()
        self._over: set[int] = set()
        self._gone = False
        self._in_sync: Counter[int] = Counter()
        self._began: dict[int, float] = {}
        self._ended: dict[int, float] = {}

    @classmethod
    def two(cls, arms: Sequence[str], drawn_by: str | None = None) -> tuple[Side, Side]:
        """Return two sides that are partners.

        Args:
            arms: Their names.
            drawn_by: The seed for the first side, if they work by turns; None: they do not.
        """
        changes = _Changes()
        turns = None if drawn_by is None else _TurnsOfCells(drawn_by)
        first, second = (cls(arm, changes, turns) for arm in arms)
        first.partner, second.partner = second, first
        if turns is not None:
            turns.sides = first, second
        return first, second

    @property
    def by_turns(self) -> bool:
        """Whether the sides work by turns."""
        return self._turns is not None

    def leave(self) -> None:
        """Note that this side has ended, so that the other does not wait for it."""
        self._gone = True
        self.changes.notify()

    async def meets(self, cell: int) -> bool:
        """Wait for the other side before a cell; return whether it reached the cell.

        Args:
            cell: The cell's index in the batch, from 0.
        """
        self._reached = cell
        self.changes.notify()
        while self.partner._reached < cell and not self.partner._gone:
            await self.changes.wait()
        return self.partner._reached >= cell

    def turn(self, cell: int) -> AbstractAsyncContextManager[None]:
        """Return a turn in a cell; if both sides work at once, it needs no waiting."""
        if self._turns is None:
            return Undivided().turn()
        return self._turns.of(cell).turn(self)

    def wants_turns(self, cell: int) -> bool:
        """Return whether this side may take a turn in a cell before the other has had one."""
        return self._is_in(cell) and self._in_sync[cell] <= self._others_in_sync(cell)

    def _is_in(self, cell: int) -> bool:
        return self._reached == cell and cell not in self._over and not self._gone

    def _others_in_sync(self, cell: int) -> float:
        """Return how often the other side came in sync in a cell; infinite if it has ended."""
        return self.partner._in_sync[cell] if self.partner._is_in(cell) else math.inf

    async def wait_in_sync(self, cell: int) -> None:
        """Wait between turns until the other side has called this as often, or has ended."""
        if self._turns is None:
            return
        self._in_sync[cell] += 1
        if self._in_sync[cell] == self._others_in_sync(cell):
            self._turns.of(cell).begin_pair()
        self.changes.notify()
        while self._in_sync[cell] > self._others_in_sync(cell):
            await self.changes.wait()

    async def begin(self, cell: int) -> None:
        """Wait until both sides can start a cell at once; by turns neither waits.

        Raises:
            WorkloadFault: The other side cannot start it.
        """
        self._ready.add(cell)
        self.changes.notify()
        other = self.partner
        while not self.by_turns and (
            cell not in other._ready and other._reached <= cell and not other._gone
        ):
            await self.changes.wait()
        if not self.by_turns and cell not in other._ready:
            raise WorkloadFault(
                f"it would have run alone: {other.arm}, the other arm of the duet, could not start "
                "this cell"
            )
        self._began[cell] = time.monotonic()

    async def over(self, cell: int) -> None:
        """Request no further turns in a cell, and wait until the other side needs none either."""
        self._over.add(cell)
        self.changes.notify()
        while self.partner._is_in(cell):
            await self.changes.wait()

    def end(self, cell: int) -> None:
        """Note that the work of a cell has ended."""
        self._ended[cell] = time.monotonic()
        self._over.add(cell)

    def overlap(self, cell: int) -> float:
        """Return the share of a cell's time in which the other side worked too."""
        began, ended = self._began[cell], self._ended[cell]
        other = self.partner
        from_s = max(began, other._began.get(cell, ended))
        until_s = min(ended, other._ended.get(cell, ended))
        return max(until_s - from_s, 0.0) / max(ended - began, 1e-9)

    def facts(self, cell: int) -> CellFacts:
        """Return the facts of a cell on the arm that was measured at the same time."""
        if self.by_turns:
            return {"turns": {"with": self.partner.arm}}
        return {"duet": {"beside": self.partner.arm, "share": self.overlap(cell)}}


@dataclass(frozen=True)
class InStep:
    """The synchronisation of one cell of one side."""

    side: Side
    cell: int

    @property
    def by_turns(self) -> bool:
        """Whether one side is at work while the other waits."""
        return self.side.by_turns

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Return a context in which this side works while the other waits."""
        return self.side.turn(self.cell)

    async def begin(self) -> None:
        """Wait until both sides can start; raise WorkloadFault if the other cannot."""
        await self.side.begin(self.cell)

    async def wait_in_sync(self) -> None:
        """Wait until the other side has reached the same point."""
        await self.side.wait_in_sync(self.cell)

    async def over(self) -> None:
        """Request no further turns, and wait until the other side needs none either."""
        await self.side.over(self.cell)

    def end(self) -> None:
        """Note that the work has ended."""
        self.side.end(self.cell)

    def facts(self) -> CellFacts:
        """Return the facts of the cell on the other arm."""
        return self.side.facts(self.cell)
