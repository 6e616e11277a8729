"""Work that continues when its waiter stops waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def begun(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start work that each waiter must shield; only those waiters see its failure.

    A host may be lost while no task waits for the work. That loss is reported elsewhere, and a
    traceback would not help the user.
    """
    task = asyncio.ensure_future(work)
    task.add_done_callback(lambda it: it.cancelled() or it.exception())
    return task
