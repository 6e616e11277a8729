"""The kernel's tracing files: located or mounted, with a private instance.

An instance has its own buffer, events and filters (Documentation/trace/ftrace.rst), so other
tracing on the host continues undisturbed. The ledger lists both the mount and the instance.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path, PurePosixPath
from typing import Literal

from tare.errors import MachineFault
from tare.hosts.contract import Host
from tare.hosts.ledger.ledger import Entry, Ledger
from tare.hosts.ledger.undoing import PREFIX, NotOwn, Undo

INSTANCES = "instances"
EVENTS = "synthetic_events"
_EVENT_PREFIX = "tare_"
"""The prefix of events' names, which cannot contain hyphens."""
ALL_THREADS = b"pid:[4026531836]"
"""The kernel's initial PID namespace (include/linux/proc_ns.h, ``PROC_PID_INIT_INO``)."""
_DONE_S = 30.0


class NoTracing(Exception):
    """The host's scheduler cannot be traced; the text states the reason."""


@asynccontextmanager
async def traced(host: Host, ledger: Ledger) -> AsyncIterator[Path]:
    """Create a private instance of the kernel's tracer, and remove it at the end.

    Args:
        host: The host to trace.
        ledger: Records the mount and the instance before they are made.

    Yields:
        The instance's directory.

    Raises:
        NoTracing: Tracing is not possible here.
    """
    async with tracing_root(host, ledger) as root, instance_in(host, ledger, root) as instance:
        yield instance


@asynccontextmanager
async def tracing_root(host: Host, ledger: Ledger) -> AsyncIterator[Path]:
    """Yield the folder of the tracing files; mount them privately if they are not mounted.

    Raises:
        NoTracing: Tracing is not possible here.
    """
    if not await _as_root(host):
        raise NoTracing("tracing the host's scheduler needs root")
    if not await _knows_all_threads(host):
        raise NoTracing(
            "Tare runs in a container whose thread ids differ from those in the kernel's trace: "
            "run it in the host's PID namespace (docker run --pid=host)"
        )
    async with kernel_files(host, ledger, "tracefs") as root:
        yield root


@asynccontextmanager
async def instance_in(host: Host, ledger: Ledger, root: Path) -> AsyncIterator[Path]:
    """Create a private instance in the folder of the tracing files, and remove it at the end.

    Raises:
        NoTracing: The kernel refuses.
    """
    instance = root / INSTANCES / f"{PREFIX}{secrets.token_hex(4)}"
    entry = ledger.record("trace", path=str(instance))
    made = await host.run(["mkdir", str(instance)], timeout_s=_DONE_S)
    if not made.ok:
        ledger.done(entry)
        raise NoTracing(f"no instance can be made in {root}: {made.words()}")
    try:
        yield instance
    finally:
        await remove_instance(host, instance)
        ledger.done(entry)


@asynccontextmanager
async def synthetic_event(
    host: Host, ledger: Ledger, root: Path, fields: str
) -> AsyncIterator[str]:
    """Define an event that other events' triggers can raise, and remove it at the end.

    All instances share such events, so it has a unique name. It can be removed only when no trigger
    refers to it: define it before, and remove it after, the instance that uses it.
    Source: the kernel's Documentation/trace/histogram.rst, section 2.2.

    Args:
        host: The host to trace.
        ledger: Records the event before it is defined.
        root: The folder of the tracing files.
        fields: Types and names, separated by semicolons.

    Yields:
        The event's name.

    Raises:
        NoTracing: The kernel has no such events, or refuses this one.
    """
    if not await host.exists(root / EVENTS):
        raise NoTracing("this kernel was built without synthetic events (CONFIG_SYNTH_EVENTS)")
    name = f"{_EVENT_PREFIX}{secrets.token_hex(4)}"
    entry = ledger.record("trace-event", path=str(root / EVENTS), name=name)
    made = await _append(host, root / EVENTS, f"{name} {fields}")
    if made:
        ledger.done(entry)
        raise NoTracing(f"the kernel refuses a synthetic event: {made}")
    try:
        yield name
    finally:
        if not await _append(host, root / EVENTS, f"!{name}"):
            ledger.done(entry)


async def _append(host: Host, path: Path, line: str) -> str:
    """Append a line, because opening the file otherwise removes all events; return the refusal."""
    script = ["sh", "-c", 'printf "%s\\n" "$2" >>"$1"', "sh", str(path), line]
    done = await host.run(script, timeout_s=_DONE_S)
    return "" if done.ok else done.words() or f"status {done.returncode}"


