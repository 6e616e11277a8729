"""Work that goes on when whoever asked for it waits no longer."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def begun(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Begin work that each waiter shields; only those waiters see why it fails.

    A host may be lost when nobody waits any more. That is reported elsewhere, and its traceback is
    of no use to a user.
    """
    task = asyncio.ensure_future(work)
    task.add_done_callback(lambda it: it.cancelled() or it.exception())
    return task
