"""Removal that waits for what passes: a lock, another task, a start that began late."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from tare.errors import MachineFault

AGAIN_S = 0.5

T = TypeVar("T")


async def patiently(
    remove: Callable[[], Awaitable[T]], passing: Iterable[str], patience_s: float
) -> T:
    """Return what a removal returns; one that is refused for a while is tried until it is not.

    Args:
        remove: Removes by name, and may be called again whatever it has removed already.
        passing: Words of the refusals that pass by themselves.
        patience_s: Seconds after which the next refusal is final.

    Raises:
        MachineFault: It was refused for another reason, or for too long.
    """
    words = tuple(passing)
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return await remove()
        except MachineFault as fault:
            if not any(word in fault.message for word in words) or time.monotonic() > deadline:
                raise
        await asyncio.sleep(AGAIN_S)
