"""Control groups that Tare made on a host: their removal, with all that is left in them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from tare.errors import MachineFault
from tare.hosts.contract import Host
from tare.hosts.ledger.ledger import Entry
from tare.hosts.ledger.undoing import PREFIX, Refused, Undo
from tare.hosts.processes import kill_and_wait

GROUP_S = 10.0
"""So long the kernel may take to let a control group go whose processes have ended."""
CGROUPS = PurePosixPath("/sys/fs/cgroup")


async def remove_cgroup(host: Host, path: str | PurePosixPath) -> bool:
    """Kill what is left in a cgroup and those below it, and remove them.

    Returns:
        Whether there was anything to remove.

    Raises:
        MachineFault: It is still there.
    """
    if not await host.exists(Path(path)):
        return False
    listed = await host.run(["find", str(path), "-depth", "-type", "d"], timeout_s=10)
    for folder in listed.stdout.decode().splitlines():
        await _remove_group(host, folder)
    return True


async def _remove_group(host: Host, folder: str) -> None:
    """Kill what is left in one group, and remove it once its last process has left it."""
    deadline = time.monotonic() + GROUP_S
    while True:
        members = await host.run(["cat", f"{folder}/cgroup.procs"])
        if pids := [int(pid) for pid in members.stdout.split()]:
            await kill_and_wait(host, pids)
        gone = await host.run(["rmdir", folder])
        if gone.ok or not await host.exists(Path(folder)):
            return
        # A process that is not listed any more may still be giving its memory back.
        if time.monotonic() > deadline:
            raise MachineFault(gone.words())
        await asyncio.sleep(0.1)


async def _undo_cgroup(host: Host, entry: Entry) -> str:
    path = PurePosixPath(str(entry.details["path"]))
    if not path.is_relative_to(CGROUPS) or not path.name.startswith(PREFIX) or ".." in path.parts:
        raise Refused(f"it is not a cgroup named {PREFIX}…")
    return f"Removed cgroup {path}." if await remove_cgroup(host, path) else ""


UNDOERS: Mapping[str, Undo] = {"cgroup": _undo_cgroup}
