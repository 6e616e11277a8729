"""What befell a virtual machine: migrations, snapshots, backups, ballooning, swapping."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

from tare.platforms.vsphere.inventory import properties

MOVES = (
    "VmMigratedEvent",
    "DrsVmMigratedEvent",
    "VmRelocatedEvent",
    "VmBeingHotMigratedEvent",
    "VmSuspendedEvent",
    "VmFailoverEvent",
)
"""Events after which nothing measured meanwhile counts ("Event" and its kinds, API reference)."""


def befallen(client: Any, machine: Any, types: Any, home: str) -> Iterator[str]:
    """Yield what befell a virtual machine so far, a phrase each.

    Args:
        client: The service instance.
        machine: The virtual machine.
        types: PyVmomi's module.
        home: The id of the ESXi host that it was made on.
    """
    yield from _events(client, machine, types.vim)
    seen = properties(client, types, machine, ("snapshot", "runtime", "summary.quickStats"))
    yield from _snapshots(seen.get("snapshot"))
    runtime, told = seen["runtime"], seen["summary.quickStats"]
    if runtime.host is not None and runtime.host._moId != home:
        yield f"it runs on another host, {runtime.host.name}"
    if runtime.consolidationNeeded:
        yield f"its disks need consolidation, as after a backup, at {_now()}"
    for words, size in (
        ("ballooned", told.balloonedMemory),
        ("swapped", told.swappedMemory),
        ("compressed", (told.compressedMemory or 0) // 1024),
    ):
        if size:
            # It holds for as long as it is so: each look tells of it anew.
            yield f"{size} MiB of its memory are {words} at {_now()}"


def _events(client: Any, machine: Any, vim: Any) -> Iterator[str]:
    entity = vim.event.EventFilterSpec.ByEntity(entity=machine, recursion="self")
    asked = vim.event.EventFilterSpec(entity=entity)
    for event in client.content.eventManager.QueryEvents(asked) or ():
        kind = type(event).__name__.rpartition(".")[2]
        if kind in MOVES:
            yield f"{kind} at {event.createdTime.isoformat()}"


def _snapshots(tree: Any) -> Iterator[str]:
    waiting = list(tree.rootSnapshotList) if tree is not None else []
    while waiting:
        one = waiting.pop()
        yield f"snapshot {one.name} at {one.createTime.isoformat()}"
        waiting += list(one.childSnapshotList)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")
