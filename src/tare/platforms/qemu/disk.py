"""Prove that QEMU caches a machine's disk as it was asked to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tare.errors import MachineFault
from tare.platforms.linux.disk import OwnDisk, block_words
from tare.platforms.qemu.command import DISK_NODE, caching
from tare.platforms.qemu.options import QemuOptions
from tare.platforms.qemu.qmp import Monitor


async def prove_disk(
    name: str, options: QemuOptions, monitor: Monitor, disk: OwnDisk
) -> Mapping[str, Any]:
    """Ask QEMU how it caches the machine's disk.

    Args:
        name: The machine's name.
        options: What was asked for.
        monitor: QEMU's monitor.
        disk: The disk.

    Returns:
        The device, the cache mode and what QEMU says of it, for the record.

    Raises:
        MachineFault: QEMU caches it in another way.
    """
    found = block_words(await monitor.execute("query-block"), DISK_NODE)
    wanted = caching(options)
    if found != wanted:
        raise MachineFault(
            f"{name}: QEMU caches the disk as {found}, not as {wanted} (`{options.disk_cache}`)"
        )
    device = "virtio-blk" if options.devices == "paravirtual" else "AHCI or IDE"
    return {
        "attached": f"{device} over a file of the host",
        "cache": options.disk_cache,
        "cache_told_by_qemu": found,
        "file_system": "ext4",
        "bytes": disk.size,
        "reserved": disk.reserved,
    }
