"""Huge pages of a host, for the memory of guests."""

from __future__ import annotations

import re

from tare.errors import InputError
from tare.hosts import Host
from tare.platforms.contract import Shape
from tare.platforms.qemu.options import QemuOptions
from tare.study.quantities import format_size

_POOLS = "/sys/kernel/mm/hugepages"


async def page_size(host: Host, options: QemuOptions) -> int | None:
    """Return the bytes of each huge page that the options mean; None where the host has none."""
    if options.hugepage_size is not None:
        return options.hugepage_size
    found = re.search(rb"Hugepagesize:\s+(\d+) kB", await host.read("/proc/meminfo"))
    return int(found[1]) << 10 if found else None


async def lacking_pages(host: Host, options: QemuOptions) -> tuple[str, str] | None:
    """Return what the host lacks of the huge pages that are asked for, and what to do about it."""
    if not options.hugepages:
        return None
    size = await page_size(host, options)
    if size is None:
        return "the host's kernel has no huge pages", "use a kernel with CONFIG_HUGETLBFS"
    pool = f"{_POOLS}/hugepages-{size >> 10}kB"
    if not await host.exists(pool):
        have = (await host.run(["ls", _POOLS], timeout_s=30)).stdout.decode().split()
        sizes = [f"{name.removeprefix('hugepages-').removesuffix('kB')} KiB" for name in have]
        return (
            f"the host has no huge pages of {format_size(size)}",
            f"it has {', '.join(sizes) or 'none'}",
        )
    if int(await host.read(f"{pool}/free_hugepages")) == 0:
        return (
            f"the host has no free huge pages of {format_size(size)}",
            f"echo 256 > {pool}/nr_hugepages",
        )
    return None


async def require_whole_pages(host: Host, options: QemuOptions, shape: Shape) -> None:
    """Raise :class:`InputError` unless the machine's memory is a whole number of its pages."""
    if not options.hugepages:
        return
    size = await page_size(host, options)
    if size and shape.memory % size:
        raise InputError(
            f"{format_size(shape.memory)} of memory is no whole number of huge pages of "
            f"{format_size(size)}",
            f"give the shape {format_size((shape.memory // size + 1) * size)}",
        )
