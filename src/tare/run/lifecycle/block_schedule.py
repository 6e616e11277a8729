"""The blocks that one process runs, and when each of them may begin."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from tare.events import HostJoined
from tare.run.lifecycle.cell_counts import CellCounts

LOOK_S = 0.5
"""Seconds between two checks whether the run was asked to stop."""


@dataclass(frozen=True)
class AssignedBlock:
    """A block to measure now.

    Args:
        number: Its number among the blocks of all hosts, from 1.
        settled: Identities of its cells that another attempt has finished.
        ended: The arms that get no further block.
        whole: Whether the block is complete once these cells are done.
    """

    number: int
    settled: frozenset[str] = frozenset()
    ended: frozenset[str] = frozenset()
    whole: bool = True


@dataclass(frozen=True)
class RunPart:
    """The part of a run that one host, or one session, runs.

    Args:
        before: The facts of the host when it last joined the run; None: it is new.
        blocks: The blocks as they are assigned, until there are no more.
        account: Returns the results of the run's cells, if its plan does not hold them all.
    """

    before: HostJoined | None
    blocks: AsyncIterator[AssignedBlock]
    account: Callable[[], CellCounts] | None = None


class Pace:
    """Keeps a minimum time between the starts of two blocks.

    Args:
        every_s: Seconds from the start of one block to the next; None: at once.
        is_stopping: Returns whether the run was asked to stop, which ends the wait.
    """

    def __init__(self, every_s: float | None, is_stopping: Callable[[], bool]) -> None:
        self._every_s = every_s or 0.0
        self._is_stopping = is_stopping
        self._next: float | None = None

    async def wait(self) -> None:
        """Wait until the next block may begin; the first block may begin at once."""
        while self._next is not None and not self._is_stopping():
            left = self._next - time.monotonic()
            if left <= 0:
                break
            await asyncio.sleep(min(left, LOOK_S))
        self._next = time.monotonic() + self._every_s
