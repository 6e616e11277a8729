"""Verify that QEMU attaches and caches a machine's disk as requested."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tare.errors import MachineFault
from tare.platforms.linux.backed_disk import BACKINGS
from tare.platforms.linux.disk import OwnDisk, block_cache
from tare.platforms.qemu.disk_options import BUSES
from tare.platforms.qemu.drive import (
    CONTROLLER,
    DISK_DEVICE,
    DISK_NODE,
    DISK_THREAD,
    caching,
    drivers,
    models,
)
from tare.platforms.qemu.options import QemuOptions
from tare.platforms.qemu.qmp import Monitor


async def prove_disk(
    name: str, options: QemuOptions, monitor: Monitor, disk: OwnDisk, maps: bytes
) -> Mapping[str, Any]:
    """Ask QEMU how it attaches and caches the machine's disk.

    Args:
        name: The machine's name.
        options: The requested options.
        monitor: QEMU's monitor.
        disk: The disk.
        maps: The memory mappings of QEMU's process (``/proc/PID/maps``).

    Returns:
        The device and the cache mode, as QEMU reports them, for the record.

    Raises:
        MachineFault: QEMU attaches, caches or drives the disk differently.
    """
    found = block_cache(await monitor.execute("query-block"), DISK_NODE)
    wanted = caching(options)
    if found != wanted:
        raise MachineFault(
            f"{name}: QEMU caches the disk as {found}, not as {wanted} (`{options.disk_cache}`)"
        )
    await _attached(name, options, monitor)
    driven = await _driven(name, options, monitor, maps)
    return {
        "attached": f"{options.bus} over {BACKINGS[options.disk_format]} of the host",
        "bus": options.bus,
        "format": options.disk_format,
        "cache": options.disk_cache,
        "cache_told_by_qemu": found,
        **driven,
        "file_system": "ext4",
        "bytes": disk.size,
        "reserved": disk.reserved,
    }


async def _attached(name: str, options: QemuOptions, monitor: Monitor) -> None:
    """Check that the disk is on the requested bus, and has the requested backing on the host."""
    for device, model in models(options).items():
        found = await monitor.execute("qom-get", path=f"{_DEVICES}/{device}", property="type")
        if found != model:
            raise MachineFault(f"{name}: {device} was to be a {model}, QEMU says {found}")
    nodes = {
        each["node-name"]: each
        for each in await monitor.execute("query-named-block-nodes", flat=True)
    }
    found = {"format": nodes[DISK_NODE]["drv"] if DISK_NODE in nodes else None}
    # QEMU chose the name of the node below.
    files = {each["drv"] for each in nodes.values() if each["node-name"] != DISK_NODE}
    wanted = drivers(options)
    if found["format"] != wanted["format"] or wanted["protocol"] not in files:
        raise MachineFault(f"{name}: QEMU opened the disk as {found} on {files}, not as {wanted}")


async def _driven(
    name: str, options: QemuOptions, monitor: Monitor, maps: bytes
) -> Mapping[str, Any]:
    """Verify how QEMU and the kernel drive the disk; return a record of the requested settings."""
    record: dict[str, Any] = {}
    # Each bus has its own property for the number of queues, on its own device.
    device, queues = _QUEUES.get(options.bus, (DISK_DEVICE, ""))
    for what, key, wanted in (
        ("num_queues", queues, options.disk_queues),
        ("iothread", "iothread", f"/objects/{DISK_THREAD}" if options.iothread else None),
    ):
        if wanted is None:
            continue
        found = await monitor.execute("qom-get", path=f"{_DEVICES}/{device}", property=key)
        if found != wanted:
            raise MachineFault(f"{name}: the disk's {key} was to be {wanted}, QEMU says {found}")
        record[what] = found
    if options.disk_aio != "default":
        # The kernel maps the ring of its asynchronous I/O into the process (io_setup(2)).
        # If QEMU cannot use io_uring, it ends.
        if options.disk_aio == "native" and _RING not in maps:
            raise MachineFault(f"{name}: QEMU drives the disk without the kernel's native I/O")
        record["aio"] = options.disk_aio
    return record


def require_bus(name: str, bus: str, seen: object) -> None:
    """Check that a guest sees its disk on the requested bus.

    Args:
        name: The machine's name.
        bus: The requested bus.
        seen: The entry about the disk in the environment proof; not a mapping if there is none.

    Raises:
        MachineFault: The guest's kernel uses other drivers for the disk.
    """
    if not isinstance(seen, Mapping):
        return
    drivers_seen, wanted = seen.get("drivers") or (), BUSES[bus].driver
    if wanted not in drivers_seen:
        raise MachineFault(
            f"{name}: the disk was to be on {bus}, and the guest's kernel carries it by "
            f"{', '.join(drivers_seen) or 'no driver'}, not by {wanted}"
        )


_DEVICES = "/machine/peripheral"
_QUEUES: Mapping[str, tuple[str, str]] = {
    "virtio-blk": (DISK_DEVICE, "num-queues"),
    "virtio-scsi": (CONTROLLER, "num_queues"),
    "nvme": (DISK_DEVICE, "max_ioqpairs"),
}
_RING = b"/[aio]"


def moved(stats: object) -> dict[str, float]:
    """Return how many bytes QEMU has moved for a machine's own disk.

    Args:
        stats: QEMU's answer to ``query-blockstats``.

    Returns:
        Bytes that were ``read`` and ``written``; empty if QEMU does not list that disk.
    """
    for entry in stats if isinstance(stats, list) else []:
        if isinstance(entry, Mapping) and entry.get("node-name") == DISK_NODE:
            counted = entry.get("stats", {})
            if "rd_bytes" in counted and "wr_bytes" in counted:
                return {"read": float(counted["rd_bytes"]), "written": float(counted["wr_bytes"])}
    return {}
