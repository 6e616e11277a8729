"""A machine's own disk: a file on the host with a new ext4, the same in every arm.

The host formats the file (which needs no root), so that every machine starts from the same blocks.
A guest gets the file as a disk. A process or container gets it mounted through a loop device.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare.errors import InputError, MachineFault
from tare.hosts.contract import Completed, Host
from tare.hosts.ledger.ledger import Ledger
from tare.hosts.loops import detach, unmount_fully
from tare.hosts.programs import install_command_for
from tare.platforms.contract import Context, MachineSpec
from tare.programs import MKFS
from tare.units import format_size

LABEL = "tare-scratch"
"""The label by which the agent finds the disk among others."""
VARIABLE = "TARE_SCRATCH"
"""The environment variable with the disk's mount point, for agents that run as host processes."""
INSIDE = "/scratch"
"""The mount point of the disk in machines with their own file system."""

FILE = "disk.img"
MOUNTED = "tare-scratch"
SPARE = 64 << 20
"""Bytes of the host's disk that Tare leaves free for everything else."""
_TOOL_S = 120.0
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
_ELSEWHERE = Path("/var/tmp")
# The same UUID in every machine, so that directories hash alike. The hash determines the order of
# files in a directory, and thus what a workload does, which must not differ between machines.
_IDENTITY = "74617265-0000-4000-8000-000000000001"
FORMAT = (
    *("-q", "-F", "-t", "ext4", "-L", LABEL, "-m", "0", "-U", _IDENTITY),
    # Initialise everything now, so that the kernel does not do it during a measurement.
    "-E",
    f"nodiscard,lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0,hash_seed={_IDENTITY}",
)
_PREZEROED = ",assume_storage_prezeroed=1"
"""Supported by mke2fs 1.47 and later: a new file reads as zeros, so none need to be written."""


@dataclass(frozen=True)
class OwnDisk:
    """A formatted file of the host.

    Args:
        file: The file.
        size: Its size in bytes.
        reserved: Whether the host's file system has reserved the space, so that it cannot run
            out while the machine runs.
        under: The file behind ``file``, if ``file`` is a loop device.
    """

    file: Path
    size: int
    reserved: bool
    under: Path | None = None


async def require_room(host: Host, size: int, folder: Path | None = None) -> None:
    """Refuse a study if the host lacks the room or the tools for its machines' disks.

    Args:
        host: The host of the machines.
        size: Size of one machine's disk in bytes; 0: nothing is checked.
        folder: The folder for the disk; None: the folder for temporary files.

    Raises:
        InputError: The host's disk is too full, or mkfs.ext4 is missing there.
    """
    if not size:
        return
    found = await run_tool(host, "mkfs.ext4", "-V")
    if not found.ok:
        hint = await install_command_for(host, MKFS)
        raise InputError("mkfs.ext4, which formats the machines' disks, does not run", hint)
    place = await _place(host, folder or Path(tempfile.gettempdir()))
    if (reason := await _lacks_room(host, place, size)) is not None:
        raise InputError(reason, f"make room (df -h {place}), or take a smaller `disk`")


@asynccontextmanager
async def owned_disk(context: Context, spec: MachineSpec) -> AsyncIterator[OwnDisk | None]:
    """Make the disk that a machine's shape asks for, and remove it at the end.

    Args:
        context: The host; its ledger records everything before it is created.
        spec: The machine; its folder must exist.

    Yields:
        The disk; None if the shape has none.

    Raises:
        MachineFault: The host's disk is full, or the file cannot be formatted.
    """
    if not spec.shape.disk:
        yield None
        return
    host = context.host
    place = await _place(host, spec.workdir)
    async with contextlib.AsyncExitStack() as held:
        if place != spec.workdir:
            place = place / f"{spec.name}-disk"
            await held.enter_async_context(_folder(host, context.ledger, place))
        size = spec.shape.disk
        if (reason := await _lacks_room(host, place, size)) is not None:
            raise MachineFault(f"{spec.name}: {reason}", f"make room: df -h {place}")
        file = place / FILE
        try:
            reserved = await _make_file(host, spec.name, file, size)
            await format_disk(host, spec.name, file)
            yield OwnDisk(file, size, reserved)
        finally:
            await host.remove(file)


@dataclass(frozen=True)
class MountedDisk:
    """A disk that is mounted for a process of the host.

    Args:
        path: The mount point.
        record: How it is attached, for the machine's record.
        device: The host's name of the loop device, such as ``loop3``; empty if there is none.
    """

    path: Path
    record: Mapping[str, Any]
    device: str = ""


