"""Every element and option of a source is carried over or listed: schemas' own names are fed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from platforms.test_imported import OVF
from tare.errors import InputError
from tare.platforms.imported.arm import Arm
from tare.platforms.imported.read import import_bytes

SCHEMAS = Path("/usr/share/libvirt/schemas")
RNG = "{http://relaxng.org/ns/structure/1.0}"
DOMAIN = (
    "<domain type='kvm'><name>x</name><memory unit='MiB'>512</memory><vcpu>2</vcpu>"
    "<os><type arch='x86_64' machine='q35'>hvm</type></os><features/><cpu mode='custom'/>"
    "<clock/><cputune/><memoryBacking/><numatune/>"
    "<devices><disk type='file'><driver/><source file='/x'/><target dev='vda' bus='virtio'/></disk>"
    "<interface type='bridge'><model type='virtio'/><driver/></interface>"
    "<controller type='scsi' model='virtio-scsi'><driver/></controller></devices></domain>"
)


def words_of(text: str) -> list[str]:
    return text.split()


def imported(text: str) -> Arm:
    return import_bytes(text.encode(), "file")


def notes(arm: Arm) -> str:
    """All that an import says it took, did not take, and put aside."""
    return "\n".join((*arm.carried, *arm.left, *arm.aside))


def names_of(kind: str) -> list[str]:
    """The names of all elements or attributes in libvirt's schema of a domain."""
    if not SCHEMAS.is_dir():
        pytest.skip("libvirt's schemas are not installed")
    found: set[str] = set()
    for file in ("domaincommon.rng", "cputypes.rng", "storagecommon.rng", "networkcommon.rng"):
        tree = ET.parse(SCHEMAS / file)
        found |= {each.get("name", "") for each in tree.iter(f"{RNG}{kind}")}
    return sorted(name for name in found if re.fullmatch(r"[A-Za-z_][\w.-]*", name))


PLACES = (
    *("", "os", "features", "cpu", "clock", "cputune", "memoryBacking", "numatune", "devices"),
    *("devices/disk", "devices/disk/driver", "devices/disk/source", "devices/interface"),
    *("devices/interface/driver", "devices/controller", "devices/controller/driver"),
)


def noted(root: ET.Element) -> str:
    """Return what an import says of a domain; empty where it is refused, which is loud."""
    try:
        return notes(imported(ET.tostring(root, encoding="unicode")))
    except InputError:
        return ""


def domain_with(place: str) -> tuple[ET.Element, ET.Element]:
    root = ET.fromstring(DOMAIN)
    parent = root if not place else root.find(place)
    assert parent is not None
    return root, parent


def forgotten_elements(place: str, names: list[str]) -> list[str]:
    """Return which elements with an attribute and an element of their own left no trace."""
    root, parent = domain_with(place)
    for name in names:
        inner = ET.SubElement(parent, name, {f"zebra-{name}": "1"})
        ET.SubElement(inner, f"quagga-{name}").text = "7"
    listed = noted(root)
    if not listed and len(names) > 1:
        return [each for name in names for each in forgotten_elements(place, [name])]
    return [name for name in names if listed and not has(listed, f"zebra-{name}", f"quagga-{name}")]


def forgotten_attributes(place: str, names: list[str]) -> list[str]:
    root, parent = domain_with(place)
    for name in names:
        parent.attrib.setdefault(name, "zebra")
    listed = noted(root)
    if not listed and len(names) > 1:
        return [each for name in names for each in forgotten_attributes(place, [name])]
    return [name for name in names if listed and not has(listed, name)]


def has(text: str, *words: str) -> bool:
    return all(re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text) for word in words)


@pytest.mark.parametrize("place", PLACES)
def test_each_name_in_libvirts_schema_is_carried_over_or_listed(place: str) -> None:
    """Put each element and each attribute of the schema into each place."""
    elements, attributes = names_of("element"), names_of("attribute")
    assert len(elements) > 300 and len(attributes) > 300
    for start in range(0, len(elements), 20):
        assert forgotten_elements(place, elements[start : start + 20]) == []
    for start in range(0, len(attributes), 20):
        assert forgotten_attributes(place, attributes[start : start + 20]) == []


TAGS = st.sampled_from(
    ["disk", "features", "smm", "hyperv", "graphics", "video", "channel", "hostdev", "zebra",
     "driver", "numatune", "memory", "resource", "partition", "poll-control", "kvm", "tseg"]
)  # fmt: skip


