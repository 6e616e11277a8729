"""Prove that QEMU caches a machine's disk as it was asked to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tare.errors import MachineFault
from tare.platforms.linux.disk import OwnDisk, block_words
from tare.platforms.qemu.command import DISK_DEVICE, DISK_NODE, DISK_THREAD, caching
from tare.platforms.qemu.options import QemuOptions
from tare.platforms.qemu.qmp import Monitor


async def prove_disk(
    name: str, options: QemuOptions, monitor: Monitor, disk: OwnDisk, maps: bytes
) -> Mapping[str, Any]:
    """Ask QEMU how it caches the machine's disk.

    Args:
        name: The machine's name.
        options: What was asked for.
        monitor: QEMU's monitor.
        disk: The disk.
        maps: What QEMU's process maps (``/proc/PID/maps``).

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
    driven = await _driven(name, options, monitor, maps)
    device = "virtio-blk" if options.devices == "paravirtual" else "AHCI or IDE"
    return {
        "attached": f"{device} over a file of the host",
        "cache": options.disk_cache,
        "cache_told_by_qemu": found,
        **driven,
        "file_system": "ext4",
        "bytes": disk.size,
        "reserved": disk.reserved,
    }


async def _driven(
    name: str, options: QemuOptions, monitor: Monitor, maps: bytes
) -> Mapping[str, Any]:
    """Return how the disk is driven as QEMU and the kernel tell it, where that was asked for."""
    told: dict[str, Any] = {}
    for what, wanted in (
        ("num-queues", options.disk_queues),
        ("iothread", f"/objects/{DISK_THREAD}" if options.iothread else None),
    ):
        if wanted is None:
            continue
        found = await monitor.execute("qom-get", path=_DEVICE, property=what)
        if found != wanted:
            raise MachineFault(f"{name}: the disk's {what} was to be {wanted}, QEMU says {found}")
        told[what.replace("-", "_")] = found
    if options.disk_aio != "default":
        # The kernel maps the ring of its own asynchronous I/O into the process (io_setup(2)).
        if options.disk_aio == "native" and _RING not in maps:
            raise MachineFault(f"{name}: QEMU drives the disk without the kernel's native I/O")
        told["aio"] = options.disk_aio
    return told


_DEVICE = f"/machine/peripheral/{DISK_DEVICE}"
_RING = b"/[aio]"


def moved(stats: object) -> dict[str, float]:
    """Return what QEMU has moved for a machine's own disk.

    Args:
        stats: What it answered to ``query-blockstats``.

    Returns:
        Bytes that were ``read`` and ``written``; empty where it does not tell of that disk.
    """
    for entry in stats if isinstance(stats, list) else []:
        if isinstance(entry, Mapping) and entry.get("node-name") == DISK_NODE:
            counted = entry.get("stats", {})
            if "rd_bytes" in counted and "wr_bytes" in counted:
                return {"read": float(counted["rd_bytes"]), "written": float(counted["wr_bytes"])}
    return {}
