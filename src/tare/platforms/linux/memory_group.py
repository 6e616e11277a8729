"""A control group that limits a machine's processes to its shape's memory, page cache included."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare.errors import MachineFault, TareError
from tare.hosts.contract import Host
from tare.hosts.control_groups import ControlGroup
from tare.hosts.ledger.ledger import Ledger
from tare.hosts.ledger.resources import created
from tare.platforms.linux.cgroups import (
    CgroupMounts,
    cgroup_cost,
    cgroup_mounts,
    cgroup_resident,
    limits_swap,
    oom_kills,
    processes_in,
)
from tare.platforms.linux.process_cost import listed_cost
from tare.units import format_size

_ASK_S = 10.0


@dataclass(frozen=True)
class MemoryGroup:
    """A control group that limits memory.

    Args:
        host: The host that has it.
        mounts: That host's control group mounts.
        folder: The group's directory; the agent's ``exec --cgroup`` starts processes in it.
        memory: The limit in bytes for its processes, including what the kernel caches for them.
        swap: Whether its processes may be swapped out, in words.
    """

    host: Host
    mounts: CgroupMounts
    folder: Path
    memory: int
    swap: str

    @property
    def record(self) -> dict[str, Any]:
        """The limits, for the machine's record."""
        return {"kept_to": self.memory, "swap": self.swap, "group": str(self.folder)}

    async def cost(self) -> dict[str, float]:
        """Return the CPU seconds (``cpu_s``) and resident bytes (``rss_bytes``) of its processes.

        Neither includes what the kernel caches for them.

        Raises:
            OSError: The group is gone, or has no processes any more.
        """
        if "memory" not in self.mounts.controllers:
            return await cgroup_cost(self.host, self.mounts, self.folder.name)
        # In version 1 the group accounts for memory only.
        used = await listed_cost(self.host, self._members)
        held = await cgroup_resident(self.host, self.mounts, self.folder.name)
        return {**used, "rss_bytes": held}

    async def _members(self) -> tuple[int, ...]:
        pids = await processes_in(self.host, self.folder)
        if not pids:
            raise ProcessLookupError(f"{self.folder} has no processes")
        # In ascending order, parents precede children, until the kernel's numbers wrap around.
        return tuple(sorted(pids))

    async def exhausted(self) -> str:
        """Return a clause if the kernel killed a member because memory ran out; empty if not."""
        try:
            killed = await oom_kills(self.host, self.mounts, self.folder.name)
        except (OSError, ValueError, TareError):
            return ""
        if not killed:
            return ""
        return f"it needed more than the {format_size(self.memory)} of memory that it is kept to"


async def lacks_memory_groups(host: Host) -> str:
    """Return why a host cannot limit the memory of processes; empty if it can."""
    mounts = await cgroup_mounts(host)
    base = mounts.of("memory", ".")
    if base is None:
        return "no control groups are mounted"
    if "memory" not in mounts.controllers:
        try:
            offered, granted = [
                (await host.read(base / file)).split()
                for file in ("cgroup.controllers", "cgroup.subtree_control")
            ]
        except OSError as error:
            return f"{base} cannot be read: {error.strerror}"
        if b"memory" not in offered:
            return f"the memory controller is not there in {base}"
        if b"memory" not in granted:
            return (
                f"the memory controller is not passed on to groups below {base}: "
                f"echo +memory > {base}/cgroup.subtree_control"
            )
    if not (await host.run(["test", "-w", str(base)], timeout_s=_ASK_S)).ok:
        return f"no groups can be made in {base}: be root"
    return ""


@asynccontextmanager
async def memory_group(
    host: Host, ledger: Ledger, name: str, memory: int, *, own: Path | None = None
) -> AsyncIterator[MemoryGroup]:
    """Make a group for a machine, and remove it at the end with all that is left in it.

    Args:
        host: The host.
        ledger: Records the group before it is made.
        name: The machine's name.
        memory: The limit in bytes for its processes, including what the kernel caches for them.
        own: The group that the machine already has for its CPUs; version 2 uses one for both.

    Raises:
        MachineFault: It cannot be made or does not take the limit. The message quotes the kernel.
    """
    mounts = await cgroup_mounts(host)
    folder = mounts.of("memory", name)
    if folder is None:
        raise MachineFault("memory cannot be limited: no control groups are mounted")
    if folder == own:
        yield await _limited(host, mounts, folder, memory)
        return
    async with created(ledger, ControlGroup(host, folder)):
        yield await _limited(host, mounts, folder, memory)


async def _limited(host: Host, mounts: CgroupMounts, folder: Path, memory: int) -> MemoryGroup:
    """Limit a group's memory, and keep it from being swapped out."""
    if "memory" in mounts.controllers:
        # 0 keeps a group of version 1 out of swap (cgroup-v1/memory.rst, 5.3 swappiness).
        values, swap = {"memory.limit_in_bytes": memory, "memory.swappiness": 0}, "off"
        if await limits_swap(host, mounts):
            # This limits memory and swap together, and cannot be below the limit of memory alone.
            values["memory.memsw.limit_in_bytes"] = memory
    elif await host.exists(folder / "memory.swap.max"):
        values, swap = {"memory.max": memory, "memory.swap.max": 0}, "off"
    else:
        values, swap = {"memory.max": memory}, "not limited: the kernel counts none by group"
    for file, value in values.items():
        await _limit(host, folder / file, value)
    return MemoryGroup(host, mounts, folder, memory, swap)


async def _limit(host: Host, file: Path, value: int) -> None:
    try:
        await host.write(file, str(value).encode())
        found = (await host.read(file)).decode().strip()
    except OSError as error:
        raise MachineFault(f"{file} cannot be set to {value}: {error.strerror}") from error
    # The kernel rounds to whole pages, down (cgroup-v2.rst, memory.max).
    if not found.isdigit() or not 0 <= value - int(found) < 1 << 16:
        raise MachineFault(f"{file} was set to {value}, but the kernel says {found}")
