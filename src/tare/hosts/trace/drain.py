"""A task that empties trace buffers while the kernel fills them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable


class Drain:
    """A task that empties trace buffers every few seconds, from :meth:`start` to :meth:`end`.

    Args:
        empty: Empties the buffers that are half full.
    """

    def __init__(self, empty: Callable[[], Awaitable[None]]) -> None:
        self._empty = empty
        self._task: asyncio.Task[None] | None = None
        self._over = asyncio.Event()

    def start(self, every_s: float) -> None:
        """Start to empty the buffers, for the first time after ``every_s`` seconds."""
        self._over.clear()
        self._task = asyncio.create_task(self._run(every_s))

    async def end(self) -> None:
        """End the task after the current pass, because data that is being read would be lost.

        Do nothing if the task was not started. An exception of the task is raised here.
        """
        task, self._task = self._task, None
        self._over.set()
        if task is not None:
            await task

    async def _run(self, every_s: float) -> None:
        while not await is_set_within(self._over, every_s):
            await self._empty()


async def is_set_within(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event for at most some seconds, and return whether it is set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
