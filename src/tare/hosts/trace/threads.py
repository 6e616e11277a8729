"""Threads on a host: names, CPUs, run delay, and stops by a quota."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tare.hosts.contract import Host
from tare.hosts.processes import stat_fields

_ALLOWED = re.compile(r"^Cpus_allowed_list:\s*(\S+)", re.MULTILINE)


@dataclass(frozen=True)
class QuotaStops:
    """How often a CPU quota has stopped a control group, and for how many seconds in total."""

    times: int
    seconds: float


async def threads_of(host: Host, pids: Sequence[int]) -> dict[int, str]:
    """Return the names of all threads of some processes, by thread id; ended ones are left out."""
    named = await host.first_lines([f"/proc/{pid}/task/*/comm" for pid in pids])
    return {int(PurePosixPath(path).parent.name): name for path, name in named.items()}


async def vhost_threads(host: Host, owners: Iterable[int]) -> tuple[int, ...]:
    """Return the threads that carry packets (vhost-net) for some threads of a hypervisor.

    The kernel names them after the thread that opened the device (drivers/vhost/vhost.c). Up to
    Linux 6.3 they are threads of the kernel, later ones of the hypervisor's process.
    """
    wanted = {f"vhost-{owner}" for owner in owners}
    named = await host.first_lines(["/proc/[0-9]*/task/*/comm"])
    paths = (PurePosixPath(path) for path, name in named.items() if name in wanted)
    return tuple(sorted(int(path.parent.name) for path in paths))


async def thread_times(host: Host, threads: Sequence[int]) -> dict[int, tuple[float, float]]:
    """Return for how long each thread ran, and waited for a CPU, in seconds.

    Source: ``/proc/PID/schedstat``, the kernel's Documentation/scheduler/sched-stats.rst. Threads
    that have ended are left out.
    """
    paths = {f"/proc/{thread}/schedstat": thread for thread in threads}
    lines = await host.first_lines(list(paths)) if paths else {}
    times = {paths[path]: line.split() for path, line in lines.items()}
    return {each: (int(f[0]) * 1e-9, int(f[1]) * 1e-9) for each, f in times.items()}


async def allowed_cpus(host: Host, thread: int) -> tuple[int, ...]:
    """Return the CPUs that a thread may run on; empty if it has ended."""
    try:
        status = (await host.read(f"/proc/{thread}/status")).decode(errors="replace")
    except OSError:
        return ()
    found = _ALLOWED.search(status)
    cpus: list[int] = []
    for part in found[1].split(",") if found else ():
        first, _, last = part.partition("-")
        cpus.extend(range(int(first), int(last or first) + 1))
    return tuple(cpus)


async def run_delay(host: Host, threads: Sequence[int]) -> tuple[float, float]:
    """Return the seconds that threads ran, and the seconds that they waited for a CPU.

    Threads that have ended count nothing.
    """
    times = (await thread_times(host, threads)).values()
    return sum(ran for ran, _ in times), sum(waited for _, waited in times)


async def realtime_limited(host: Host, thread: int) -> bool:
    """Return whether the kernel's limit on real-time threads can stop this thread.

    Source: the policy is field 41 of ``/proc/PID/stat`` (proc(5)), 1 and 2 being SCHED_FIFO and
    SCHED_RR; the limit, the kernel's Documentation/scheduler/sched-rt-group.rst.
    """
    try:
        stat = await host.read(f"/proc/{thread}/stat")
        runtime, period = [
            int(await host.read(f"/proc/sys/kernel/sched_rt_{name}_us"))
            for name in ("runtime", "period")
        ]
        policy = int(stat_fields(stat)[38])
    except (OSError, ValueError, IndexError):
        return False
    return policy in (1, 2) and 0 <= runtime < period


async def quota_files(host: Host, thread: int, cpu_mount: Path | None) -> tuple[Path, ...]:
    """Return the ``cpu.stat`` of a thread's control group and of all groups above it.

    Args:
        host: The host on which the thread runs.
        thread: The thread's id.
        cpu_mount: The mount point of the hierarchy with the ``cpu`` controller; None: no result.
    """
    if cpu_mount is None:
        return ()
    try:
        listed = (await host.read(f"/proc/{thread}/cgroup")).decode()
    except OSError:
        return ()
    for line in listed.splitlines():
        number, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(",") or (number == "0" and cpu_mount.name == "unified"):
            group = PurePosixPath(path)
            folders = [group, *group.parents]
            return tuple(
                cpu_mount / str(folder).lstrip("/") / "cpu.stat"
                for folder in folders
                if str(folder) != "/"
            )
    return ()


@dataclass(frozen=True)
class CpuQuota:
    """The CPU time that a control group may use in each period, both in nanoseconds."""

    quota_ns: int
    period_ns: int


async def quota_of(host: Host, files: Sequence[Path]) -> CpuQuota | None:
    """Return the quota of the nearest control group that has one.

    Args:
        host: The host that has the groups.
        files: Their ``cpu.stat``, the nearest first, as :func:`quota_files` returns them.
    """
    for path in files:
        try:
            if await host.exists(path.parent / "cpu.max"):
                words = (await host.read(path.parent / "cpu.max")).decode().split()
            else:
                words = [
                    (await host.read(path.parent / f"cpu.cfs_{name}_us")).decode().strip()
                    for name in ("quota", "period")
                ]
        except OSError:
            continue
        if words[0] not in ("max", "-1"):
            return CpuQuota(int(words[0]) * 1000, int(words[1]) * 1000)
    return None


async def throttled(host: Host, files: Sequence[Path]) -> QuotaStops:
    """Return the stops by quotas so far, in the group in which they took most time.

    Source: ``nr_throttled`` and ``throttled_time`` (ns, version 1) or ``throttled_usec``
    (version 2), the kernel's Documentation/scheduler/sched-bwc.rst.
    """
    most = QuotaStops(0, 0.0)
    for path in files:
        try:
            text = (await host.read(path)).decode()
        except OSError:
            continue
        values = dict(line.split() for line in text.splitlines() if line.count(" ") == 1)
        times = int(values.get("nr_throttled", 0))
        seconds = int(values.get("throttled_time", 0)) * 1e-9
        seconds = seconds or int(values.get("throttled_usec", 0)) * 1e-6
        if (seconds, times) > (most.seconds, most.times):
            most = QuotaStops(times, seconds)
    return most
