"""Control groups of machines: where a host mounts them, what they limit, and what they count."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tare.hosts.contract import Host
from tare.hosts.control_groups import ControlGroup
from tare.hosts.ledger.ledger import Ledger
from tare.hosts.ledger.resources import created

PERIOD_US = 1_000_000
ADMITTED_US = 10_000
"""Microseconds that suffice to be admitted as real-time, with throttling turned off."""
THROTTLED_US = 900_000
"""Microseconds to request if throttling stays on; the kernel's own share is 950,000."""


@dataclass(frozen=True)
class RealtimeShare:
    """Microseconds out of each period for which real-time threads may run (RT_GROUP_SCHED)."""

    runtime_us: int
    period_us: int


@dataclass(frozen=True)
class CgroupMounts:
    """The mount points of the host's control groups.

    Args:
        folders: Every mounted hierarchy.
        controllers: For each controller of version 1, its hierarchy.
        unified: The hierarchy of version 2, which holds the other controllers.
    """

    folders: tuple[Path, ...]
    controllers: dict[str, Path]
    unified: Path | None

    def of(self, controller: str, name: str) -> Path | None:
        """Return the directory of the group ``name`` in a controller's hierarchy."""
        base = self.controllers.get(controller, self.unified)
        return base / name if base else None


def parse_mounts(mountinfo: str) -> CgroupMounts:
    """Find the control group mounts in ``/proc/self/mountinfo``, proc(5).

    Args:
        mountinfo: The text of that file.

    Returns:
        The mounts of versions 1 and 2; if a hierarchy is mounted twice, its first mount.
    """
    folders: list[Path] = []
    controllers: dict[str, Path] = {}
    unified: Path | None = None
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.partition(" ")
        if kind not in ("cgroup", "cgroup2"):
            continue
        where = Path(before.split()[4])
        folders.append(where)
        if kind == "cgroup2":
            unified = unified or where
        else:
            for option in options.split()[-1].split(","):
                controllers.setdefault(option, where)
    return CgroupMounts(tuple(dict.fromkeys(folders)), controllers, unified)


async def cgroup_mounts(host: Host) -> CgroupMounts:
    """Return the mount points of the host's control groups."""
    return parse_mounts((await host.read("/proc/self/mountinfo")).decode())


@asynccontextmanager
async def owned_cgroups(
    host: Host, ledger: Ledger, mounts: CgroupMounts, name: str
) -> AsyncIterator[None]:
    """Record the groups that a runtime is about to create, and ensure their removal at the end."""
    async with AsyncExitStack() as held:
        for folder in mounts.folders:
            group = ControlGroup(host, folder / name, made=True)
            await held.enter_async_context(created(ledger, group))
        yield


async def realtime_share(host: Host, mounts: CgroupMounts, throttled: bool) -> RealtimeShare | None:
    """Return the real-time share to request, if the kernel shares real-time out by group.

    With CONFIG_RT_GROUP_SCHED and version 1, a new group's share is 0 and SCHED_FIFO is refused
    in it (Documentation/scheduler/sched-rt-group.rst). Version 2 has no such file.

    Args:
        host: The host.
        mounts: Its control groups.
        throttled: Whether real-time throttling stays on while the container runs.

    Returns:
        The share; None if groups have no real-time share.
    """
    cpu = mounts.controllers.get("cpu")
    if cpu is None or not await host.exists(cpu / "cpu.rt_runtime_us"):
        return None
    return RealtimeShare(THROTTLED_US if throttled else ADMITTED_US, PERIOD_US)


async def limits_swap(host: Host, mounts: CgroupMounts) -> bool:
    """Check whether the kernel can limit a group's swap."""
    if "memory" in mounts.controllers:
        return await host.exists(mounts.controllers["memory"] / "memory.memsw.limit_in_bytes")
    # In version 2 the root group has no such file, but each of its children does.
    return mounts.unified is not None and await host.exists("/proc/swaps")


async def oom_kills(host: Host, mounts: CgroupMounts, name: str) -> int:
    """Return how many processes the kernel killed because the group was out of memory."""
    folder = mounts.of("memory", name)
    if folder is None:
        return 0
    events = "memory.oom_control" if "memory" in mounts.controllers else "memory.events"
    return int((await _pairs(host, folder / events)).get("oom_kill", 0))


async def cgroup_members(host: Host, mounts: CgroupMounts, name: str) -> tuple[int, ...]:
    """Return the ids of the processes in a group.

    Raises:
        OSError: The group is gone.
    """
    folder = mounts.of("cpuacct", name) or mounts.folders[0] / name
    return await processes_in(host, folder)


async def processes_in(host: Host, folder: Path) -> tuple[int, ...]:
    """Return the ids of the processes in a group's folder; raises OSError once it is gone."""
    return tuple(map(int, (await host.read(folder / "cgroup.procs")).split()))


async def cgroup_cost(host: Host, mounts: CgroupMounts, name: str) -> dict[str, float]:
    """Return a group's cost: CPU seconds so far, and resident bytes now.

    Raises:
        OSError: The group is gone, or its controllers are not there.
    """
    return {
        "cpu_s": await _cpu_seconds(host, mounts, name),
        "rss_bytes": await cgroup_resident(host, mounts, name),
    }


async def _cpu_seconds(host: Host, mounts: CgroupMounts, name: str) -> float:
    folder = mounts.of("cpuacct", name)
    if folder is None:
        raise FileNotFoundError("no cpuacct controller")
    if "cpuacct" in mounts.controllers:
        return int(await host.read(folder / "cpuacct.usage")) / 1e9
    return (await _pairs(host, folder / "cpu.stat"))["usage_usec"] / 1e6


async def cgroup_resident(host: Host, mounts: CgroupMounts, name: str) -> float:
    """Return the resident bytes of a group's processes, without page cache.

    Source: ``total_rss`` of version 1, ``anon`` of version 2 (memory.stat).

    Raises:
        OSError: The group is gone, or its controller is not there.
    """
    folder = mounts.of("memory", name)
    if folder is None:
        raise FileNotFoundError("no memory controller")
    stat = await _pairs(host, folder / "memory.stat")
    return float(stat["total_rss"] if "memory" in mounts.controllers else stat["anon"])


async def _pairs(host: Host, path: Path) -> dict[str, int]:
    text = (await host.read(path)).decode()
    return {key: int(value) for key, value in (line.split() for line in text.splitlines())}
