"""Import an OVF descriptor, as exported by vSphere, VirtualBox and XenServer; DMTF DSP0243."""

from __future__ import annotations

import re

from tare.platforms.imported.model import BOOTS, FIRMWARE, Description, Disk
from tare.platforms.imported.notes import Node
from tare.platforms.imported.parsing import bytes_of, parse_whole_number

CPU, MEMORY, IDE, SCSI, NIC, SATA = "3", "4", "5", "6", "10", "20"
DISKS = frozenset({"17", "19", "31", "32"})
"""Resource types of disks: drives, and XenCenter's storage extents, logical disks and volumes."""
QUIET = frozenset({"1", "14", "15", "16", "23", "24", "35"})
"""Irrelevant CIM resource types: floppies, CDs, USB, graphics, sound and vendors' own.

The numbers are those of CIM_ResourceAllocationSettingData.
"""
ASIDE = frozenset(
    {
        *("References", "NetworkSection", "@schemaLocation", "@lang", "@id", "@required"),
        *("VirtualSystem/Info", "VirtualSystem/Name", "DiskSection/Info", "AnnotationSection"),
        *("VirtualSystem/ProductSection", "VirtualSystem/AnnotationSection", "EulaSection"),
        *("VirtualSystem/OperatingSystemSection", "VirtualSystem/EulaSection", "@version"),
        *("VirtualSystem/VirtualHardwareSection/Info", "VirtualSystem/Machine", "Strings"),
        *("VirtualSystem/VirtualHardwareSection/System", "ProductSection", "Name"),
        *("VirtualSystemCollection/Info", "VirtualSystemCollection/Name", "StartupSection"),
    }
)
_ITEM_ASIDE = frozenset(
    {"InstanceID", "ElementName", "Description", "Caption", "Parent", "Address", "HostResource"}
    | {"AddressOnParent", "AutomaticAllocation", "AutomaticDeallocation", "Connection"}
    | {"ResourceSubType", "ResourceType", "AllocationUnits", "VirtualQuantityUnits", "InstanceId"}
    | {"ConsumerVisibility", "PoolID", "CommunicationId", "MappingBehavior"}
)
_POWER = re.compile(r"byte\s*\*\s*2\s*\^\s*(\d{1,2})")
_NAMED = {"byte": 0, "bytes": 0, "kilobytes": 10, "megabytes": 20, "gigabytes": 30}


def read_ovf(root: Node) -> Description:
    """Convert the first virtual system of a descriptor to a description.

    Args:
        root: The element ``Envelope``.
    """
    found = Description()
    systems = root.every("VirtualSystem")
    if not systems:
        return found
    found.described = True
    found.options["accelerator"] = "kvm"
    disks = {each.get("diskId"): _capacity(each) for each in root.every("Disk")}
    for other in systems[1:]:
        other.take()
        found.leave(f"virtual system {other.get('id')}", "only the first is taken")
    system = systems[0]
    found.name = system.get("id")
    kinds = [each.text for each in system.every("VirtualSystemType")]
    chosen = _configuration(root, found)
    elements = system.every("Item", "StorageItem", "EthernetPortItem")
    items = []
    for element in elements:
        counts = _counts(element, chosen)
        fields = _fields(element)
        element.take()
        if counts:
            items.append(fields)
        else:
            found.leave(f"item {fields.get('ElementName', '')} of another configuration")
    # Disks of XenServer are Xen's own, whatever controller is named.
    default = "virtio" if any("xen" in kind.lower() or "hvm" in kind for kind in kinds) else "ide"
    buses = {item.get("InstanceID", ""): _bus(found, item) for item in items}
    for item in items:
        _item(found, item, buses, disks, default)
    for each in system.every("Config", "ExtraConfig"):
        if (each.get("key"), each.get("value")) == ("firmware", "efi"):
            found.leave(*FIRMWARE)
        else:
            found.leave(f"setting {each.get('key')}")
    found.leave(*BOOTS)
    root.close(found.ledger, ASIDE)
    return found