@st.composite
def trees(draw: st.DrawFn, depth: int = 0) -> ET.Element:
    element = ET.Element(draw(TAGS))
    keys = ("mode", "state", "type", "zulu", "name", "iothread", "bus")
    for name in draw(st.lists(st.sampled_from(keys), max_size=3, unique=True)):
        element.set(name, draw(st.sampled_from(["on", "x1", "virtio", "7"])))
    if depth < 3:
        element.extend(draw(st.lists(trees(depth + 1), max_size=3)))
    return element


@given(st.lists(trees(), max_size=4))
def test_no_attribute_of_a_domain_is_forgotten(parts: list[ET.Element]) -> None:
    root = ET.fromstring("<domain type='kvm'><vcpu>1</vcpu></domain>")
    root.extend(parts)
    listed = notes(imported(ET.tostring(root, encoding="unicode")))
    for element in root.iter():
        for name in element.attrib:
            assert re.search(rf"\b{name}\b", listed) or element.tag in ("disk",), (
                element.tag,
                name,
            )


# QEMU.

QEMU = "qemu-system-x86_64 -accel kvm -m 1G"


def qemu_options() -> list[tuple[str, bool]]:
    """The options of the QEMU that is installed, and whether each has a value."""
    program = shutil.which("qemu-system-x86_64")
    if program is None:
        pytest.skip("no QEMU is installed")
    lines = subprocess.run([program, "--help"], capture_output=True, text=True).stdout.splitlines()
    found = [
        re.match(r"-([a-zA-Z][\w-]*)(?:(?: or |/)-([a-zA-Z][\w-]*))?( \S)?", line) for line in lines
    ]
    options = []
    for each in found:
        if each is not None:
            names = [name for name in each.groups()[:2] if name]
            # The help of -dtb has its value in another column.
            options += [(name, bool(each[3]) or name == "dtb") for name in names]
    return options


def test_each_option_of_qemu_is_carried_over_or_listed() -> None:
    options = qemu_options()
    assert len(options) > 100
    missing = []
    for name, valued in options:
        arm = imported(f"{QEMU} -{name} {'zebra=1' if valued else ''} -smp 3")
        # What follows is still read: an option took as many words as QEMU's own does.
        assert arm.settings["shape"]["vcpus"] == 3 or name in ("smp",), name
        if not re.search(rf"(?<![\w-])-{re.escape(name)}(?![\w-])", notes(arm)):
            missing.append(name)
    assert set(missing) <= {"h"} | STATED_OTHERWISE, missing


STATED_OTHERWISE = {"kernel", "initrd", "append", "shim", "bios", "pflash", "hda", "hdb", "hdc"}
"""Options whose note has other words: what it boots, UEFI firmware, a disk."""

WORDS = st.from_regex(r"[a-z][a-z0-9-]{2,12}", fullmatch=True)


@given(st.sampled_from(["machine", "smp", "accel kvm", "overcommit", "m 512"]), WORDS)
def test_each_property_of_an_option_is_carried_over_or_listed(option: str, name: str) -> None:
    name_of, _, first = option.partition(" ")
    listed = notes(imported(f"{QEMU} -{name_of} {first + ',' if first else ''}{name}=7"))
    assert name in listed or name.startswith("pflash")


@given(WORDS, st.sampled_from(["virtio-blk-pci", "scsi-hd", "virtio-net-pci", "virtio-scsi-pci"]))
def test_each_property_of_a_device_is_carried_over_or_listed(name: str, device: str) -> None:
    line = f"{QEMU} -drive id=d,file=/x,if=none -device {device},drive=d,{name}=7"
    assert name in notes(imported(line))


# Proxmox.

PROXMOX_KEYS = words_of(
    "onboot autostart hotplug reboot lock cpulimit cpuunits memory amd-sev intel-tdx balloon "
    "shares "
    "keyboard name scsihw description ostype boot bootdisk smp sockets cores numa hugepages "
    "keephugepages vcpus acpi agent kvm tdf localtime freeze vga watchdog startdate startup "
    "template args tablet cdrom cpu parent snaptime vmstate vmstatestorage runningmachine "
    "runningcpu running-nets-host-mtu machine arch smbios1 protection bios vmgenid hookscript "
    "ivshmem audio0 tags rng0 meta affinity allow-ksm efidisk0 tpmstate0 cicustom ciuser "
    "cipassword citype ciupgrade nameserver searchdomain sshkeys spice_enhancements "
    "migrate_downtime migrate_speed hostpci0 usb0 serial0 parallel0 numa0 unused0 ipconfig0 net0 "
    "scsi0 virtio0 sata0 ide0 virtiofs0 digest zebra"
)
"""The keys of qm.conf(5)."""


