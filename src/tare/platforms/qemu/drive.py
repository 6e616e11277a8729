"""QEMU's options for a machine's disk: its backing on the host, and the guest's bus for it.

Source: QEMU's documentation of ``-blockdev`` and ``-drive`` (qemu-options.hx), and the output of
``-device MODEL,help``.
"""

from __future__ import annotations

from pathlib import Path

from tare.platforms.qemu.disk_options import MICROVM
from tare.platforms.qemu.options import QemuOptions

DISK_NODE = "disk"
DISK_DEVICE = "tare-disk"
DISK_THREAD = "tare-disk-thread"
CONTROLLER = "tare-disk-bus"
"""The id of the disk's own controller, on buses on which it has one."""
_BYTES = 64 << 20


def caching(options: QemuOptions) -> dict[str, bool]:
    """Return the flags of a cache mode, as QMP reports them.

    Source: QEMU's documentation of ``-drive cache=`` (qemu-options.hx), the table of modes.
    """
    mode = options.disk_cache
    return {
        "writeback": mode not in ("writethrough", "directsync"),
        "direct": mode in ("none", "directsync"),
        "no-flush": mode == "unsafe",
    }


def drivers(options: QemuOptions) -> dict[str, str]:
    """Return QEMU's names of a disk's ``format`` and of the driver below it, the ``protocol``."""
    return {
        "format": "qcow2" if options.disk_format == "qcow2" else "raw",
        "protocol": "host_device" if options.disk_format in ("block", "lvm") else "file",
    }


def backend(options: QemuOptions, file: Path | None) -> str:
    """Return the argument of QEMU's ``-blockdev`` for the disk.

    Args:
        options: The machine's options.
        file: The file or block device; None: a disk of zeros.
    """
    if file is None:
        return f"null-co,node-name={DISK_NODE},size={_BYTES},read-zeroes=on"
    cache, kinds = caching(options), drivers(options)
    aio = "" if options.disk_aio == "default" else f",file.aio={options.disk_aio}"
    direct, no_flush = ("on" if cache[name] else "off" for name in ("direct", "no-flush"))
    return (
        f"{kinds['format']},node-name={DISK_NODE},cache.direct={direct},cache.no-flush={no_flush},"
        f"file.driver={kinds['protocol']},file.filename={escaped(file)}{aio}"
    )


def front(options: QemuOptions) -> tuple[str, ...]:
    """Return QEMU's arguments for the device through which the guest reaches the disk."""
    write_cache = "on" if caching(options)["writeback"] else "off"
    usual = f"id={DISK_DEVICE},drive={DISK_NODE},write-cache={write_cache}"
    # By default QEMU pauses a guest when the host's disk is full, which looks like a hang.
    properties = f"{usual},werror=report,rerror=report"
    thread = f",iothread={DISK_THREAD}" if options.iothread else ""
    transport = "device" if options.machine == MICROVM else "pci"
    match options.bus:
        case "virtio-blk":
            queues = f",num-queues={options.disk_queues}" if options.disk_queues else ""
            return ("-device", f"virtio-blk-{transport},{properties}{queues}{thread}")
        case "virtio-scsi":
            queues = f",num_queues={options.disk_queues}" if options.disk_queues else ""
            return (
                *("-device", f"virtio-scsi-{transport},id={CONTROLLER}{queues}{thread}"),
                *("-device", f"scsi-hd,bus={CONTROLLER}.0,{properties}"),
            )
        case "nvme":
            # This device always reports errors to the guest, and has no such properties.
            queues = f",max_ioqpairs={options.disk_queues}" if options.disk_queues else ""
            return ("-device", f"nvme,serial={DISK_DEVICE},{usual}{queues}")
        case "ahci" if options.machine == "pc":
            return (
                *("-device", f"ich9-ahci,id={CONTROLLER}"),
                *("-device", f"ide-hd,bus={CONTROLLER}.0,{properties}"),
            )
        case _:
            return ("-device", f"ide-hd,bus=ide.0,{properties}")


def models(options: QemuOptions) -> dict[str, str]:
    """Return QEMU's types of the disk's device and of its controller, by their ids."""
    words = front(options)[1::2]
    split = (word.split(",") for word in words)
    return {
        next(part for part in parts if part.startswith("id=")).removeprefix("id="): parts[0]
        for parts in split
    }


def toolbox(options: QemuOptions, image: Path | None) -> tuple[str, ...]:
    """Return QEMU's arguments for the read-only disk with the applications."""
    if image is None:
        return ()
    if options.devices == "paravirtual":
        file = f"driver=file,node-name=toolbox,read-only=on,filename={escaped(image)}"
        transport = "device" if options.machine == MICROVM else "pci"
        device = f"virtio-blk-{transport},drive=toolbox,serial=tare-toolbox"
        return ("-blockdev", file, "-device", device)
    # An IDE disk cannot be read-only, so `snapshot=on` directs writes to an unnamed file.
    bus = "ide.3" if options.machine == "q35" else "ide.1,unit=1"
    drive = f"if=none,id=toolbox,format=raw,snapshot=on,file={escaped(image)}"
    return ("-drive", drive, "-device", f"ide-hd,drive=toolbox,bus={bus},serial=tare-toolbox")


def escaped(path: Path) -> str:
    """Return a path with each comma doubled, as QEMU's lists of options require."""
    return str(path).replace(",", ",,")
