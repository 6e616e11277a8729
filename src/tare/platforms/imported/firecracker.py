"""The configuration of a Firecracker microVM, for ``--config-file`` or from its API.

Source: firecracker's src/firecracker/swagger/firecracker.yaml.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tare.platforms.imported.model import BOOTS, Description, Disk
from tare.platforms.imported.notes import Values
from tare.platforms.imported.parsing import bytes_of, leaves, parse_whole_number

PARTS = frozenset({"machine-config", "boot-source", "drives", "network-interfaces"})
_ASIDE = ("logger", "metrics", "mmds-config", "vsock", "entropy", "serial", "boot-source")
_WHY = {
    "balloon": "all of its memory is taken, as without a balloon",
    "cpu-config": "the host's own processor is taken",
    "memory-hotplug": "memory is not added while it runs",
    "pmem": "Tare's machines have none",
}


def is_firecracker(value: Mapping[str, Any]) -> bool:
    """Return whether a JSON object is such a configuration."""
    return bool(PARTS & set(value))


def read_firecracker(value: Mapping[str, Any]) -> Description:
    """Convert a configuration to a description.

    Raises:
        ValueError: The configuration is too large.
    """
    values = Values("", dict(leaves(value)))
    found = Description(described=True)
    found.leave("Firecracker itself", "QEMU's mainboard `microvm` with KVM comes nearest")
    found.options |= {"accelerator": "kvm", "machine": "microvm"}
    found.vcpus = parse_whole_number(values.get("machine-config.vcpu_count", "1")) or 1
    # Firecracker's defaults are one vCPU, 128 MiB, and no threads of a core.
    found.memory = bytes_of(values.get("machine-config.mem_size_mib", "128"), 1 << 20)
    if values.get("machine-config.smt", "off") == "on":
        found.leave("threads of a core", "each vCPU is a separate core")
    pages = values.get("machine-config.huge_pages", "None")
    if pages == "2M":
        found.huge_pages(2 << 20)
    elif pages != "None":
        found.leave(f"huge_pages {pages}")
    template = values.get("machine-config.cpu_template", "None")
    if template != "None":
        found.leave(f"CPU template {template}", "the host's own processor is taken")
    if values.get("machine-config.track_dirty_pages", "off") == "on":
        found.leave("track_dirty_pages", "write `extra-args`")
    _drives(found, values)
    _cards(found, values)
    found.leave(*BOOTS)
    found.close_each(values, _why)
    return found


def _why(key: str, _: str) -> str | None:
    part = key.partition(".")[0]
    return None if part in _ASIDE else _WHY.get(part, "")


def _drives(found: Description, values: Values) -> None:
    for number in range(values.count("drives")):
        part = f"drives.{number}"
        # Firecracker ignores flushes unless it is configured to honour them.
        cache = {"Unsafe": "unsafe", "Writeback": "writeback"}.get(
            values.get(f"{part}.cache_type", "Unsafe"), ""
        )
        engine = values.get(f"{part}.io_engine", "Sync")
        disk = Disk("virtio", cache, "io_uring" if engine == "Async" else "")
        if engine not in ("Async", "Sync"):
            disk.leave(f"io_engine {engine}")
        elif engine == "Sync":
            disk.leave("io_engine Sync", "QEMU's own way of reading and writing is taken")
        if values.get(f"{part}.is_root_device", "off") == "on":
            disk.boot = 0
        values.skip(*(f"{part}.{name}" for name in ("drive_id", "path_on_host", "is_read_only")))
        if f"{part}.socket" in values:
            disk.leave(f"{part}.socket (vhost-user)", "a file of the host is taken")
            values.skip(f"{part}.socket")
        found.add_disk(disk)


def _cards(found: Description, values: Values) -> None:
    for number in range(values.count("network-interfaces")):
        part = f"network-interfaces.{number}"
        values.skip(*(f"{part}.{name}" for name in ("iface_id", "guest_mac", "host_dev_name")))
        if found.add_nic("virtio"):
            # Firecracker carries packets itself.
            found.options["vhost"] = "off"
