"""The CPU share of a control group: weight and quota, in the files of both versions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tare.errors import MachineFault
from tare.hosts.contract import Host
from tare.hosts.control_groups import ControlGroup
from tare.hosts.ledger.ledger import Ledger
from tare.hosts.ledger.resources import created
from tare.platforms.linux.cgroups import (
    ADMITTED_US,
    THROTTLED_US,
    CgroupMounts,
    cgroup_mounts,
)
from tare.platforms.scheduling import Scheduling

DEFAULT_WEIGHT = 100
DEFAULT_SHARES = 1024
# fmt: off
NICE_WEIGHTS = (
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916,
    9548, 7620, 6100, 4904, 3906, 3121, 2501, 1991, 1586, 1277,
    1024, 820, 655, 526, 423, 335, 272, 215, 172, 137,
    110, 87, 70, 56, 45, 36, 29, 23, 18, 15,
)
# fmt: on
"""The kernel's weight for each nice value from -20 to 19 (kernel/sched/core.c)."""


@dataclass(frozen=True)
class CpuGroup:
    """A control group of one machine, in the hierarchy that holds the ``cpu`` controller.

    Args:
        folder: The group's directory.
        values: Maps a file name to the value that was written to it.
    """

    folder: Path
    values: Mapping[str, str]

    @property
    def flags(self) -> list[str]:
        """The arguments with which the agent starts a program in the group."""
        return ["--cgroup", str(self.folder)]


async def offered_by_groups(host: Host) -> tuple[frozenset[str], dict[str, str]]:
    """Find out whether this host can share CPUs by control groups.

    Returns:
        The available knobs, and the reason for each missing one.
    """
    both = frozenset({"weight", "cap"})
    mounts = await cgroup_mounts(host)
    base = mounts.of("cpu", ".")
    if base is None:
        return frozenset(), dict.fromkeys(both, "no control groups are mounted")
    if "cpu" not in mounts.controllers:
        granted = (await host.read(base / "cgroup.subtree_control")).split()
        if b"cpu" not in granted:
            reason = (
                f"the cpu controller is not passed on to groups below {base}: "
                f"echo +cpu > {base}/cgroup.subtree_control"
            )
            return frozenset(), dict.fromkeys(both, reason)
    if not (await host.run(["test", "-w", str(base)], timeout_s=10)).ok:
        return frozenset(), dict.fromkeys(both, f"no groups can be made in {base}: be root")
    if "cpu" in mounts.controllers and not await host.exists(base / "cpu.cfs_quota_us"):
        return frozenset({"weight"}), {"cap": "the kernel has no CONFIG_CFS_BANDWIDTH"}
    return both, {}


def shares_of(wanted: Scheduling) -> int | None:
    """Return the version 1 weight (1024 by default); None if none is wanted."""
    if wanted.nice is not None:
        return NICE_WEIGHTS[wanted.nice + 20]
    if wanted.weight is not None:
        # The kernel converts between the two in the same way (kernel/sched/sched.h).
        return round(wanted.weight * DEFAULT_SHARES / DEFAULT_WEIGHT)
    return None


def weight_of(wanted: Scheduling) -> int | None:
    """Return the version 2 weight (100 by default); None if none is wanted."""
    if wanted.nice is not None:
        # The kernel does the same for cpu.weight.nice (kernel/sched/core.c).
        return max(1, round(NICE_WEIGHTS[wanted.nice + 20] * DEFAULT_WEIGHT / DEFAULT_SHARES))
    return wanted.weight


def quota_of(wanted: Scheduling) -> tuple[int, int] | None:
    """Return the quota and its period in microseconds; None if there is no cap."""
    if wanted.cap is None:
        return None
    period_us = round(wanted.period_s * 1e6)
    return round(wanted.cap * period_us), period_us


def values_for(wanted: Scheduling, version: int) -> dict[str, str]:
    """Return the files of a group with their values, in the order of writing.

    Args:
        wanted: The requested scheduling.
        version: The version of the control groups that have the ``cpu`` controller.
    """
    quota = quota_of(wanted)
    if version == 2:
        weight = weight_of(wanted)
        return {
            **({} if weight is None else {"cpu.weight": str(weight)}),
            **({} if quota is None else {"cpu.max": f"{quota[0]} {quota[1]}"}),
        }
    shares = shares_of(wanted)
    return {
        **({} if shares is None else {"cpu.shares": str(shares)}),
        **(
            {}
            if quota is None
            else {"cpu.cfs_period_us": str(quota[1]), "cpu.cfs_quota_us": str(quota[0])}
        ),
    }


