"""What processes of a host have cost it: their CPU time, and the memory that they hold."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence

from tare.hosts.contract import Host
from tare.hosts.processes import stat_fields

TRIES = 5
"""How often processes are listed and read anew where one of them ends in between."""


async def process_cost(host: Host, *pids: int) -> dict[str, float]:
    """Return processes' CPU seconds (with those of reaped children) and resident bytes.

    Fields 14 to 17 (clock ticks) and 24 (pages) of ``/proc/PID/stat``, proc(5). Pages that several
    of them share count for each.

    Raises:
        OSError: One has ended.
    """
    ticks = pages = 0
    for pid in pids:
        fields = stat_fields(await host.read(f"/proc/{pid}/stat"))
        ticks += sum(int(field) for field in fields[11:15])
        pages += int(fields[21])
    return {
        "cpu_s": ticks / os.sysconf("SC_CLK_TCK"),
        "rss_bytes": float(pages * os.sysconf("SC_PAGE_SIZE")),
    }


async def tree_cost(host: Host, pid: int) -> dict[str, float]:
    """Return what a process and all that it started cost, as :func:`process_cost` does.

    Raises:
        OSError: It has ended.
    """
    return await listed_cost(host, lambda: _tree(host, pid))


async def listed_cost(
    host: Host, members: Callable[[], Awaitable[Sequence[int]]]
) -> dict[str, float]:
    """Return what processes cost together that come and go, as :func:`process_cost` does.

    One that ends between its being listed and read has handed its CPU time to its parent, which
    may have been read before that. So all are read again then.

    Args:
        host: Where they are.
        members: Lists them, parents before their children.

    Raises:
        OSError: They have all ended, or one did in each of :data:`TRIES` readings.
    """
    for _ in range(TRIES - 1):
        pids = await members()
        try:
            return await process_cost(host, *pids)
        except OSError:
            continue
    return await process_cost(host, *await members())


async def _tree(host: Host, pid: int) -> tuple[int, ...]:
    """Return a process and its descendants, parents first.

    Source: ``/proc/PID/task/TID/children``, proc(5); each thread lists what it started itself. A
    kernel without ``CONFIG_PROC_CHILDREN`` lists nothing.
    """
    found, youngest = [pid], [pid]
    while youngest:
        listed = await host.first_lines([f"/proc/{each}/task/*/children" for each in youngest])
        youngest = [int(child) for line in listed.values() for child in line.split()]
        found += youngest
    return tuple(found)
