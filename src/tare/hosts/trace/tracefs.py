"""The kernel's tracing files: found or mounted, and a private instance in them.

An instance has its own buffer, events and filters (Documentation/trace/ftrace.rst), so whatever
else is traced on the host goes on untouched. Both the mount and the instance are in the ledger.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tare.errors import MachineFault
from tare.hosts.contract import Host
from tare.hosts.ledger.ledger import Ledger

PREFIX = "tare-"
INSTANCES = "instances"


class NoTracing(Exception):
    """The host's scheduler cannot be traced; the text says why."""


@asynccontextmanager
async def traced(host: Host, ledger: Ledger) -> AsyncIterator[Path]:
    """Make a private instance of the kernel's tracer, and remove it in the end.

    Args:
        host: Where to trace; only the local one can be.
        ledger: Is told before the mount and before the instance.

    Yields:
        The instance's directory.

    Raises:
        NoTracing: It cannot be done here.
    """
    if not host.local:
        raise NoTracing(f"the scheduler of {host.name} can only be traced from itself")
    if os.geteuid() != 0:
        raise NoTracing("tracing the host's scheduler needs root")
    async with _tracefs(host, ledger) as root:
        instance = root / INSTANCES / f"{PREFIX}{secrets.token_hex(4)}"
        entry = ledger.record("trace", path=str(instance))
        try:
            instance.mkdir()
        except OSError as error:
            ledger.done(entry)
            raise NoTracing(f"no instance can be made in {root}: {error.strerror}") from error
        try:
            yield instance
        finally:
            await remove_instance(host, instance)
            ledger.done(entry)


@asynccontextmanager
async def _tracefs(host: Host, ledger: Ledger) -> AsyncIterator[Path]:
    """Yield where the tracing files are; mount them privately where they are nowhere."""
    mounted = mounted_tracefs((await host.read("/proc/self/mounts")).decode())
    if mounted is not None:
        yield mounted
        return
    if b"tracefs" not in (await host.read("/proc/filesystems")):
        raise NoTracing("this kernel was built without tracefs")
    folder = Path(tempfile.gettempdir()) / f"{PREFIX}{secrets.token_hex(4)}"
    made = ledger.record("directory", path=str(folder))
    folder.mkdir(mode=0o700)
    try:
        entry = ledger.record("mount", path=str(folder), type="tracefs")
        options = ["-o", "nosuid,nodev,noexec"]
        done = await host.run(["mount", "-t", "tracefs", *options, "tracefs", str(folder)])
        if not done.ok:
            ledger.done(entry)
            raise NoTracing(f"tracefs cannot be mounted: {done.words()}")
        try:
            yield folder
        finally:
            if await unmount(host, folder):
                ledger.done(entry)
    finally:
        if not folder.is_mount():
            await host.remove(folder)
            ledger.done(made)


def mounted_tracefs(mounts: str) -> Path | None:
    """Return where ``/proc/self/mounts`` says that tracefs is mounted for writing, if at all."""
    for line in mounts.splitlines():
        _, where, kind, options, *_ = line.split(" ")
        if kind == "tracefs" and "rw" in options.split(",") and PREFIX not in where:
            return Path(where)
    return None


async def unmount(host: Host, folder: Path) -> bool:
    """Unmount a folder of Tare's; return whether it is unmounted now."""
    if not folder.is_mount():
        return True
    done = await host.run(["umount", str(folder)], timeout_s=30)
    return done.ok


async def remove_instance(host: Host, instance: Path) -> bool:
    """Stop an instance and remove it.

    Returns:
        Whether there was one.

    Raises:
        MachineFault: It is still there.
    """
    if not await host.exists(instance):
        return False
    for control in ("tracing_on", "events/enable"):
        await host.write(instance / control, b"0\n")
    gone = await host.run(["rmdir", str(instance)], timeout_s=30)
    if not gone.ok and await host.exists(instance):
        raise MachineFault(gone.words())
    return True