def container_resources(wanted: Scheduling, version: int) -> tuple[dict[str, int], dict[str, str]]:
    """Return the CPU shares for a container's configuration, and the version 2 files.

    Version 2 files are written directly, because a runtime would convert ``shares`` to a different
    weight.
    """
    if version == 2:
        return {}, values_for(wanted, version)
    names = {
        "cpu.shares": "shares",
        "cpu.cfs_quota_us": "quota",
        "cpu.cfs_period_us": "period",
    }
    return {names[file]: int(value) for file, value in values_for(wanted, version).items()}, {}


def version_of(mounts: CgroupMounts) -> int:
    """Return the version of the control groups that hold the ``cpu`` controller."""
    return 1 if "cpu" in mounts.controllers else 2


@asynccontextmanager
async def cpu_group(
    host: Host, ledger: Ledger, name: str, wanted: Scheduling, *, throttled: bool
) -> AsyncIterator[CpuGroup | None]:
    """Make a group for a machine that wants a weight or a cap, and remove it at the end.

    A SCHED_FIFO machine gets a group if the kernel shares real-time out by group and Tare's own
    group has no share to give.

    Args:
        host: The host.
        ledger: Records the group before it is made.
        name: The machine's name.
        wanted: The requested scheduling.
        throttled: Whether real-time throttling stays on while the machine runs.

    Yields:
        The group; None if none is needed.

    Raises:
        MachineFault: It cannot be made, or did not take a value. The message quotes the kernel.
    """
    mounts = await cgroup_mounts(host)
    values: dict[str, str] = {}
    if wanted.weight is not None or wanted.cap is not None:
        values = values_for(wanted, version_of(mounts))
    elif wanted.realtime and await _lacks_realtime(host, mounts):
        values = {"cpu.rt_runtime_us": str(THROTTLED_US if throttled else ADMITTED_US)}
    folder = mounts.of("cpu", name)
    if not values or folder is None:
        yield None
        return
    async with created(ledger, ControlGroup(host, folder)):
        await _fill(host, folder, values)
        yield CpuGroup(folder, values)


async def _fill(host: Host, folder: Path, values: Mapping[str, str]) -> None:
    for file, value in values.items():
        try:
            await host.write(folder / file, value.encode())
        except OSError as error:
            raise MachineFault(
                f"{folder / file} cannot be set to {value}: {error.strerror}"
            ) from error
    await read_back(host, folder, values)


async def read_back(host: Host, folder: Path, values: Mapping[str, str]) -> dict[str, str]:
    """Read a group's files and check that they hold the given values.

    Raises:
        MachineFault: A file holds a different value, or cannot be read.
    """
    found: dict[str, str] = {}
    for file, value in values.items():
        try:
            found[file] = (await host.read(folder / file)).decode().strip()
        except OSError as error:
            raise MachineFault(f"{folder / file}: {error.strerror}") from error
        if found[file] != value:
            raise MachineFault(
                f"{folder / file} was set to {value}, but the kernel says {found[file]}"
            )
    return found


async def require_member(host: Host, folder: Path, pid: int) -> None:
    """Raise :class:`MachineFault` unless a process is in a group."""
    members = (await host.read(folder / "cgroup.procs")).split()
    if str(pid).encode() not in members:
        raise MachineFault(f"process {pid} is not in the control group {folder}")


async def _lacks_realtime(host: Host, mounts: CgroupMounts) -> bool:
    """Check whether version 1 refuses SCHED_FIFO in Tare's group (CONFIG_RT_GROUP_SCHED)."""
    base = mounts.controllers.get("cpu")
    if base is None or not await host.exists(base / "cpu.rt_runtime_us"):
        return False
    for line in (await host.read("/proc/self/cgroup")).decode().splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(","):
            try:
                own = await host.read(base / path.lstrip("/") / "cpu.rt_runtime_us")
            except OSError:
                return path != "/"
            return own.strip() == b"0"
    return False
