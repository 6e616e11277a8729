"""Whose turn it is, where the machines of two arms are up at once and one of them is at work."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tare.run.duet import Side


class Turns(Protocol):
    """What work that can pause asks before each of its parts, and at their end."""

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Return a turn; as long as it is held, nobody else is at work."""

    async def over(self) -> None:
        """Say that no further turn is wanted, and wait until nobody else wants one.

        What is left to do then, to stop servers and to keep what was found, is in nobody's turn.
        """


class Undivided:
    """The turns of work that has its host for itself: they are never waited for."""

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Return a turn that begins at once."""
        return nullcontext()

    async def over(self) -> None:
        """Wait for nobody."""


class Floor:
    """Gives the two sides of a cell their turns: alternately, until one of them wants none.

    Args:
        cell: The cell's place in the batch, from 0.
        first: Whose turn comes first.
    """

    def __init__(self, cell: int, first: Side) -> None:
        self._cell = cell
        self._next = first
        self._taken = False

    @asynccontextmanager
    async def turn(self, side: Side) -> AsyncIterator[None]:
        """Hold a turn; the other side's is waited for.

        Args:
            side: Whose turn it is to be.
        """
        while self._taken or (self._next is not side and self._next.wants_turns(self._cell)):
            await side.news.wait()
        self._taken = True
        try:
            yield
        finally:
            self._taken = False
            self._next = side.partner
            side.news.tell()