@pytest.mark.parametrize("key", PROXMOX_KEYS)
def test_each_key_of_proxmox_is_carried_over_or_listed(key: str) -> None:
    listed = notes(imported(f"sockets: 1\n{key}: 64\n"))
    assert re.search(rf"(?<![\w-]){re.escape(key)}(?![\w-])", listed) or key in ("net0",), listed


DISK_PROPERTIES = words_of(
    "aio backup bps bps_max_length bps_rd bps_wr cache cyls detect_zeroes discard format heads "
    "import-from iops iops_max iops_max_length iops_rd iops_wr iothread mbps mbps_max mbps_rd "
    "mbps_wr "
    "media queues replicate rerror ro scsiblock secs serial shared size snapshot ssd trans "
    "werror wwn"
)
SILENT_OF_DISK = set(
    words_of(
        "backup cyls heads secs trans import-from media replicate rerror werror serial shared ssd "
        "wwn "
        "aio cache format iothread queues size"
    )
)


@pytest.mark.parametrize("name", DISK_PROPERTIES)
def test_each_property_of_a_disk_of_proxmox_is_listed_unless_it_is_read(name: str) -> None:
    listed = notes(imported(f"memory: 512\nscsi0: local:1/vm-1-disk-0.raw,{name}=5\n"))
    assert f"{name}=5" in listed or (name in SILENT_OF_DISK and name in listed), listed


# The others.


@pytest.mark.parametrize(
    "place", ["DiskSection>", "VirtualSystem ovf:id=", "VirtualHardwareSection>", "Envelope xmlns="]
)
def test_each_element_of_a_descriptor_is_carried_over_or_listed(place: str) -> None:
    start = OVF.index(">", OVF.index(f"<{place}")) + 1
    text = f"{OVF[:start]}<zulu quagga='1'><zebra>5</zebra></zulu>{OVF[start:]}"
    assert has(notes(imported(text)), "zulu", "quagga", "zebra")


@pytest.mark.parametrize("name", ["Reservation", "Limit", "Weight", "CoresPerSocket", "Zebra"])
def test_each_field_of_an_item_is_carried_over_or_listed(name: str) -> None:
    field = f"<rasd:{name}>17</rasd:{name}><rasd:ResourceType>4<"
    listed = notes(imported(OVF.replace("<rasd:ResourceType>4<", field)))
    assert has(listed.lower(), name.lower())


@given(st.dictionaries(WORDS, st.integers(1, 9), min_size=1, max_size=5))
def test_each_setting_of_a_xen_guest_is_carried_over_or_listed(settings: dict[str, int]) -> None:
    lines = "".join(f"{name.replace('-', '_')} = {value}\n" for name, value in settings.items())
    listed = notes(imported(f"vif = ['']\nmemory = 512\nvcpus = 2\n{lines}"))
    assert all(name.replace("-", "_") in listed for name in settings)


@given(st.dictionaries(WORDS, st.integers(1, 9), min_size=1, max_size=5))
def test_each_setting_of_vmware_is_carried_over_or_listed(settings: dict[str, int]) -> None:
    lines = "".join(f'scsi0:0.{name} = "{value}"\n' for name, value in settings.items())
    listed = notes(imported(f'memsize = "512"\nscsi0:0.fileName = "x.vmdk"\n{lines}'))
    assert all(name in listed for name in settings)


def places(value: object, place: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for name, held in value.items():
            yield from places(held, f"{place}.{name}" if place else name)
    else:
        yield place


TREES = st.recursive(
    st.integers(1, 9) | st.booleans(),
    lambda inner: st.dictionaries(WORDS, inner, min_size=1, max_size=3),
    max_leaves=6,
).filter(lambda tree: isinstance(tree, dict))


@given(TREES)
def test_each_value_of_firecracker_is_carried_over_or_listed(tree: dict[str, object]) -> None:
    whole = {"machine-config": {"vcpu_count": 2, "mem_size_mib": 256}, **tree}
    listed = notes(imported(json.dumps(whole)))
    assert all(place in listed for place in places(whole))


@given(TREES, st.sampled_from(["domain", "domain.devices", "domain.cpu", "domain.features", ""]))
def test_each_value_of_kubevirt_is_carried_over_or_listed(
    tree: dict[str, object], where: str
) -> None:
    machine = {"domain": {"devices": {}, "cpu": {"cores": 2}, "features": {}}}
    inner: dict[str, object] = machine  # type: ignore[assignment]
    for name in filter(None, where.split(".")):
        inner = inner[name]  # type: ignore[assignment]
    inner.update({f"z{name}": held for name, held in tree.items()})
    whole = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "spec": machine}
    listed = notes(imported(yaml.safe_dump(whole)))
    wanted = [f"{where}." if where else ""]
    assert all(f"{wanted[0]}z{place}" in listed for place in places(tree)), listed
