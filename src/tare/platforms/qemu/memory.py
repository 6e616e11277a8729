"""The backing of a guest's memory: QEMU's options for it, and the proof that it is used."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tare.errors import MachineFault
from tare.hosts import Host
from tare.platforms.contract import Shape
from tare.platforms.qemu.options import QemuOptions

MEMORY = "memory"
"""The id of the memory backend in QEMU."""
_NODES = "/sys/devices/system/node/online"
_HELD = re.compile(r"^(HugetlbPages|VmLck|VmRSS):\s+(\d+) kB", re.MULTILINE)


def memory_arguments(options: QemuOptions, shape: Shape) -> tuple[str, ...]:
    """Return QEMU's arguments for a guest's memory."""
    size = f"{shape.memory >> 10}K"
    if not own_backend(options):
        return ("-m", size)
    words = [f"id={MEMORY}", f"size={size}"]
    if options.hugepages:
        pages = f",hugetlbsize={options.hugepage_size}" if options.hugepage_size else ""
        words = [f"memory-backend-memfd,hugetlb=on{pages}", *words, "prealloc=on"]
    else:
        words = ["memory-backend-ram", *words, *["prealloc=on"] * options.prealloc]
    if options.numa_node is not None:
        words += [f"host-nodes={options.numa_node}", "policy=bind"]
    return ("-m", size, "-object", ",".join(words))


def own_backend(options: QemuOptions) -> bool:
    """Check whether the memory needs a backend other than QEMU's default."""
    return options.hugepages or options.prealloc or options.numa_node is not None


async def lacking_node(host: Host, options: QemuOptions) -> tuple[str, str] | None:
    """Return the problem and what to do if a host lacks the requested NUMA node; None if not."""
    if options.numa_node is None:
        return None
    try:
        nodes = online_nodes((await host.read(_NODES)).decode())
    except (OSError, ValueError):
        nodes = ()
    if len(nodes) < 2:
        return "`numa-node`: the host has one NUMA node only", "leave `numa-node` out"
    if options.numa_node not in nodes:
        have = ", ".join(map(str, nodes))
        return f"`numa-node`: the host has no node {options.numa_node}", f"it has {have}"
    return None


def online_nodes(text: str) -> tuple[int, ...]:
    """Parse the kernel's list of nodes, such as ``0-1,3``; raises ValueError."""
    found: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return tuple(found)


async def prove_memory(
    name: str,
    shape: Shape,
    host: Host,
    pid: int,
    *,
    hugepages: bool = False,
    locked: bool = False,
    touched: bool = False,
    node: int | None = None,
) -> Mapping[str, Any]:
    """Check that a guest's memory matches the request.

    Args:
        name: The machine's name.
        shape: Its size.
        host: The host on which it runs. Its kernel reports pages and locks (``/proc/PID/status``),
            and NUMA (``/proc/PID/numa_maps``), see proc(5).
        pid: The id of QEMU's process.
        hugepages: Whether all of it must be in huge pages.
        locked: Whether all of it must be locked.
        touched: Whether the host must have allocated all of it already.
        node: The NUMA node that must provide it; None: any.

    Returns:
        The verified facts for the machine's record; empty if nothing was requested.

    Raises:
        MachineFault: The memory differs from the request.
    """
    record: dict[str, Any] = {}
    status = (await host.read(f"/proc/{pid}/status")).decode(errors="replace")
    held = {key: int(kib) << 10 for key, kib in _HELD.findall(status)}
    for asked, key, what in (
        (hugepages, "HugetlbPages", "in huge pages"),
        (locked, "VmLck", "locked"),
        (touched, "VmRSS", "touched"),
    ):
        if not asked:
            continue
        if held.get(key, 0) < shape.memory:
            raise MachineFault(
                f"{name}: {shape.memory} bytes of memory were to be {what}, and the kernel says "
                f"{held.get(key, 0)}"
            )
        record[f"bytes_{what.replace(' ', '_')}"] = held[key]
    if node is not None:
        maps = (await host.read(f"/proc/{pid}/numa_maps")).decode(errors="replace")
        if not any(bound_to(line, node) for line in maps.splitlines()):
            raise MachineFault(
                f"{name}: its memory was to be bound to NUMA node {node}, and the kernel binds "
                "nothing there"
            )
        record["numa_node"] = node
    return {"memory": record} if record else {}


def bound_to(line: str, node: int) -> bool:
    """Check whether a line of ``numa_maps`` describes memory that is bound to one node only."""
    words = line.split()
    return len(words) > 1 and words[1].split(":") in (
        ["bind", str(node)],
        ["bind=static", str(node)],
    )