@asynccontextmanager
async def mounted_disk(context: Context, spec: MachineSpec) -> AsyncIterator[MountedDisk | None]:
    """Make and mount the disk of a machine that shares the host's kernel.

    If Tare cannot use loop devices there, the disk is a directory on the host's own file system.
    The record shows that.

    Yields:
        The mounted disk; None if the shape has none.

    Raises:
        MachineFault: The host's disk is full.
    """
    async with owned_disk(context, spec) as disk:
        if disk is None:
            yield None
            return
        host, ledger = context.host, context.ledger
        folder = disk.file.parent / MOUNTED
        async with contextlib.AsyncExitStack() as held:
            await _made(host, folder)
            name = ""
            try:
                device, direct = await held.enter_async_context(on_loop(host, ledger, disk.file))
                await held.enter_async_context(_mounted(host, ledger, device, folder))
                name = Path(device).name
                how = "with direct I/O" if direct else "through the host's page cache"
                record = {
                    "attached": f"loop device {how}",
                    "file_system": "ext4",
                    "bytes": disk.size,
                    "reserved": disk.reserved,
                }
            except NoLoop as refusal:
                await host.remove(disk.file)
                record = {
                    "attached": "a directory on the host's own file system",
                    "reason": str(refusal),
                }
            yield MountedDisk(folder, record, name)


async def device_moved(host: Host, device: str) -> dict[str, float]:
    """Return how many bytes a block device of a host has moved so far.

    Source: fields 3 and 7 of ``/sys/block/DEVICE/stat``, in sectors of 512 bytes
    (Documentation/block/stat.rst).

    Returns:
        Bytes that were ``read`` and ``written``; empty if the host does not report them.
    """
    try:
        fields = (await host.read(f"/sys/block/{device}/stat")).split()
        return {"read": int(fields[2]) * 512.0, "written": int(fields[6]) * 512.0}
    except (OSError, IndexError, ValueError):
        return {}


class NoLoop(Exception):
    """No loop device is available; the text gives the reason."""


@asynccontextmanager
async def on_loop(host: Host, ledger: Ledger, file: Path) -> AsyncIterator[tuple[str, bool]]:
    """Attach a file to a loop device, after recording it in the ledger.

    Args:
        host: The host that has the file.
        ledger: Records the attachment.
        file: A file, with a path component that begins with ``tare-``.

    Yields:
        The device, and whether it bypasses the host's page cache (direct I/O).

    Raises:
        NoLoop: The host has no loop device, or Tare may not use it.
    """
    entry = ledger.record("loop", path=str(file))
    try:
        device, direct = await _attach(host, file)
        yield device, direct
    finally:
        await detach(host, file)
        ledger.done(entry)


async def _attach(host: Host, file: Path) -> tuple[str, bool]:
    reason = "there is no losetup"
    for wanted in ("on", "off"):
        done = await run_tool(
            host, "losetup", "--find", "--show", f"--direct-io={wanted}", str(file)
        )
        device = done.stdout.decode().strip()
        if done.ok and device.startswith("/dev/"):
            name = device.removeprefix("/dev/")
            with contextlib.suppress(OSError):
                direct = (await host.read(f"/sys/block/{name}/loop/dio")).strip() == b"1"
                return device, direct
            return device, False
        await detach(host, file)
        reason = done.words() or reason
    raise NoLoop(f"no loop device can be had: {reason}")


@asynccontextmanager
async def _mounted(host: Host, ledger: Ledger, device: str, folder: Path) -> AsyncIterator[None]:
    entry = ledger.record("mount", path=str(folder), type="ext4")
    try:
        done = await run_tool(
            host, "mount", "-t", "ext4", "-o", "nosuid,nodev", device, str(folder)
        )
        if not done.ok:
            raise NoLoop(f"{device} cannot be mounted: {done.words()}")
        yield
    finally:
        await unmount_fully(host, folder)
        ledger.done(entry)


@asynccontextmanager
async def _folder(host: Host, ledger: Ledger, path: Path) -> AsyncIterator[None]:
    entry = ledger.record("directory", path=str(path))
    try:
        await _made(host, path)
        yield
    finally:
        await host.remove(path)
        ledger.done(entry)


async def _made(host: Host, path: Path) -> None:
    done = await host.run(["mkdir", "-p", "-m", "700", str(path)], timeout_s=30)
    if not done.ok:
        raise MachineFault(f"{path} cannot be made: {done.words()}")


async def _make_file(host: Host, name: str, file: Path, size: int) -> bool:
    """Make a file of zeros; return whether its space is reserved."""
    done = await run_tool(host, "fallocate", "-l", str(size), str(file))
    if done.ok:
        return True
    if b"No space left" in done.stderr:
        raise MachineFault(f"{name}: the host's disk is full: {done.words()}")
    done = await run_tool(host, "truncate", "-s", str(size), str(file))
    if not done.ok:
        raise MachineFault(f"{name}: its disk cannot be made: {done.words()}")
    return False


