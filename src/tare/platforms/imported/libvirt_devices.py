"""Import the devices of libvirt's domain XML; libvirt.org, "Domain XML format", devices."""

from __future__ import annotations

from tare.platforms.imported.model import CACHE_OF_QEMU, Description, Disk
from tare.platforms.imported.notes import Node
from tare.platforms.imported.parsing import UNITS, bytes_of, parse_whole_number

ASIDE = frozenset(
    f"devices/{name}"
    for name in (
        *("emulator", "serial", "console", "channel", "input", "graphics", "video", "parallel"),
        *("sound", "audio", "watchdog", "panic", "vsock", "redirdev", "redirfilter", "smartcard"),
        *("hub", "rng", "controller@index", "disk/serial", "disk/wwn", "disk/alias"),
        *("disk/address", "disk/boot", "disk/source", "disk/target@dev", "disk/target@tray"),
        *("interface/mac", "interface/source", "interface/alias", "interface/address"),
        *("interface/target", "interface/boot", "interface/script", "interface/backend"),
        *("disk/vendor", "disk/product", "disk/readonly", "disk/shareable", "disk/auth"),
        *("controller/address", "controller/alias", "controller/target", "disk/backingStore"),
        *("interface/virtualport", "interface/link", "interface/guest", "disk@snapshot"),
        *("interface@trustGuestRxFilters", "interface/rom", "disk@model", "disk/driver@name"),
        *("interface/portForward", "interface/downscript", "crypto", "disk/encryption/secret"),
        *("disk/source/auth", "disk/source/address", "controller/model", "memballoon/alias"),
        *("memballoon/address", "memballoon/stats"),
    )
)
"""Devices and properties that no measurement of Tare uses."""
WHY = {
    "devices/memballoon": "all of its memory is taken, as without a balloon",
    "devices/iommu": "Tare's machines have none",
    "devices/hostdev": "a device of the host; `network: sriov` has one of a network card",
    "devices/disk/iotune": "limits of the disk's rate",
    "devices/filesystem": "Tare's machines have no file system of the host's",
    "devices/interface/driver/host": "write `nic-offloads`",
    "devices/interface/driver/guest": "write `nic-offloads`",
}
_CONTROLLERS_ASIDE = frozenset(
    {"usb", "ide", "sata", "fdc", "virtio-serial", "pci", "ccid", "isa", "xenbus", "nvme"}
)
_WAYS = frozenset({"", "bridge", "network", "ethernet", "user", "direct"})
"""The connections of a network interface that Tare supports without a note."""


def read_devices(found: Description, part: Node) -> None:
    """Import the devices that Tare's machines can have.

    Args:
        found: The description read so far.
        part: The element ``devices``.
    """
    threads = _threads_of_scsi(part)
    for each in part.parts:
        if each.tag == "disk":
            _disk(found, each, threads)
        elif each.tag == "interface":
            _interface(found, each)
        elif each.tag == "controller":
            _controller(found, each)
        elif each.tag == "memory":
            _memory_device(found, each)
        elif each.tag == "memballoon" and each.peek("model") == "none":
            each.take()


def _threads_of_scsi(part: Node) -> str:
    """Return the name of the first I/O thread that a virtio-scsi controller has."""
    for each in part.all("controller"):
        if each.get("type") == "scsi" and (thread := each.value("driver", "iothread")):
            return thread
    return ""


def _controller(found: Description, controller: Node) -> None:
    kind = controller.peek("type")
    if kind in _CONTROLLERS_ASIDE:
        controller.take()
        found.set_aside(f"<devices> {controller.words()}")
        return
    if kind != "scsi":
        return
    controller.get("type")
    model = controller.get("model", "auto")
    if not model.startswith("virtio"):
        found.leave(f"disk controller {model}", "virtio-scsi is taken")
        return
    queues = parse_whole_number(controller.value("driver", "queues"))
    threads = controller.all("driver/iothreads/iothread")
    if len(threads) > 1:
        found.leave(f"{len(threads)} I/O threads of virtio-scsi", "Tare's disk has one")
    thread = controller.value("driver", "iothread") or (threads[0].get("id") if threads else "")
    found.serve_scsi(queues, thread)


def _memory_device(found: Description, device: Node) -> None:
    """List memory devices that are present at start-up; libvirt's `memory` includes their size."""
    model = device.get("model")
    found.leave(f"device memory {model}", "its size is a part of the machine's memory")


