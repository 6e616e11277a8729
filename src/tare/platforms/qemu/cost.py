"""What a process of QEMU's costs its host."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tare.hosts import Host
from tare.hosts.processes import stat_fields
from tare.hosts.units import kernel_units

_RESIDENT = re.compile(r"^(?:VmRSS|HugetlbPages):\s+(\d+) kB", re.MULTILINE)


async def qemu_cost(host: Host, pid: int, vcpus: Sequence[int]) -> dict[str, float]:
    """Return what a QEMU has cost its host so far.

    Args:
        host: Where it runs.
        pid: Its process.
        vcpus: The threads of its vCPUs, in order; may be unknown.

    Returns:
        ``cpu_s``: CPU seconds of all its threads; ``rss_bytes``: resident memory;
        ``vcpu_cpu_s`` and ``vcpu_run_delay_s``: seconds that the vCPU threads ran, and that
        they were ready but another ran (``/proc/PID/task/TID/schedstat``, the kernel's
        Documentation/scheduler/sched-stats.rst); ``vcpuN_run_delay_s`` for each. Those of vCPUs
        are left out where these are unknown.

    Raises:
        OSError, IndexError: It has ended.
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
        # A zombie has neither line; huge pages are not in the former.
        "rss_bytes": sum(1024.0 * int(kib) for kib in _RESIDENT.findall(status)),
    }
    if schedstats:
        cost["vcpu_cpu_s"] = sum(int(each[0]) for each in schedstats) * 1e-9
        cost["vcpu_run_delay_s"] = sum(int(each[1]) for each in schedstats) * 1e-9
    for number, each in enumerate(schedstats):
        cost[f"vcpu{number}_run_delay_s"] = int(each[1]) * 1e-9
    return cost
