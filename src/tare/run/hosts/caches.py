"""What caches a host has, so that every arm's loads are sized by the same hardware."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tare.units import SIZE_UNITS

if TYPE_CHECKING:
    from tare.hosts.contract import Host

CACHES = "/sys/devices/system/cpu/cpu0/cache"
MOST_LEVELS = 10


@dataclass(frozen=True)
class Caches:
    """Bytes of one last-level cache, and of all data caches that one CPU reaches."""

    last_level: int | None
    together: int | None


async def find_caches(host: Host) -> Caches:
    """Read the cache hierarchy of the host's first CPU (Linux, sysfs-devices-system-cpu)."""
    sizes: dict[int, int] = {}
    for index in range(MOST_LEVELS):
        try:
            kind, level, size = [
                (await host.read(f"{CACHES}/index{index}/{name}")).decode().strip()
                for name in ("type", "level", "size")
            ]
        except OSError:
            break
        if kind != "Instruction":
            sizes[int(level)] = int(size.removesuffix("K")) * SIZE_UNITS["KiB"]
    if not sizes:
        return Caches(None, None)
    return Caches(sizes[max(sizes)], sum(sizes.values()))
