"""A host's huge pages, for the memory of guests."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tare.errors import InputError
from tare.hosts import Host
from tare.platforms.contract import Shape
from tare.platforms.qemu.options import QemuOptions
from tare.units import format_size

_POOLS = "/sys/kernel/mm/hugepages"


async def page_size(host: Host, options: QemuOptions) -> int | None:
    """Return the size in bytes of the requested huge pages; None if the host has none."""
    if options.hugepage_size is not None:
        return options.hugepage_size
    found = re.search(rb"Hugepagesize:\s+(\d+) kB", await host.read("/proc/meminfo"))
    return int(found[1]) << 10 if found else None


async def lacking_pages(
    host: Host, options: QemuOptions, memories: Sequence[int] = ()
) -> tuple[str, str] | None:
    """Return which requested huge pages the host lacks, and what to do; None if it lacks none.

    Args:
        host: The host of the machines.
        options: The requested options.
        memories: Memory in bytes of each machine that runs at the same time; empty: unknown.
    """
    if not options.hugepages:
        return None
    size = await page_size(host, options)
    if size is None:
        return "the host's kernel has no huge pages", "use a kernel with CONFIG_HUGETLBFS"
    if not await host.exists(f"{_POOLS}/hugepages-{size >> 10}kB"):
        return await _no_such_size(host, size)
    pool = _pool(size, options.numa_node)
    free, total = (
        await _count(host, f"{pool}/free_hugepages"),
        await _count(host, f"{pool}/nr_hugepages"),
    )
    # Pages that are reserved for others count as free until they are touched.
    free -= await _count(host, f"{pool}/resv_hugepages")
    needed = pages_needed(memories, size)
    if free >= needed:
        return None
    return await _missing_pages(host, options, needed, free, total, size, memories)


def _pool(size: int, node: int | None) -> str:
    """Return the folder of the kernel's pool of pages, for the host or for one NUMA node."""
    pools = _POOLS if node is None else f"/sys/devices/system/node/node{node}/hugepages"
    return f"{pools}/hugepages-{size >> 10}kB"


async def _count(host: Host, file: str) -> int:
    """Read a count of the pool; 0 if the kernel has no such file, as for a node's reservations."""
    try:
        return int(await host.read(file))
    except (OSError, ValueError):
        return 0


async def _no_such_size(host: Host, size: int) -> tuple[str, str]:
    have = (await host.run(["ls", _POOLS], timeout_s=30)).stdout.decode().split()
    known = [name.removeprefix("hugepages-").removesuffix("kB") for name in have]
    sizes = sorted(int(text) << 10 for text in known if text.isdecimal())
    instead = ", ".join(format_size(each) for each in sizes)
    return (
        f"the host has no huge pages of {format_size(size)}",
        f"it has pages of {instead}: name one as `hugepage-size`" if sizes else "it has none",
    )


async def _missing_pages(
    host: Host,
    options: QemuOptions,
    needed: int,
    free: int,
    total: int,
    size: int,
    memories: Sequence[int],
) -> tuple[str, str]:
    """Return how many pages the machines need, and the command that reserves the missing ones."""
    where = "" if options.numa_node is None else f" on NUMA node {options.numa_node}"
    reason = shortage(needed, free, size, memories, where)
    missing = (needed - free) * size
    meminfo = await host.read("/proc/meminfo")
    found = re.search(rb"MemAvailable:\s+(\d+) kB", meminfo)
    if found and int(found[1]) << 10 < missing:
        available = format_size(int(found[1]) << 10)
        return reason, (
            f"{format_size(missing)} more would have to be reserved, and the host has {available} "
            "available: lower `shape: memory`, or end what uses the memory"
        )
    return reason, reserving(total + needed - free, size, _pool(size, options.numa_node))


def pages_needed(memories: Sequence[int], size: int) -> int:
    """Return how many pages of ``size`` bytes machines need; 1 if their memory is not known."""
    return sum(-(-memory // size) for memory in memories) or 1


def shortage(needed: int, free: int, size: int, memories: Sequence[int], where: str = "") -> str:
    """Return a sentence that reports that machines need more huge pages than are free.

    Args:
        needed: The number of pages that they need.
        free: The number of free pages.
        size: The size of each page in bytes.
        memories: The memory in bytes of each machine; empty: unknown.
        where: A phrase that follows the pages, such as the NUMA node.
    """
    pages = f"huge pages of {format_size(size)}{where}"
    machines = f"{len(memories)} machines" if len(memories) > 1 else "the machine"
    held = f"{machines} with {format_size(sum(memories))} of memory" if memories else "a machine"
    return f"{held} need{'s' if len(memories) < 2 else ''} {needed} {pages}, and {free} are free"


def reserving(wanted: int, size: int, pool: str = "") -> str:
    """Return the command that reserves huge pages on a host.

    Args:
        wanted: The total number of pages to reserve.
        size: The size of each page in bytes.
        pool: The folder of the kernel's pool; empty: that of the whole host.
    """
    kernel = f"hugepagesz={size >> 20}M hugepages={wanted}"
    return (
        f"run as root: echo {wanted} > {pool or _pool(size, None)}/nr_hugepages; if the file then "
        f"shows fewer, memory is fragmented: boot the host with {kernel}"
    )


async def require_whole_pages(host: Host, options: QemuOptions, shape: Shape) -> None:
    """Raise :class:`InputError` unless the machine's memory is a whole number of its pages."""
    if not options.hugepages:
        return
    size = await page_size(host, options)
    if size and (refusal := partial_pages(shape.memory, size)):
        raise InputError(*refusal)


def partial_pages(memory: int, size: int) -> tuple[str, str] | None:
    """Return the problem and a fix if memory is not a whole number of pages; None if it is."""
    if not memory % size:
        return None
    return (
        f"{format_size(memory)} of memory is not a whole number of huge pages of "
        f"{format_size(size)}",
        f"give the shape {format_size((memory // size + 1) * size)}",
    )
