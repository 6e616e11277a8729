"""The disks of QEMU's command line: what holds them, and how they are cached and attached."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tare.platforms.imported.model import CACHE_OF_QEMU, Found
from tare.platforms.imported.numbers import whole

FIRMWARE = "UEFI firmware", "the kernel is booted directly"
OTHERS = frozenset({"floppy", "sd", "mtd"})
"""What ``-drive if=`` attaches and is no disk."""
DISKS = {"virtio-blk": "virtio", "scsi-hd": "scsi", "nvme": "nvme", "ide-hd": "ide"}
CONTROLLER = "virtio-scsi"
_TRANSPORT = re.compile(r"-(?:pci|device)(?:-(?:non-)?transitional)?$")
_FILES = frozenset({"", "file"})
_FORMATS = frozenset({"raw", "qcow2", "qcow", "vmdk", "vdi", "vhdx", "vpc", "qed", "luks"})
_REMOTE = re.compile(r"(rbd|nbd|iscsi|nfs|gluster|ssh|https?|ftps?|sheepdog)[:+]")
_LIMITS = ("throttling", "bps", "iops")
_SAYING_NOTHING = {"discard": "ignore", "detect-zeroes": "off"}

Said = Mapping[str, str]


def plain(kind: str) -> str:
    """Return a device's name without the bus that it is plugged into."""
    return _TRANSPORT.sub("", kind)


def is_disk(kind: str) -> bool:
    """Return whether a device, by its plain name, is a disk that Tare has too."""
    return kind in DISKS


def whole_backend(name: str, backends: Mapping[str, Said]) -> dict[str, str]:
    """Return what is said of a disk: of its format, and of the file below it, as libvirt splits it.

    What its format says goes before what its file says.
    """
    said = dict(backends.get(name, {}))
    below = backends.get(said.get("file", ""), {})
    if "driver" in below:
        said["file.driver"] = below["driver"]
    return {**{key: value for key, value in below.items() if key != "driver"}, **said}


def add_drive(found: Found, said: Said) -> None:
    """Take what ``-drive`` attaches by itself."""
    bus = said.get("if", "ide")
    if bus == "pflash":
        found.leave(*FIRMWARE)
    elif bus in OTHERS:
        found.leave(f"-drive if={bus}")
    elif said.get("media") != "cdrom" and bus != "none":
        add_disk(found, bus, said, {})


def add_device(found: Found, kind: str, device: Said, backends: Mapping[str, Said]) -> None:
    """Take a disk that is a device of its own.

    Args:
        found: What was gathered.
        kind: Its plain name.
        device: Its properties.
        backends: What holds disks, by name.
    """
    first = found.disks == 0
    add_disk(found, DISKS[kind], whole_backend(device.get("drive", ""), backends), device)
    queues = device.get("num-queues", device.get("max_ioqpairs"))
    if first and (several := whole(queues)):
        found.options["disk_queues"] = several
    if first and device.get("iothread"):
        found.options["iothread"] = True


def add_controller(found: Found, said: Said) -> None:
    """Take a controller of virtio-scsi, which has the queues and the thread of its disks."""
    queues = whole(said.get("num_queues", said.get("num-queues")))
    found.serve_scsi(queues, bool(said.get("iothread")))


def add_disk(found: Found, bus: str, said: Said, device: Said) -> None:
    """Take a disk.

    Args:
        found: What was gathered.
        bus: As QEMU calls it.
        said: What holds it.
        device: What attaches it.
    """
    first = found.disks == 0
    found.add_disk(bus, _cache(said, device), said.get("aio", said.get("file.aio", "")))
    if not first:
        return
    driver = said.get("driver", "")
    # Where no format is said QEMU looks for it in the file, which is not at hand.
    file = said.get("file", "")
    probed = "qcow2" if file.endswith(".qcow2") else "raw"
    found.disk_kept_as(said.get("format", driver if driver in _FORMATS else probed))
    # Without a format between them, a device has what holds the data itself.
    holds = said.get("file.driver", "" if driver in _FORMATS else driver)
    if remote := _REMOTE.match(file):
        holds = remote[1]
    if holds == "host_device" or file.startswith("/dev/"):
        found.leave("a block device of the host", "write `disk-format: block` or `lvm`")
    elif holds not in _FILES:
        found.leave(f"a disk by {holds}", "a machine of Tare's has a file or a device of the host")
    for name in sorted(key for key in said if key.startswith(_LIMITS)):
        found.leave(f"disk {name}={said[name]}")
    for name, nothing in _SAYING_NOTHING.items():
        if said.get(name, nothing) != nothing:
            found.leave(f"disk {name}={said[name]}")


def _cache(said: Said, device: Said) -> str:
    """Return a cache mode by its parts: the table of ``-drive cache=`` in QEMU's manual."""
    if "cache" in said:
        return "none" if said["cache"] == "off" else said["cache"]
    if said.get("cache.no-flush") == "on":
        return "unsafe"
    written = "off" in (device.get("write-cache"), said.get("cache.writeback"))
    if said.get("cache.direct") == "on":
        return "directsync" if written else "none"
    return "writethrough" if written else CACHE_OF_QEMU
