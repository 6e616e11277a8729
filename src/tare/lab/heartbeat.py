"""Find out whether the CPUs of an emulated host still run: the emulation can freeze one of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

STAT = "/proc/stat"
PATIENCE_S = 60.0
"""Seconds within which each CPU has to show a sign of life, on a computer as busy as it may be."""
LOOK_S = 0.5


def cpu_times(stat: str) -> dict[str, int]:
    """Return how long each CPU has run or been idle, in ticks.

    A busy CPU counts by its timer's interrupts. Of an idle one, which gets none, the kernel works
    the time out when it is asked. So the sum stands still only on a CPU that neither is idle nor
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
    """Return the numbers of the CPUs that are online in both looks, and did nothing between."""
    return sorted(
        int(name.removeprefix("cpu"))
        for name in before.keys() & now.keys()
        if now[name] <= before[name]
    )


async def stopped_cpus(
    look: Callable[[], Awaitable[str]], patience_s: float = PATIENCE_S
) -> list[int]:
    """Return the numbers of the CPUs that show no sign of life in time; none: all run.

    Args:
        look: Returns what the host's ``/proc/stat`` holds now.
        patience_s: Seconds until a CPU is taken for stopped.
    """
    before = cpu_times(await look())
    deadline = time.monotonic() + patience_s
    while True:
        await asyncio.sleep(LOOK_S)
        still = stopped(before, cpu_times(await look()))
        if not still or time.monotonic() > deadline:
            return still
