"""Files, directories and mounts that Tare made on a host: their removal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from tare.errors import MachineFault
from tare.hosts.contract import Host
from tare.hosts.ledger.ledger import Entry
from tare.hosts.ledger.undoing import PREFIX, Refused, Undo


async def _undo_path(host: Host, entry: Entry) -> str:
    path = PurePosixPath(str(entry.details["path"]))
    ours = any(part.startswith(PREFIX) for part in path.parts)
    if not path.is_absolute() or ".." in path.parts or not ours:
        raise Refused(f"no part of the path is named {PREFIX}…")
    if not await host.exists(Path(path)):
        return ""
    mounts = (await host.read("/proc/self/mountinfo")).decode().splitlines()
    below = [where for where in (line.split()[4] for line in mounts) if _within(where, path)]
    if below:
        raise MachineFault(f"{below[0]} is mounted there; unmount it: umount {below[0]}")
    await host.remove(Path(path))
    return f"Removed {path}."


def _within(where: str, path: PurePosixPath) -> bool:
    # mountinfo writes spaces and the like as octal escapes, proc(5).
    plain = where.encode().decode("unicode_escape")
    return PurePosixPath(plain).is_relative_to(path)


async def _undo_mount(host: Host, entry: Entry) -> str:
    path = PurePosixPath(str(entry.details["path"]))
    if not path.is_absolute() or ".." in path.parts or not path.name.startswith(PREFIX):
        raise Refused(f"it is not a directory named {PREFIX}…")
    mounts = (await host.read("/proc/self/mountinfo")).decode().splitlines()
    if entry.boot != host.boot_id() or str(path) not in (line.split()[4] for line in mounts):
        return ""
    done = await host.run(["umount", str(path)], timeout_s=30)
    if not done.ok:
        raise MachineFault(done.words())
    return f"Unmounted {path}."


UNDOERS: Mapping[str, Undo] = {"directory": _undo_path, "file": _undo_path, "mount": _undo_mount}
