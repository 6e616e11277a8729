"""The cost of processes for their host: CPU time and memory."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Sequence

from tare.hosts.contract import Host
from tare.hosts.processes import stat_fields
from tare.hosts.units import kernel_units

_RESIDENT = re.compile(r"^(?:VmRSS|HugetlbPages):\s+(\d+) kB", re.MULTILINE)
TRIES = 5
"""The number of attempts to list and read processes, if one of them ends meanwhile."""


async def process_cost(host: Host, *pids: int) -> dict[str, float]:
    """Return processes' CPU seconds (with those of reaped children) and resident bytes.

    Source: fields 14 to 17 (clock ticks) and 24 (pages) of ``/proc/PID/stat``, proc(5). A page that
    several of the processes share is counted for each.

    Raises:
        OSError: One of them has ended.
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
    """Return the cost of a process and its descendants, in the form of :func:`process_cost`.

    Raises:
        OSError: The process has ended.
    """
    return await listed_cost(host, lambda: _tree(host, pid))


async def listed_cost(
    host: Host, members: Callable[[], Awaitable[Sequence[int]]]
) -> dict[str, float]:
    """Return the total cost of a changing set of processes, in the form of :func:`process_cost`.

    A process that ends before it is read hands its CPU time to its parent, which may have been read
    already. If one ends, all are therefore listed and read again.

    Args:
        host: The host that runs them.
        members: Lists their ids, parents before their children.

    Raises:
        OSError: They have all ended, or one ended in each of the :data:`TRIES` readings.
    """
    for _ in range(TRIES - 1):
        pids = await members()
        try:
            return await process_cost(host, *pids)
        except OSError:
            continue
    return await process_cost(host, *await members())


async def _tree(host: Host, pid: int) -> tuple[int, ...]:
    """Return the ids of a process and its descendants, parents first.

    Source: ``/proc/PID/task/TID/children``, proc(5); it lists the children of each thread. A
    kernel without ``CONFIG_PROC_CHILDREN`` lists nothing.
    """
    found, youngest = [pid], [pid]
    while youngest:
        listed = await host.first_lines([f"/proc/{each}/task/*/children" for each in youngest])
        youngest = [int(child) for line in listed.values() for child in line.split()]
        found += youngest
    return tuple(found)


async def vcpu_cost(host: Host, pid: int, vcpus: Sequence[int]) -> dict[str, float]:
    """Return the cost so far of a hypervisor's process that has threads for vCPUs.

    Args:
        host: The host on which it runs.
        pid: The process id.
        vcpus: The thread ids of its vCPUs, in order; empty if they are not known.

    Returns:
        ``cpu_s``: CPU seconds of all its threads; ``rss_bytes``: resident memory;
        ``vcpu_cpu_s`` and ``vcpu_run_delay_s``: seconds for which the vCPU threads ran, and for
        which they were ready while another thread ran (``/proc/PID/task/TID/schedstat``, the
        kernel's Documentation/scheduler/sched-stats.rst); ``vcpuN_run_delay_s`` for each vCPU.
        Without known vCPUs only the first two are returned.

    Raises:
        OSError, IndexError: The process has ended.
    """
    process = f"/proc/{pid}"
    stat = await host.read(f"{process}/stat")
    status = (await host.read(f"{process}/status")).decode()
    schedstats = [
        (await host.read(f"{process}/task/{thread}/schedstat")).split() for thread in vcpus
    ]
    units = await kernel_units(host)
    # Fields 14 and 15 are user and system time, proc(5).
    fields = stat_fields(stat)
    cost = {
        "cpu_s": (int(fields[11]) + int(fields[12])) / units.ticks_per_s,
        # A zombie process has neither line. VmRSS does not include huge pages.
        "rss_bytes": sum(1024.0 * int(kib) for kib in _RESIDENT.findall(status)),
    }
    if schedstats:
        cost["vcpu_cpu_s"] = sum(int(each[0]) for each in schedstats) * 1e-9
        cost["vcpu_run_delay_s"] = sum(int(each[1]) for each in schedstats) * 1e-9
    for number, each in enumerate(schedstats):
        cost[f"vcpu{number}_run_delay_s"] = int(each[1]) * 1e-9
    return cost
