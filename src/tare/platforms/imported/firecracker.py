"""The configuration of a Firecracker microVM, as ``--config-file`` takes it and its API returns it.

Source: firecracker's src/firecracker/swagger/firecracker.yaml.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tare.platforms.imported.ledger import Said, shown
from tare.platforms.imported.model import BOOTS, Disk, Found
from tare.platforms.imported.numbers import bytes_of, whole
from tare.platforms.imported.tree import leaves

PARTS = frozenset({"machine-config", "boot-source", "drives", "network-interfaces"})
_ASIDE = ("logger", "metrics", "mmds-config", "vsock", "entropy", "serial", "boot-source")
_WHY = {
    "balloon": "all of its memory is taken, as without a balloon",
    "cpu-config": "the host's own processor is taken",
    "memory-hotplug": "memory is not added while it runs",
    "pmem": "Tare's machines have none",
}


def is_firecracker(value: Mapping[str, Any]) -> bool:
    """Return whether an object of JSON is such a configuration."""
    return bool(PARTS & set(value))


def read_firecracker(value: Mapping[str, Any]) -> Found:
    """Return what a configuration says.

    Raises:
        ValueError: It is too large.
    """
    said = Said("", dict(leaves(value)))
    found = Found(described=True)
    found.leave("Firecracker itself", "QEMU's mainboard `microvm` with KVM comes nearest")
    found.options |= {"accelerator": "kvm", "machine": "microvm"}
    found.vcpus = whole(said.get("machine-config.vcpu_count", "1")) or 1
    # Its defaults: one vCPU, 128 MiB, no threads of a core.
    found.memory = bytes_of(said.get("machine-config.mem_size_mib", "128"), 1 << 20)
    if said.get("machine-config.smt", "off") == "on":
        found.leave("threads of a core", "each vCPU is a core of its own")
    pages = said.get("machine-config.huge_pages", "None")
    if pages == "2M":
        found.huge_pages(2 << 20)
    elif pages != "None":
        found.leave(f"huge_pages {pages}")
    template = said.get("machine-config.cpu_template", "None")
    if template != "None":
        found.leave(f"CPU template {template}", "the host's own processor is taken")
    if said.get("machine-config.track_dirty_pages", "off") == "on":
        found.leave("track_dirty_pages", "write `extra-args`")
    _drives(found, said)
    _cards(found, said)
    found.leave(*BOOTS)
    for key in said.read:
        found.carry(key)
    for key, held in said.rest():
        part = key.partition(".")[0]
        if part in _ASIDE:
            found.set_aside(key)
        else:
            found.leave(shown(key, held), _WHY.get(part, ""))
    return found


def _drives(found: Found, said: Said) -> None:
    for number in range(_count(said, "drives")):
        part = f"drives.{number}"
        # Firecracker ignores flushes unless it is asked not to.
        cache = {"Unsafe": "unsafe", "Writeback": "writeback"}.get(
            said.get(f"{part}.cache_type", "Unsafe"), ""
        )
        engine = said.get(f"{part}.io_engine", "Sync")
        disk = Disk("virtio", cache, "io_uring" if engine == "Async" else "")
        if engine not in ("Async", "Sync"):
            disk.leave(f"io_engine {engine}")
        elif engine == "Sync":
            disk.leave("io_engine Sync", "QEMU's own way of reading and writing is taken")
        if said.get(f"{part}.is_root_device", "off") == "on":
            disk.boot = 0
        said.skip(*(f"{part}.{name}" for name in ("drive_id", "path_on_host", "is_read_only")))
        if f"{part}.socket" in said:
            disk.leave(f"{part}.socket (vhost-user)", "a file of the host is taken")
            said.skip(f"{part}.socket")
        found.add_disk(disk)


def _cards(found: Found, said: Said) -> None:
    for number in range(_count(said, "network-interfaces")):
        part = f"network-interfaces.{number}"
        said.skip(*(f"{part}.{name}" for name in ("iface_id", "guest_mac", "host_dev_name")))
        if found.add_nic("virtio"):
            # Firecracker carries packets itself.
            found.options["vhost"] = "off"


def _count(said: Said, name: str) -> int:
    numbers = [whole(key.split(".")[1]) for key in said if key.startswith(f"{name}.")]
    return max((number + 1 for number in numbers if number is not None), default=0)
