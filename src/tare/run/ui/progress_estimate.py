"""Tell how far a long cell is, without a hand on the machine that measures.

An agent with a CPU to spare speaks for itself. Where the measuring thread has the machine's only
CPU nothing in the machine could speak without disturbing it; the agent then says before the start
how much CPU time the work takes, and the host, which sees how much its threads have had, counts
along.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from tare.errors import MachineFault

INTERVAL_S = 1.0
ALMOST = 0.99
"""As far as counting along goes: only the result itself says that the work is done."""


class Watched(Protocol):
    """What watching needs of a machine."""

    async def measuring_threads(self) -> tuple[int, ...]:
        """Return the host ids of the threads that carry a workload which waits for its start."""
        ...

    async def ran_s(self, threads: tuple[int, ...]) -> float:
        """Return the CPU seconds that threads have had."""
        ...


class Watch:
    """Follows one cell.

    Args:
        machine: What measures.
        tell: Told the share done, and ``rate``, ``unit`` and ``left_s`` (seconds) as far as known.
        interval_s: Seconds between two looks.
        looks: Whether the host may be asked how far the work is.
    """

    def __init__(
        self,
        machine: Watched,
        tell: Callable[[float, Mapping[str, Any]], None],
        interval_s: float = INTERVAL_S,
        *,
        looks: bool = True,
    ) -> None:
        self._machine = machine
        self._tell = tell
        self._interval_s = interval_s
        self._looks = looks
        self._counting: asyncio.Task[None] | None = None

    def hear(self, done: float, fields: Mapping[str, Any]) -> None:
        """Take the agent's own word of its progress."""
        expected_s = fields.get("expected_s")
        if not isinstance(expected_s, int | float) or expected_s <= 0:
            self._tell(done, fields)
            return
        self._tell(0.0, {"left_s": float(expected_s)})
        if self._looks and fields.get("live") is False and self._counting is None:
            self._counting = asyncio.create_task(self._count(float(expected_s), dict(fields)))

    async def end(self) -> None:
        """Stop counting along."""
        if self._counting is not None:
            self._counting.cancel()
            await asyncio.gather(self._counting, return_exceptions=True)

    async def _count(self, expected_s: float, fields: Mapping[str, Any]) -> None:
        # What cannot be read is not shown: the cell goes on all the same.
        with suppress(MachineFault, OSError):
            threads = await self._machine.measuring_threads()
            began, first = time.monotonic(), await self._machine.ran_s(threads)
            then, before = began, first
            while threads:
                await asyncio.sleep(self._interval_s)
                now, ran = time.monotonic(), await self._machine.ran_s(threads)
                done, told = standing(
                    fields, expected_s, now - began, ran - first, (ran - before) / (now - then)
                )
                self._tell(done, told)
                then, before = now, ran


def standing(
    fields: Mapping[str, Any], expected_s: float, elapsed_s: float, ran_s: float, share: float
) -> tuple[float, dict[str, float | str]]:
    """Return how far a run is by the CPU time that it had.

    Args:
        fields: What the agent said of it: ``sample_s`` (CPU seconds of a sample), ``unit``, and
            ``timed`` where it ends by the clock.
        expected_s: Seconds it takes while undisturbed.
        elapsed_s: Seconds since its start.
        ran_s: CPU seconds that it had since then.
        share: CPU seconds per second of late.

    Returns:
        The share done, and what else is known: ``rate``, ``unit``, ``left_s``.
    """
    told: dict[str, float | str] = {"unit": str(fields.get("unit", "1/s"))}
    sample_s = fields.get("sample_s")
    if isinstance(sample_s, int | float) and sample_s > 0:
        told["rate"] = max(share, 0.0) / sample_s
    if fields.get("timed"):
        done = elapsed_s / expected_s
        told["left_s"] = max(expected_s - elapsed_s, 0.0)
    else:
        done = ran_s / expected_s
        if ran_s > 0:
            told["left_s"] = max(expected_s - ran_s, 0.0) * elapsed_s / ran_s
    return min(max(done, 0.0), ALMOST), told
