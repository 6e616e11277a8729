"""When blocks begin, where a study spreads them over time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

LOOK_S = 0.5


class Pace:
    """Lets a block begin no sooner than some time after the one before it began.

    Args:
        every_s: Seconds from the begin of one block to the next; None: at once.
        given_up: Tells whether the run was asked to stop, so that nobody need wait.
    """

    def __init__(self, every_s: float | None, given_up: Callable[[], bool]) -> None:
        self._every_s = every_s or 0.0
        self._given_up = given_up
        self._next: float | None = None

    async def wait(self) -> None:
        """Return once the next block may begin; the first may at once."""
        while self._next is not None and not self._given_up():
            left = self._next - time.monotonic()
            if left <= 0:
                break
            await asyncio.sleep(min(left, LOOK_S))
        self._next = time.monotonic() + self._every_s