@asynccontextmanager
async def kernel_files(
    host: Host, ledger: Ledger, kind: Literal["tracefs", "debugfs"]
) -> AsyncIterator[Path]:
    """Yield the folder of a kernel's file system; mount it privately if it is not mounted.

    Raises:
        NoTracing: The kernel lacks the file system, or it cannot be mounted.
    """
    mounted = mounted_at((await host.read("/proc/self/mounts")).decode(), kind)
    if mounted is not None:
        yield mounted
        return
    if kind.encode() not in (await host.read("/proc/filesystems")):
        raise NoTracing(f"this kernel was built without {kind}")
    folder = (
        Path(tempfile.gettempdir() if host.local else "/tmp") / f"{PREFIX}{secrets.token_hex(4)}"
    )
    made = ledger.record("directory", path=str(folder))
    try:
        await host.run(["mkdir", "-m", "700", str(folder)], timeout_s=_DONE_S)
        entry = ledger.record("mount", path=str(folder), type=kind)
        options = ["-o", "nosuid,nodev,noexec"]
        done = await host.run(["mount", "-t", kind, *options, kind, str(folder)])
        if not done.ok:
            ledger.done(entry)
            raise NoTracing(f"{kind} cannot be mounted: {done.words()}")
        try:
            yield folder
        finally:
            if await unmount(host, folder):
                ledger.done(entry)
    finally:
        if not await _is_mount(host, folder):
            await host.remove(folder)
            ledger.done(made)


async def _as_root(host: Host) -> bool:
    if host.local:
        return os.geteuid() == 0
    return (await host.run(["id", "-u"], timeout_s=_DONE_S)).stdout.strip() == b"0"


async def _knows_all_threads(host: Host) -> bool:
    """Return whether thread ids here equal those in the kernel's trace."""
    found = await host.run(["readlink", "/proc/self/ns/pid"], timeout_s=_DONE_S)
    return not found.ok or found.stdout.strip() == ALL_THREADS


async def _is_mount(host: Host, folder: Path) -> bool:
    return (await host.run(["mountpoint", "-q", str(folder)], timeout_s=_DONE_S)).ok


def mounted_at(mounts: str, wanted: str) -> Path | None:
    """Return the folder where a file system is mounted for writing, by ``/proc/self/mounts``."""
    for line in mounts.splitlines():
        _, where, kind, options, *_ = line.split(" ")
        if kind == wanted and "rw" in options.split(",") and PREFIX not in where:
            return Path(where)
    return None


async def unmount(host: Host, folder: Path) -> bool:
    """Unmount a folder of Tare's; return whether it is unmounted."""
    if not await _is_mount(host, folder):
        return True
    done = await host.run(["umount", str(folder)], timeout_s=_DONE_S)
    return done.ok


async def remove_instance(host: Host, instance: Path) -> bool:
    """Stop an instance and remove it.

    Returns:
        Whether it existed.

    Raises:
        MachineFault: The instance still exists.
    """
    if not await host.exists(instance):
        return False
    for control in ("tracing_on", "events/enable"):
        await host.write(instance / control, b"0\n")
    gone = await host.run(["rmdir", str(instance)], timeout_s=30)
    if not gone.ok and await host.exists(instance):
        raise MachineFault(gone.words())
    return True


async def _undo_trace(host: Host, entry: Entry) -> str:
    path = PurePosixPath(str(entry.details["path"]))
    if path.parent.name != INSTANCES or not path.name.startswith(PREFIX):
        raise NotOwn(f"it is not an instance named {PREFIX}…")
    if entry.boot != host.boot_id():
        return ""
    return f"Removed trace instance {path.name}." if await remove_instance(host, Path(path)) else ""


async def _undo_event(host: Host, entry: Entry) -> str:
    path, name = Path(str(entry.details["path"])), str(entry.details["name"])
    if path.name != EVENTS or not name.startswith(_EVENT_PREFIX):
        raise NotOwn(f"it is not an event named {_EVENT_PREFIX}…")
    if entry.boot != host.boot_id() or not await host.exists(path):
        return ""
    if name not in (await host.read(path)).decode():
        return ""
    if refused := await _append(host, path, f"!{name}"):
        raise MachineFault(refused)
    return f"Removed trace event {name}."


UNDOERS: Mapping[str, Undo] = {"trace": _undo_trace, "trace-event": _undo_event}
