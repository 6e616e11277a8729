"""Undo what a killed run left behind: exactly what its ledger lists, and nothing else.

What each kind of entry holds, and what undoing it takes:

========= ============================== =====================================================
process   token, command; pid, starttime killed if pid *and* start time match, or by its token
cgroup    path                           its processes killed, then removed, if named ``tare-…``
directory path                           removed if a part of the path is named ``tare-…``
file      path                           the same
setting   path, before, value            ``before`` written back if it still holds ``value``
mount     path, type                     unmounted, if a part of the path is named ``tare-…``
loop      path                           detached from that file, if a part is named ``tare-…``
trace     path                           the tracer's instance stopped and removed, if ``tare-…``
link      name                           deleted, if named ``tare-…``: a bridge, tap, veth or vxlan
netns     name                           deleted, if named ``tare-…``: a network namespace
========= ============================== =====================================================

Platforms and parts of a run have kinds of their own beside these, and say how each is undone
(:attr:`tare.platforms.contract.Platform.undoers`, :mod:`tare.run.undoing`): whoever cleans brings
them along.

Everything may be undone twice. What does not look like Tare's own is left, and told.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path, PurePosixPath
from typing import Any

from tare.errors import InputError, MachineFault
from tare.hosts.contract import Host
from tare.hosts.interfaces import remove_network_part
from tare.hosts.ledger.ledger import LAB, Entry, Ledger, LedgerInUse, all_ledgers
from tare.hosts.ledger.nested import AFAR, entry_there
from tare.hosts.ledger.settings import restore
from tare.hosts.ledger.undoing import PREFIX, Refused, Undo
from tare.hosts.loops import attached, detach
from tare.hosts.processes import find_by_token, kill_and_wait, start_time
from tare.hosts.trace.tracefs import INSTANCES, remove_instance

GROUP_S = 10.0
"""So long the kernel may take to let a control group go whose processes have ended."""

CGROUPS = PurePosixPath("/sys/fs/cgroup")


Reach = Callable[[Mapping[str, Any]], AbstractAsyncContextManager[Host]]
"""Opens another host by what a ledger says of the way to it."""


async def clean_all(
    host: Host,
    undoers: Mapping[str, Undo],
    reach: Reach | None = None,
    *,
    tell_of_going: bool = True,
) -> list[str]:
    """Undo the open entries of every run that is no longer going.

    Args:
        host: The host whose entries are undone.
        undoers: How kinds beside these are undone.
        reach: Opens the other hosts that ledgers name; without it, their entries are left.
        tell_of_going: Whether ledgers of runs that still go are told of, as left alone. A run
            with two hosts that are one computer meets its own.

    Returns:
        What was done and what was left, one sentence each; empty when there was nothing.
    """
    told: list[str] = []
    for path in all_ledgers():
        try:
            ledger = Ledger(path)
        except InputError as error:
            going = isinstance(error, LedgerInUse)
            if going and (path.stem == LAB or not tell_of_going):
                continue  # A lab is up, and `tare lab down` ends it.
            told.append(f"{path.stem}: left alone: {error}.")
            continue
        try:
            if ledger.host == host.name:
                did = await clean(host, ledger, undoers)
            elif ledger.open_entries():
                did = await _clean_afar(ledger, undoers, reach)
            else:
                did = []
            told += [f"{path.stem}: {sentence}" for sentence in did]
        finally:
            ledger.discard()
    return told


async def _clean_afar(
    ledger: Ledger, undoers: Mapping[str, Undo], reach: Reach | None
) -> list[str]:
    if reach is None or ledger.reach is None:
        return [f"left alone: it lists what was made on {ledger.host}."]
    try:
        async with reach(ledger.reach) as host:
            return [f"{host.name}: {sentence}" for sentence in await clean(host, ledger, undoers)]
    except (MachineFault, InputError) as error:
        return [f"left alone: {error}."]


async def clean(
    host: Host, ledger: Ledger, undoers: Mapping[str, Undo], since: int = 0
) -> list[str]:
    """Undo all open entries of a ledger, the newest first.

    Args:
        host: Where the entries were made.
        ledger: The ledger; an entry that was undone is marked as done.
        undoers: How kinds beside these are undone.
        since: Leave what was recorded before the entry of this number.

    Returns:
        What was done and what was left, one sentence each.
    """
    known = {**_UNDO, **undoers}
    told: list[str] = []
    lost: Counter[str] = Counter()
    for entry in reversed(ledger.open_entries()):
        if entry.number < since:
            break
        machine = str(entry.details["of"]) if entry.kind == AFAR else ""
        if machine in lost:
            # One attempt for all of them: a machine that is gone stays so for each.
            lost[machine] += 1
            continue
        if entry.kind not in known:
            told.append(f"Could not undo {_words(entry)}: what made it is not installed.")
            continue
        try:
            sentence = await known[entry.kind](host, entry)
        except Refused as refusal:
            told.append(f"Left {_words(entry)}: {refusal}.")
            ledger.done(entry)
            continue
        except (OSError, MachineFault, InputError) as error:
            told.append(f"Could not undo {_words(entry)}: {error}.")
            if machine and isinstance(error, MachineFault) and error.transient:
                lost[machine] = 0
            continue
        ledger.done(entry)
        if sentence:
            told.append(sentence)
    return told + [
        f"{count} more of {machine} were not tried: `tare clean` does once it is back."
        for machine, count in lost.items()
        if count
    ]


async def undo_one(host: Host, entry: Entry) -> str:
    """Undo one entry of a kind that every host has; see :data:`tare.hosts.ledger.undoing.Undo`."""
    if entry.kind not in _UNDO:
        raise Refused(f"nobody knows how {entry.kind} is undone")
    return await _UNDO[entry.kind](host, entry)


def _words(entry: Entry) -> str:
    if entry.kind == AFAR:
        return f"{_words(entry_there(entry))} on {entry.details['of']}"
    return f"{entry.kind} {_named(entry)}"


def _named(entry: Entry) -> str:
    for key in ("path", "id", "command"):
        if key in entry.details:
            return str(entry.details[key])
    return f"number {entry.number}"


async def _undo_process(host: Host, entry: Entry) -> str:
    if entry.boot != host.boot_id():
        return ""
    killed: set[int] = set()
    # Again, for what began to run while the others were killed.
    while pids := await _pids(host, entry):
        killed |= pids
        if left := await kill_and_wait(host, sorted(pids)):
            raise MachineFault(f"process {left[0]} does not end")
    if not killed:
        return ""
    ids = ", ".join(map(str, sorted(killed)))
    return f"Killed {entry.details.get('command', 'process')} (process {ids})."


async def _pids(host: Host, entry: Entry) -> set[int]:
    pids = set(await find_by_token(host, str(entry.details["token"])))
    pid, began = entry.details.get("pid"), entry.details.get("starttime")
    if pid is not None and began is not None and await start_time(host, int(pid)) == began:
        pids.add(int(pid))
    return pids


async def _undo_cgroup(host: Host, entry: Entry) -> str:
    path = PurePosixPath(str(entry.details["path"]))
    if not path.is_relative_to(CGROUPS) or not path.name.startswith(PREFIX) or ".." in path.parts:
        raise Refused(f"it is not a cgroup named {PREFIX}…")
    return f"Removed cgroup {path}." if await remove_cgroup(host, path) else ""


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


async def _undo_setting(host: Host, entry: Entry) -> str:
    if entry.boot != host.boot_id() and str(entry.details["path"]).startswith(("/proc/", "/sys/")):
        return ""
    if not await host.exists(Path(str(entry.details["path"]))):
        return ""
    return await restore(host, entry)


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


async def _undo_loop(host: Host, entry: Entry) -> str:
    path = PurePosixPath(str(entry.details["path"]))
    ours = any(part.startswith(PREFIX) for part in path.parts)
    if not path.is_absolute() or ".." in path.parts or not ours:
        raise Refused(f"no part of the path is named {PREFIX}…")
    if entry.boot != host.boot_id() or not await attached(host, Path(path)):
        return ""
    if not await detach(host, Path(path)):
        raise MachineFault("it is in use")
    return f"Detached the loop device of {path}."


async def _undo_trace(host: Host, entry: Entry) -> str:
    path = PurePosixPath(str(entry.details["path"]))
    if path.parent.name != INSTANCES or not path.name.startswith(PREFIX):
        raise Refused(f"it is not an instance named {PREFIX}…")
    if entry.boot != host.boot_id():
        return ""
    return f"Removed trace instance {path.name}." if await remove_instance(host, Path(path)) else ""


async def _undo_network(host: Host, entry: Entry) -> str:
    name = str(entry.details["name"])
    if not name.startswith(PREFIX) or "/" in name:
        raise Refused(f"its name does not begin with {PREFIX}")
    if entry.boot != host.boot_id():
        return ""
    what = "network namespace" if entry.kind == "netns" else "network interface"
    removed = await remove_network_part(host, entry.kind, name)
    return f"Removed {what} {name}." if removed else ""


_UNDO: Mapping[str, Undo] = {
    "process": _undo_process,
    "cgroup": _undo_cgroup,
    "directory": _undo_path,
    "file": _undo_path,
    "setting": _undo_setting,
    "mount": _undo_mount,
    "loop": _undo_loop,
    "trace": _undo_trace,
    "link": _undo_network,
    "netns": _undo_network,
}


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
