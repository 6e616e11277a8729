"""The turns of a cell's work, where the machines of two arms are up at once."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Protocol


class Turns(Protocol):
    """What work that can pause asks before each of its parts, and at their end."""

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Return a turn; as long as it is held, nobody else is at work."""

    async def wait_in_sync(self) -> None:
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

    async def wait_in_sync(self) -> None:
        """Wait for nobody."""

    async def over(self) -> None:
        """Wait for nobody."""