def _configuration(root: Node, found: Description) -> str:
    """Return the name of the deployment configuration to use: the default one, else the first."""
    several = root.every("Configuration")
    named = [each.get("id") for each in several]
    default = (each.get("id") for each in several if each.get("default") in ("true", "1"))
    chosen = next(default, named[0] if named else "")
    for other in named:
        if other != chosen:
            found.leave(f"configuration {other}", f"`{chosen}` is taken")
    return chosen


def _counts(item: Node, chosen: str) -> bool:
    """Return whether an item belongs to a configuration and is not just the bound of a range."""
    named = item.get("configuration").split()
    return not item.get("bound") and (not named or chosen in named)


def _item(
    found: Description,
    item: dict[str, str],
    buses: dict[str, str],
    disks: dict[str, int | None],
    default: str,
) -> None:
    kind = item.get("ResourceType", "")
    quantity = item.get("VirtualQuantity")
    read = {"VirtualQuantity"}
    if kind == CPU:
        found.vcpus = parse_whole_number(quantity)
        if parse_whole_number(item.get("CoresPerSocket", "1")) not in (None, 1):
            read.add("CoresPerSocket")
            found.leave(f"CoresPerSocket {item['CoresPerSocket']}", "all vCPUs are in one socket")
    elif kind == MEMORY:
        found.memory = bytes_of(quantity, _unit(item.get("AllocationUnits", "byte * 2^20")))
    elif kind in DISKS:
        name = item.get("HostResource", "").rpartition("/")[2]
        bus = buses.get(item.get("Parent", ""), "") or default
        found.add_disk(Disk(bus, size=disks.get(name)))
    elif kind == NIC:
        model = item.get("ResourceSubType", "").lower()
        xen = default == "virtio" and not model
        found.add_nic("virtio" if model in ("virtio", "virtio-net") or xen else model)
    elif kind in QUIET:
        found.set_aside(f"device {item.get('ElementName', '') or kind}")
    elif kind not in {IDE, SCSI, SATA}:
        found.leave(f"device {item.get('ElementName', '') or kind}")
    _limits(found, item, {CPU: "CPU", MEMORY: "memory"}.get(kind, f"item {kind}"), read)


def _bus(found: Description, item: dict[str, str]) -> str:
    kind = item.get("ResourceType", "")
    bus = {IDE: "ide", SCSI: "scsi", SATA: "sata"}.get(kind, "")
    model = item.get("ResourceSubType", "")
    if "nvme" in model.lower():
        # vSphere describes NVMe as SATA.
        return "nvme"
    if bus == "scsi":
        if model.lower() not in ("virtualscsi", "virtio-scsi"):
            found.leave(f"disk controller {model}", "Tare has no such emulated controller")
            return "sata"
        if model.lower() != "virtio-scsi":
            found.leave(f"disk controller {model}", "virtio-scsi is taken")
    return bus


def _limits(found: Description, item: dict[str, str], what: str, read: set[str]) -> None:
    """List the unread fields of an item: reservations, limits, weights and vendors' own fields."""
    for name, value in item.items():
        if name in read or name in _ITEM_ASIDE:
            continue
        if name in ("Reservation", "Limit", "Weight") and value in ("0", "-1"):
            continue
        found.leave(
            f"{what} {name.lower() if name in ('Reservation', 'Limit', 'Weight') else name}"
            f" {value if value.isdigit() else ''}".rstrip()
        )


def _capacity(disk: Node) -> int | None:
    unit = _unit(disk.get("capacityAllocationUnits") or "byte")
    size = bytes_of(disk.get("capacity"), unit)
    disk.take()
    return size


def _unit(text: str) -> int | None:
    """Return the bytes in a unit, such as ``byte * 2^20`` (DSP0004) or the older ``MegaBytes``."""
    if power := _POWER.fullmatch(text.strip()):
        return 1 << int(power[1])
    known = _NAMED.get(text.strip().lower())
    return None if known is None else 1 << known


def _fields(item: Node) -> dict[str, str]:
    return {each.tag: each.text for each in item.parts}
