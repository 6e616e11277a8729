"""Whose turn it is, where the machines of two arms are up at once and one of them is at work."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tare.run.duet import Side


class Turns(Protocol):
    """What work that can pause asks before each of its parts, and at their end."""

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Return a turn; as long as it is held, nobody else is at work."""

    async def abreast(self) -> None:
        """Wait until the other's work has come as far, so that the next turns belong together."""

    async def over(self) -> None:
        """Say that no further turn is wanted, and wait until nobody else wants one.

        What is left to do then, to stop servers and to keep what was found, is in nobody's turn.
        """


class Undivided:
    """The turns of work that has its host for itself: they are never waited for."""

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Return a turn that begins at once."""
        return nullcontext()

    async def abreast(self) -> None:
        """Wait for nobody."""

    async def over(self) -> None:
        """Wait for nobody."""


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
