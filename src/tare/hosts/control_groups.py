"""Removal of control groups that Tare made on a host, with everything in them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from tare.errors import MachineFault
from tare.hosts.contract import Host
from tare.hosts.ledger.resources import Resource, undo_resource
from tare.hosts.ledger.undoing import PREFIX, NotOwn, Undo
from tare.hosts.processes import kill_and_wait

GROUP_S = 30.0
"""Time limit for the kernel to remove a control group whose processes have ended."""
CGROUPS = PurePosixPath("/sys/fs/cgroup")


async def remove_cgroup(host: Host, path: str | PurePosixPath) -> bool:
    """Kill all processes in a control group and those below it, and remove the groups.

    Returns:
        Whether there was anything to remove.

    Raises:
        MachineFault: The group still exists.
    """
    if not await host.exists(Path(path)):
        return False
    listed = await host.run(["find", str(path), "-depth", "-type", "d"], timeout_s=10)
    for folder in listed.stdout.decode().splitlines():
        await _remove_group(host, folder)
    return True


async def _remove_group(host: Host, folder: str) -> None:
    """Kill the processes of one group, and remove it once its last process has gone."""
    deadline = time.monotonic() + GROUP_S
    while True:
        members = await host.run(["cat", f"{folder}/cgroup.procs"])
        if pids := [int(pid) for pid in members.stdout.split()]:
            await kill_and_wait(host, pids)
        gone = await host.run(["rmdir", folder])
        if gone.ok or not await host.exists(Path(folder)):
            return
        # A process that is no longer listed may still be releasing its memory.
        if time.monotonic() > deadline:
            raise MachineFault(gone.words())
        await asyncio.sleep(0.1)


class ControlGroup(Resource):
    """A control group that Tare made, with all processes and groups in it.

    Args:
        host: The host that has the group.
        path: The group's folder.
        made: Whether the group is created elsewhere, such as by a container's runtime or a killed
            run.
    """

    kind = "cgroup"

    def __init__(self, host: Host, path: Path | PurePosixPath, *, made: bool = False) -> None:
        self._host = host
        self._path = Path(path)
        # A group that already existed belongs to another program, and stays.
        self._made = made

    @property
    def details(self) -> Mapping[str, Any]:
        """The group's folder."""
        return {"path": str(self._path)}

    @property
    def words(self) -> str:
        """A phrase that names the group's folder."""
        return f"cgroup {self._path}"

    @property
    def ends_with_boot(self) -> bool:
        """Whether a reboot removes the group; False, so that Tare always searches for it."""
        return False

    async def create(self) -> None:
        """Create the group's folder; raise MachineFault with the host's message."""
        if not self._made:
            done = await self._host.run(["mkdir", str(self._path)], timeout_s=GROUP_S)
            if not done.ok:
                raise MachineFault(f"a control group cannot be made: {done.words()}", "run as root")
            self._made = True

    async def exists(self) -> bool:
        """Return whether the group's folder exists and is Tare's."""
        return self._made and await self._host.exists(self._path)

    async def remove(self) -> None:
        """Kill the group's processes and remove it; raise MachineFault if it still exists."""
        await remove_cgroup(self._host, str(self._path))


def _group_of(host: Host, details: Mapping[str, Any]) -> ControlGroup:
    path = PurePosixPath(str(details["path"]))
    if not path.is_relative_to(CGROUPS) or not path.name.startswith(PREFIX) or ".." in path.parts:
        raise NotOwn(f"it is not a cgroup named {PREFIX}…")
    return ControlGroup(host, path, made=True)


UNDOERS: Mapping[str, Undo] = {ControlGroup.kind: undo_resource(_group_of)}
