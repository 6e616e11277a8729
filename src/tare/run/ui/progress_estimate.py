"""Progress of a long cell, without disturbing the machine that measures.

An agent with a spare CPU reports its own progress. If the measuring thread has the machine's only
CPU, any report would disturb it. The agent then reports before the start how much CPU time the work
takes, and the host compares that with the CPU time of the machine's threads.
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
"""The highest estimate: only the result itself shows that the work is done."""


class Watched(Protocol):
    """The methods of a machine that the estimate needs."""

    async def measuring_threads(self) -> tuple[int, ...]:
        """Return the host's ids of the threads whose workload waits for its start."""
        ...

    async def ran_s(self, threads: tuple[int, ...]) -> float:
        """Return the CPU seconds that threads have used."""
        ...


class Watch:
    """Follows the progress of one cell.

    Args:
        machine: The machine that measures.
        report: Receives the share done, and ``rate``, ``unit`` and ``left_s`` (seconds) as far as
            known.
        interval_s: Seconds between two readings.
        polls: Whether the host may be read during the cell.
    """

    def __init__(
        self,
        machine: Watched,
        report: Callable[[float, Mapping[str, Any]], None],
        interval_s: float = INTERVAL_S,
        *,
        polls: bool = True,
    ) -> None:
        self._machine = machine
        self._report = report
        self._interval_s = interval_s
        self._polls = polls
        self._counting: asyncio.Task[None] | None = None

    def take(self, done: float, fields: Mapping[str, Any]) -> None:
        """Take the agent's own report of its progress."""
        expected_s = fields.get("expected_s")
        if not isinstance(expected_s, int | float) or expected_s <= 0:
            self._report(done, fields)
            return
        self._report(0.0, {"left_s": float(expected_s)})
        if self._polls and fields.get("live") is False and self._counting is None:
            self._counting = asyncio.create_task(self._count(float(expected_s), dict(fields)))

    async def end(self) -> None:
        """Stop reading the host."""
        if self._counting is not None:
            self._counting.cancel()
            await asyncio.gather(self._counting, return_exceptions=True)

    async def _count(self, expected_s: float, fields: Mapping[str, Any]) -> None:
        # Progress that cannot be read is not shown; the cell continues.
        with suppress(MachineFault, OSError):
            threads = await self._machine.measuring_threads()
            began, first = time.monotonic(), await self._machine.ran_s(threads)
            then, before = began, first
            while threads:
                await asyncio.sleep(self._interval_s)
                now, ran = time.monotonic(), await self._machine.ran_s(threads)
                done, known = estimate_progress(
                    fields, expected_s, now - began, ran - first, (ran - before) / (now - then)
                )
                self._report(done, known)
                then, before = now, ran


def estimate_progress(
    fields: Mapping[str, Any], expected_s: float, elapsed_s: float, ran_s: float, share: float
) -> tuple[float, dict[str, float | str]]:
    """Estimate the progress of a workload from the CPU time that it used.

    Args:
        fields: The agent's report before the start: ``sample_s`` (CPU seconds of a sample),
            ``unit``, and ``timed`` if the workload ends by the clock.
        expected_s: Seconds that it takes while undisturbed.
        elapsed_s: Seconds since its start.
        ran_s: CPU seconds that it used since then.
        share: CPU seconds per second in the last interval.

    Returns:
        The share done, and ``rate``, ``unit`` and ``left_s`` as far as they are known.
    """
    known: dict[str, float | str] = {"unit": str(fields.get("unit", "1/s"))}
    sample_s = fields.get("sample_s")
    if isinstance(sample_s, int | float) and sample_s > 0:
        known["rate"] = max(share, 0.0) / sample_s
    if fields.get("timed"):
        done = elapsed_s / expected_s
        known["left_s"] = max(expected_s - elapsed_s, 0.0)
    else:
        done = ran_s / expected_s
        if ran_s > 0:
            known["left_s"] = max(expected_s - ran_s, 0.0) * elapsed_s / ran_s
    return min(max(done, 0.0), ALMOST), known
