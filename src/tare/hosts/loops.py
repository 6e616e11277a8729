"""Loop devices and mounts of them, which are always released."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from tare.errors import InputError, MachineFault
from tare.hosts.contract import Completed, Host
from tare.hosts.ledger.ledger import Entry
from tare.hosts.ledger.undoing import PREFIX, NotOwn, Undo

_TRIES = 20
_PAUSE_S = 0.1


async def detach(host: Host, file: Path) -> bool:
    """Detach every loop device from a file.

    Returns:
        Whether no device is attached to the file any more.
    """
    for _ in range(_TRIES):
        devices = await attached(host, file)
        if not devices:
            return True
        for device in devices:
            await _run(host, "losetup", "--detach", device)
        if not await attached(host, file):
            return True
        # The last user of the device may still be exiting.
        await asyncio.sleep(_PAUSE_S)
    return False


async def attached(host: Host, file: Path) -> tuple[str, ...]:
    """Return the loop devices of a file; empty if losetup is missing."""
    done = await _run(host, "losetup", "--associated", str(file), "--noheadings", "-O", "NAME")
    return tuple(done.stdout.decode().split()) if done.ok else ()


async def unmount_fully(host: Host, folder: Path) -> bool:
    """Unmount a folder; if it stays in use, unmount it lazily.

    Returns:
        Whether nothing is mounted there any more.
    """
    for _ in range(_TRIES):
        if not await mounted(host, folder):
            return True
        if (await _run(host, "umount", str(folder))).ok:
            return not await mounted(host, folder)
        await asyncio.sleep(_PAUSE_S)
    await _run(host, "umount", "--lazy", str(folder))
    return not await mounted(host, folder)


async def mounted(host: Host, folder: Path) -> bool:
    """Return whether anything is mounted at a folder."""
    text = (await host.read("/proc/self/mountinfo")).decode()
    # In mountinfo, spaces and similar characters are octal escapes, proc(5).
    places = (line.split()[4].encode().decode("unicode_escape") for line in text.splitlines())
    return str(folder) in places


async def _run(host: Host, program: str, *arguments: str) -> Completed:
    script = 'PATH="$PATH:/usr/sbin:/sbin" exec "$@"'
    try:
        return await host.run(["sh", "-c", script, "sh", program, *arguments], timeout_s=60)
    except InputError as error:
        return Completed(127, b"", error.message.encode())


async def _undo_loop(host: Host, entry: Entry) -> str:
    path = PurePosixPath(str(entry.details["path"]))
    ours = any(part.startswith(PREFIX) for part in path.parts)
    if not path.is_absolute() or ".." in path.parts or not ours:
        raise NotOwn(f"no part of the path is named {PREFIX}…")
    if entry.boot != host.boot_id() or not await attached(host, Path(path)):
        return ""
    if not await detach(host, Path(path)):
        raise MachineFault("it is in use")
    return f"Detached the loop device of {path}."


UNDOERS: Mapping[str, Undo] = {"loop": _undo_loop}