async def format_disk(host: Host, name: str, file: Path, *, zeroed: bool = True) -> None:
    """Make the file system of a machine's disk.

    Args:
        host: The host that has the disk.
        name: The machine's name.
        file: The file or block device.
        zeroed: Whether all of it reads as zeros already.

    Raises:
        MachineFault: mkfs.ext4 failed.
    """
    words = FORMAT[-1] + (_PREZEROED if zeroed else "")
    done = await run_tool(host, "mkfs.ext4", *FORMAT[:-1], words, str(file))
    if not done.ok and b"assume_storage_prezeroed" in done.stderr + done.stdout:
        done = await run_tool(host, "mkfs.ext4", *FORMAT, str(file))
    if not done.ok:
        hint = await install_command_for(host, MKFS)
        raise MachineFault(f"{name}: its disk cannot be formatted: {done.words()}", hint)


async def _place(host: Host, folder: Path) -> Path:
    """Return a folder for disks that is on disk, not in memory, if there is one."""
    for place in (folder, _ELSEWHERE):
        kind = await host.run(["stat", "-f", "-c", "%T", str(place)], timeout_s=30)
        if kind.stdout.decode().strip() not in _IN_MEMORY:
            return place
    return folder


async def _lacks_room(host: Host, folder: Path, size: int) -> str | None:
    done = await host.run(["df", "-B1", "--output=avail", str(folder)], timeout_s=30)
    found = re.findall(rb"\d+", done.stdout)
    if not done.ok or not found:
        return None
    free = int(found[-1])
    if free >= size + SPARE:
        return None
    return (
        f"the host's disk is full: a machine's disk of {format_size(size)} is wanted in {folder}, "
        f"where {free >> 20} MiB are free"
    )


async def run_tool(host: Host, program: str, *arguments: str) -> Completed:
    """Run an administrator's tool, which may be outside PATH."""
    script = 'PATH="$PATH:/usr/sbin:/sbin" exec "$@"'
    return await host.run(["sh", "-c", script, "sh", program, *arguments], timeout_s=_TOOL_S)


async def forget_file(host: Host, file: Path) -> dict[str, Any]:
    """Make the host drop its cache of a machine's disk.

    Returns:
        ``dropped``; and the cached bytes ``cached_bytes_before`` and ``cached_bytes_after``, if the
        host reports them. Method: posix_fadvise(2), POSIX_FADV_DONTNEED, which dd(1) uses.
    """
    before = await _cached(host, file)
    await host.run(["sync", str(file)], timeout_s=_TOOL_S)
    done = await host.run(["dd", f"if={file}", "iflag=nocache", "count=0"], timeout_s=_TOOL_S)
    record: dict[str, Any] = {"dropped": "the disk's file" if done.ok else "nothing"}
    after = await _cached(host, file)
    if before is not None and after is not None:
        record |= {"cached_bytes_before": before, "cached_bytes_after": after}
    return record


async def _cached(host: Host, file: Path) -> int | None:
    try:
        done = await host.run(["fincore", "-b", "-n", "-o", "RES", str(file)], timeout_s=30)
        return int(done.stdout) if done.ok else None
    except (InputError, ValueError):
        return None


async def forget_everything(host: Host, folder: Path) -> dict[str, Any]:
    """Make the host drop its caches of all files, if Tare may (Linux, vm.rst)."""
    await host.run(["sync", "-f", str(folder)], timeout_s=_TOOL_S)
    try:
        await host.write("/proc/sys/vm/drop_caches", b"3\n")
    except OSError as error:
        return {"dropped": "nothing", "reason": error.strerror or str(error)}
    return {"dropped": "all caches of files"}


def block_cache(answer: Sequence[Mapping[str, Any]], node: str) -> dict[str, Any] | None:
    """Return the cache mode of a block node, as QEMU reports it.

    Args:
        answer: The answer to QMP's ``query-block`` (QEMU's QMP reference, BlockdevCacheInfo).
        node: The node's name.

    Returns:
        The flags ``writeback``, ``direct`` and ``no-flush``; None if QEMU lists no such node.
    """
    for device in answer:
        inserted = device.get("inserted") or {}
        if inserted.get("node-name") == node:
            cache = inserted.get("cache") or {}
            return {key: cache.get(key) for key in ("writeback", "direct", "no-flush")}
    return None


def disk_variable(disk: MountedDisk | None, inside: str | None = None) -> dict[str, str]:
    """Return the environment variable with the mount point of an agent's disk.

    Args:
        disk: The disk; None if there is none.
        inside: The mount point as the agent sees it; None: the same as on the host.
    """
    return {} if disk is None else {VARIABLE: inside or str(disk.path)}