def _interface(found: Description, interface: Node) -> None:
    way = interface.get("type")
    if way == "hostdev":
        found.leave("device interface hostdev", "`network: sriov` has a function of a card")
        return
    model = interface.value("model", "type", "rtl8139")
    # Tare treats all of virtio's model names as one.
    model = "virtio" if model.startswith("virtio") else model
    queues = parse_whole_number(interface.value("driver", "queues"))
    if not found.add_nic(model, queues):
        interface.take()
        return
    if interface.value("driver", "name") == "qemu" and model == "virtio":
        found.options["vhost"] = "off"
    if way == "user":
        found.options["network"] = "user"
    if way == "direct":
        found.leave("network interface on direct (macvtap)", "write `network: macvtap`")
    if way not in _WAYS:
        found.leave(f"network interface on {way}", "write `network` or `switch`")
    for driver in interface.all("driver"):
        for name in ("host", "guest"):
            for part in driver.all(name):
                for key in part.attributes:
                    words = f"network interface {name} {key}={part.get(key)}"
                    found.leave(words, "write `nic-offloads`")
        for key in driver.attributes:
            if key not in ("name", "queues"):
                found.leave(f"network interface {key}={driver.get(key)}")
    for part in interface.parts:
        place = f"devices/interface/{part.tag}"
        if part.tag not in ("driver", "model") and place not in ASIDE:
            part.take()
            found.leave(f"network interface <{part.tag}> {part.words()[len(part.tag) :]}".rstrip())


def _disk(found: Description, each: Node, scsi_thread: str) -> None:
    device = each.get("device", "disk")
    if device in ("cdrom", "floppy"):
        each.take()
        found.set_aside(f"<devices> disk device={device}")
        return
    if device == "lun":
        found.leave("device disk lun", "a disk is taken")
    bus = each.value("target", "bus", "ide")
    cache = each.value("driver", "cache", "default")
    disk = Disk(bus, CACHE_OF_QEMU if cache == "default" else cache, each.value("driver", "io"))
    found.add_disk(disk)
    disk.boot = parse_whole_number(each.value("boot", "order"))
    disk.queues = parse_whole_number(each.value("driver", "queues"))
    _thread(disk, each, scsi_thread)
    _holder(disk, each)
    for driver in each.all("driver"):
        for name in driver.attributes:
            if name not in ("name", "type", "cache", "io", "queues", "iothread"):
                disk.leave(f"disk {name}={driver.get(name)}")
    for part in each.parts:
        if part.tag not in ("driver", "target") and f"devices/disk/{part.tag}" not in ASIDE:
            words = " (limits of the disk's rate)" if part.tag == "iotune" else ""
            part.take()
            disk.leave(f"disk <{part.tag}>{words} {part.words()[len(part.tag) :]}".rstrip())


def _thread(disk: Disk, each: Node, scsi_thread: str) -> None:
    """Import a disk's I/O thread, which is its own or its controller's."""
    threads = each.all("driver/iothreads/iothread")
    disk.thread = each.value("driver", "iothread")
    for part in threads:
        disk.thread = disk.thread or part.get("id")
        for queue in part.all("queue"):
            disk.leave(f"queue {queue.get('id')} of an I/O thread", "Tare's disk has one thread")
    if len(threads) > 1:
        disk.leave(f"{len(threads)} I/O threads of the disk", "Tare's disk has one")
    if not disk.thread and disk.bus == "scsi":
        disk.thread = scsi_thread


def _holder(disk: Disk, each: Node) -> None:
    """Import a disk's storage: a file, a block device of the host, or something else."""
    disk.kept = each.value("driver", "type", "raw")
    kind = each.get("type", "file")
    if kind == "block":
        if disk.kept != "raw":
            disk.leave(f"disk format {disk.kept} on a block device", "it is taken as raw")
        disk.kept = "block"
    elif kind != "file":
        protocol = each.value("source", "protocol")
        what = f"a disk by {kind} {protocol}".rstrip()
        disk.leave(what, "a machine of Tare's has a file or a device of the host")
    if each.all("backingStore/source"):
        disk.leave("the image that the disk's image is laid over", "each has one file")
    for capacity in each.all("capacity"):
        disk.size = bytes_of(capacity.text, UNITS.get(capacity.get("unit", "bytes")))
