"""Wait for messages of a queue of Dask's, for as long as one likes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Queue


class Inbox:
    """One side's messages.

    Dask's own time-outs end in an error in the scheduler's log; here one request stays open until
    there is a message.

    Args:
        queue: Where they come from; nobody else takes any from it.
    """

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._asked: asyncio.Task[Any] | None = None

    async def ready(self, patience_s: float) -> bool:
        """Return whether there is a message, or comes one in time."""
        if self._asked is None:
            self._asked = asyncio.ensure_future(self._queue.get())
        done, _ = await asyncio.wait({self._asked}, timeout=patience_s)
        return bool(done)

    async def take(self) -> list[Any]:
        """Return all messages that are there; wait for the first.

        Raises:
            OSError: The scheduler is gone.
        """
        await self.ready(0)
        assert self._asked is not None
        first = await self._asked
        self._asked = None
        return [first, *await self._queue.get(batch=True)]

    def close(self) -> None:
        """Ask for no more."""
        if self._asked is not None:
            self._asked.cancel()
