"""The devices of libvirt's domain XML; libvirt.org, "Domain XML format", devices."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from tare.platforms.imported.model import CACHE_OF_QEMU, Found
from tare.platforms.imported.numbers import whole

PLAIN = frozenset(
    {"emulator", "controller", "serial", "console", "channel", "input", "graphics", "video"}
)
"""Devices that every desktop's machine has, and no workload of Tare's touches."""
LIMITING = ("iotune", "blockio", "encryption", "transient", "geometry")
"""What of a disk changes how fast it is, beside its driver."""
SHAPING = ("bandwidth", "mtu", "coalesce", "tune", "filterref", "vlan")
"""The same of a network interface."""
WAYS = frozenset({"", "bridge", "network", "ethernet", "user"})
"""What a network interface may be connected to, as Tare knows it."""


def read_devices(found: Found, part: ET.Element) -> None:
    """Take the devices, as far as Tare's machines have them.

    Args:
        found: What was gathered.
        part: The element ``devices``.
    """
    for each in part:
        if each.tag == "disk" and each.get("device", "disk") == "disk":
            _disk(found, each)
        elif each.tag == "interface" and each.get("type") != "hostdev":
            _interface(found, each)
        elif each.tag == "controller" and each.get("type") == "scsi":
            _controller(found, each)
        elif each.tag not in PLAIN:
            model_of = each.get("model") or each.get("device") or each.get("type") or ""
            if (each.tag, model_of) != ("memballoon", "none"):
                found.leave(f"device {each.tag} {model_of}".rstrip())


def _said(element: ET.Element, name: str) -> dict[str, str]:
    inner = element.find(name)
    return {} if inner is None else dict(inner.attrib)


def _controller(found: Found, controller: ET.Element) -> None:
    model = controller.get("model", "auto")
    if not model.startswith("virtio"):
        found.leave(f"disk controller {model}", "virtio-scsi is taken")
        return
    said = _said(controller, "driver")
    found.serve_scsi(whole(said.get("queues")), "iothread" in said)


def _interface(found: Found, interface: ET.Element) -> None:
    driver, way = _said(interface, "driver"), interface.get("type", "")
    model = _said(interface, "model").get("type", "rtl8139")
    # All names of virtio's are one to Tare.
    model = "virtio" if model.startswith("virtio") else model
    if not found.add_nic(model, whole(driver.get("queues"))):
        return
    if driver.get("name") == "qemu" and model == "virtio":
        found.options["vhost"] = "off"
    if way == "user":
        found.options["network"] = "user"
    if way not in WAYS:
        found.leave(f"network interface on {way}", "write `network` or `switch`")
    for name in sorted(set(driver) - {"name", "queues"}):
        found.leave(f"network interface {name}={driver[name]}")
    for name in ("host", "guest"):
        for key, value in sorted(_said(interface, f"driver/{name}").items()):
            found.leave(f"network interface {name} {key}={value}", "write `nic-offloads`")
    for name in SHAPING:
        if interface.find(name) is not None:
            found.leave(f"network interface <{name}>")


def _disk(found: Found, disk: ET.Element) -> None:
    said, bus = _said(disk, "driver"), _said(disk, "target").get("bus", "ide")
    first = found.disks == 0
    cache = said.get("cache", "default")
    found.add_disk(bus, CACHE_OF_QEMU if cache == "default" else cache, said.get("io", ""))
    if not first:
        return
    found.disk_kept_as(said.get("type", "raw"))
    if queues := whole(said.get("queues")):
        found.options["disk_queues"] = queues
    if said.get("iothread"):
        found.options["iothread"] = True
    for name in sorted(set(said) - {"name", "type", "cache", "io", "queues", "iothread"}):
        found.leave(f"disk {name}={said[name]}")
    kind = disk.get("type", "file")
    if kind == "block":
        found.leave("a block device of the host", "write `disk-format: block` or `lvm`")
    elif kind != "file":
        protocol = _said(disk, "source").get("protocol", "")
        what = f"a disk by {kind} {protocol}".rstrip()
        found.leave(what, "a machine of Tare's has a file or a device of the host")
    if len(disk.findall("backingStore/source")) > 0:
        found.leave("the image that the disk's image is laid over", "each has one file")
    for name in LIMITING:
        if disk.find(name) is not None:
            words = " (limits of the disk's rate)" if name == "iotune" else ""
            found.leave(f"disk <{name}>{words}")
