"""Detection of frozen CPUs: the emulation can stop one CPU of an emulated host."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

STAT = "/proc/stat"
PATIENCE_S = 60.0
"""Seconds within which the time of each CPU has to grow, also on a busy computer."""
LOOK_S = 0.5


def cpu_times(stat: str) -> dict[str, int]:
    """Return how long each CPU has run or been idle, in ticks.

    The timer's interrupts count the time of a busy CPU. An idle CPU gets none, so the kernel
    calculates its time at each read. The sum stays constant only on a CPU that is neither idle nor
    takes interrupts.

    Source: Linux's fs/proc/stat.c, ``get_idle_time``; proc_stat(5).
    """
    rows = filter(None, (line.split() for line in stat.splitlines()))
    return {
        name: sum(map(int, times))
        for name, *times in rows
        if name.startswith("cpu") and name != "cpu"
    }


def stopped(before: dict[str, int], now: dict[str, int]) -> list[int]:
    """Return the numbers of the CPUs that are in both readings with the same time."""
    return sorted(
        int(name.removeprefix("cpu"))
        for name in before.keys() & now.keys()
        if now[name] <= before[name]
    )


async def stopped_cpus(
    look: Callable[[], Awaitable[str]], patience_s: float = PATIENCE_S
) -> list[int]:
    """Return the numbers of the CPUs whose time does not grow; empty if all run.

    Args:
        look: Returns the present content of the host's ``/proc/stat``.
        patience_s: Seconds until a CPU counts as stopped.
    """
    before = cpu_times(await look())
    deadline = time.monotonic() + patience_s
    while True:
        await asyncio.sleep(LOOK_S)
        still = stopped(before, cpu_times(await look()))
        if not still or time.monotonic() > deadline:
            return still
