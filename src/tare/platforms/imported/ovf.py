"""An OVF descriptor, as vSphere, VirtualBox and XenServer export it; DMTF DSP0243."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from tare.platforms.imported.model import Found
from tare.platforms.imported.numbers import bytes_of, whole

CPU, MEMORY, IDE, SCSI, NIC, CD, DISK, SATA = "3", "4", "5", "6", "10", "15", "17", "20"
"""CIM's numbers of resource types (CIM_ResourceAllocationSettingData)."""
QUIET = frozenset({"1", "14", CD, "16", "23", "24", "35"})
"""Floppies, CDs, USB, graphics, sound and what is of the vendor's own."""
_POWER = re.compile(r"byte\s*\*\s*2\s*\^\s*(\d{1,2})")
_NAMED = {"byte": 0, "bytes": 0, "kilobytes": 10, "megabytes": 20, "gigabytes": 30}


def read_ovf(root: ET.Element) -> Found:
    """Return what the first virtual system of a descriptor says.

    Args:
        root: The element ``Envelope``.
    """
    found = Found()
    found.options["accelerator"] = "kvm"
    disks = {_attribute(each, "diskId"): _capacity(each) for each in _all(root, "Disk")}
    systems = _all(root, "VirtualSystem")
    if not systems:
        return Found()
    for other in systems[1:]:
        found.leave(f"virtual system {_attribute(other, 'id')}", "only the first is taken")
    system = systems[0]
    found.name = _attribute(system, "id")
    chosen = _configuration(root, found)
    items = [
        _fields(item)
        for item in _all(system, "Item", "StorageItem", "EthernetPortItem")
        if _counts(item, chosen)
    ]
    buses = {item.get("InstanceID", ""): _bus(found, item) for item in items}
    for item in items:
        _item(found, item, buses, disks)
    settings = {
        _attribute(each, "key"): _attribute(each, "value") for each in _all(system, "Config")
    }
    if settings.get("firmware") == "efi":
        found.leave("UEFI firmware", "the kernel is booted directly")
    found.leave("what it boots", "the kernel of the study is booted")
    return found


def _configuration(root: ET.Element, found: Found) -> str:
    """Return which of several deployments is taken: the default one, else the first."""
    several = _all(root, "Configuration")
    named = [_attribute(each, "id") for each in several]
    default = (
        _attribute(each, "id") for each in several if _attribute(each, "default") in ("true", "1")
    )
    chosen = next(default, named[0] if named else "")
    for other in named:
        if other != chosen:
            found.leave(f"configuration {other}", f"`{chosen}` is taken")
    return chosen


def _counts(item: ET.Element, chosen: str) -> bool:
    """Return whether an item is of a deployment; one with a bound is only the end of a range."""
    named = _attribute(item, "configuration").split()
    return not _attribute(item, "bound") and (not named or chosen in named)


def _item(
    found: Found,
    item: dict[str, str],
    buses: dict[str, str],
    disks: dict[str, int | None],
) -> None:
    kind = item.get("ResourceType", "")
    quantity = item.get("VirtualQuantity")
    if kind == CPU:
        found.vcpus = whole(quantity)
        _limits(found, item, "CPU")
    elif kind == MEMORY:
        found.memory = bytes_of(quantity, _unit(item.get("AllocationUnits", "byte * 2^20")))
        _limits(found, item, "memory")
    elif kind == DISK:
        name = item.get("HostResource", "").rpartition("/")[2]
        bus = buses.get(item.get("Parent", ""), "") or "ide"
        found.add_disk(bus, size=disks.get(name))
    elif kind == NIC:
        model = item.get("ResourceSubType", "").lower()
        found.add_nic("virtio" if model in ("virtio", "virtio-net") else model)
    elif kind not in QUIET | {IDE, SCSI, SATA}:
        found.leave(f"device {item.get('ElementName', '') or kind}")


def _bus(found: Found, item: dict[str, str]) -> str:
    kind = item.get("ResourceType", "")
    bus = {IDE: "ide", SCSI: "scsi", SATA: "sata"}.get(kind, "")
    model = item.get("ResourceSubType", "")
    if "nvme" in model.lower():
        # VSphere tells of it as of SATA.
        return "nvme"
    if bus == "scsi":
        if model.lower() not in ("virtualscsi", "virtio-scsi"):
            found.leave(f"disk controller {model}", "Tare has no such emulated controller")
            return "sata"
        if model.lower() != "virtio-scsi":
            found.leave(f"disk controller {model}", "virtio-scsi is taken")
    return bus


def _limits(found: Found, item: dict[str, str], what: str) -> None:
    for name in ("Reservation", "Limit", "Weight"):
        if item.get(name, "0") not in ("0", "-1"):
            found.leave(f"{what} {name.lower()} {item[name]}")


def _capacity(disk: ET.Element) -> int | None:
    unit = _unit(_attribute(disk, "capacityAllocationUnits") or "byte")
    return bytes_of(_attribute(disk, "capacity"), unit)


def _unit(text: str) -> int | None:
    """Return the bytes in a unit, such as ``byte * 2^20`` (DSP0004) or the older ``MegaBytes``."""
    if power := _POWER.fullmatch(text.strip()):
        return 1 << int(power[1])
    known = _NAMED.get(text.strip().lower())
    return None if known is None else 1 << known


def _all(root: ET.Element, *names: str) -> list[ET.Element]:
    return [each for each in root.iter() if _plain(each.tag) in names]


def _fields(item: ET.Element) -> dict[str, str]:
    return {_plain(each.tag): (each.text or "").strip() for each in item}


def _attribute(element: ET.Element, name: str) -> str:
    return next((value for key, value in element.attrib.items() if _plain(key) == name), "")


def _plain(name: str) -> str:
    return name.rpartition("}")[2]
