"""The XML of a domain; the format is that of libvirt.org, "Domain XML format"."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from tare.platforms.contract import Shape
from tare.platforms.libvirt.options import CPU_MODES, LibvirtOptions
from tare.platforms.network import Link
from tare.platforms.qemu.command import PORT
from tare.platforms.qemu.features import wanted
from tare.platforms.scheduling import DEFAULT_PRIORITY, NOTHING, Scheduling

QEMU_WORDS = "http://libvirt.org/schemas/domain/qemu/1.0"
"""The namespace of QEMU's own arguments (libvirt.org, "QEMU command-line passthrough")."""
BUSES = {"virtio-blk": "virtio", "virtio-scsi": "scsi", "ahci": "sata", "ide": "ide"}
"""Libvirt's names of the buses."""
_TARGETS = {"virtio-blk": "vda", "virtio-scsi": "sda", "ahci": "sda", "ide": "hda"}
_TOOLBOX_TARGETS = {"virtio": "vdb", "sata": "sdb", "scsi": "sdb", "ide": "hdb"}
TOOLBOX_SERIAL = "tare-toolbox"


@dataclass(frozen=True)
class Files:
    """The files of a domain, on its host.

    Args:
        kernel: The kernel that it boots.
        initramfs: The initramfs that it boots.
        agent: The socket of the agent's channel.
        console: The socket of its console.
        disk: Its own disk; None without one.
        toolbox: The toolbox's image; None if it needs none.
    """

    kernel: Path
    initramfs: Path
    agent: Path
    console: Path
    disk: Path | None = None
    toolbox: Path | None = None


def domain_xml(
    options: LibvirtOptions,
    name: str,
    uuid: str,
    shape: Shape,
    files: Files,
    *,
    append: Sequence[str],
    pins: Sequence[int] = (),
    within: Sequence[int] = (),
    emulator: Sequence[int] = (),
    disk_thread: Sequence[int] = (),
    link: Link | None = None,
    tuning: Mapping[str, int] = MappingProxyType({}),
    scheduling: Scheduling = NOTHING,
) -> str:
    """Return a domain's XML.

    Args:
        options: The arm's options.
        name: The machine's name.
        uuid: Its UUID, by which its QEMU is found on the host.
        shape: Its size.
        files: Its files.
        append: The kernel's arguments.
        pins: The host CPU of each vCPU, in order; empty: any.
        within: The host CPUs for vCPUs that are not pinned; empty: all.
        emulator: The host CPUs of QEMU's other threads; empty: any.
        disk_thread: The host CPUs of the disk's own thread; empty: any.
        link: The connection of its network interface; None: it has none.
        tuning: Its CPU shares and quotas, by libvirt's names.
        scheduling: The scheduling of its vCPUs, but only its policy is used here.
    """
    domain = ET.Element("domain", type=options.domain_type)
    _text(domain, "name", name)
    _text(domain, "uuid", uuid)
    _text(domain, "memory", str(shape.memory >> 10), unit="KiB")
    if options.hugepages:
        pages = _add(_add(domain, "memoryBacking"), "hugepages")
        if options.hugepage_size is not None:
            _add(pages, "page", size=str(options.hugepage_size >> 10), unit="KiB")
    kept = {"cpuset": ",".join(map(str, within))} if within else {}
    _text(domain, "vcpu", str(shape.vcpus), placement="static", **kept)
    if options.iothread:
        _text(domain, "iothreads", "1")
    _tune(domain, tuning, pins, emulator, disk_thread, _vcpu_policy(scheduling, shape.vcpus))
    if options.numa_node is not None:
        _add(_add(domain, "numatune"), "memory", mode="strict", nodeset=str(options.numa_node))
    system = _add(domain, "os")
    _text(system, "type", "hvm", arch="x86_64", machine=options.machine)
    _text(system, "kernel", str(files.kernel))
    _text(system, "initrd", str(files.initramfs))
    _text(system, "cmdline", " ".join(append))
    features = _add(domain, "features")
    _add(features, "acpi")
    _add(features, "apic")
    _add(features, "vmport", state="off")
    _processor(domain, options, shape.vcpus)
    for event in ("on_poweroff", "on_reboot", "on_crash"):
        _text(domain, event, "destroy")
    _devices(domain, options, files, link)
    if options.extra_args:
        ET.register_namespace("qemu", QEMU_WORDS)
        line = _add(domain, f"{{{QEMU_WORDS}}}commandline")
        for word in options.extra_args:
            _add(line, f"{{{QEMU_WORDS}}}arg", value=word)
    return ET.tostring(domain, encoding="unicode")


def _tune(
    domain: ET.Element,
    tuning: Mapping[str, int],
    pins: Sequence[int],
    emulator: Sequence[int],
    disk_thread: Sequence[int],
    policy: Mapping[str, str],
) -> None:
    tune = ET.Element("cputune")
    for name, value in tuning.items():
        _text(tune, name, str(value))
    for number, cpu in enumerate(pins):
        _add(tune, "vcpupin", vcpu=str(number), cpuset=str(cpu))
    if emulator:
        _add(tune, "emulatorpin", cpuset=",".join(map(str, emulator)))
    if disk_thread:
        _add(tune, "iothreadpin", iothread="1", cpuset=",".join(map(str, disk_thread)))
    if policy:
        _add(tune, "vcpusched", **policy)
    if len(tune):
        domain.append(tune)


def _vcpu_policy(wanted: Scheduling, vcpus: int) -> dict[str, str]:
    """Return the attributes of ``vcpusched``; empty for the default policy."""
    if wanted.policy in (None, "other"):
        return {}
    priority = {"priority": str(wanted.priority or DEFAULT_PRIORITY)} if wanted.realtime else {}
    return {"vcpus": f"0-{vcpus - 1}", "scheduler": str(wanted.policy), **priority}


def _processor(domain: ET.Element, options: LibvirtOptions, vcpus: int) -> None:
    model = options.cpu or ("host-passthrough" if options.accelerator == "kvm" else "maximum")
    if model in CPU_MODES:
        # Only a guest that cannot migrate may see that the host's TSC never stops.
        migratable = {"migratable": "off"} if model == "host-passthrough" else {}
        cpu = _add(domain, "cpu", mode=model, **migratable)
    else:
        cpu = _add(domain, "cpu", mode="custom", match="exact", check="none")
        _text(cpu, "model", model, fallback="forbid")
    _add(cpu, "topology", sockets="1", cores=str(vcpus), threads="1")
    for feature, there in wanted(options.cpu_features).items():
        _add(cpu, "feature", policy="require" if there else "disable", name=feature)


def _devices(domain: ET.Element, options: LibvirtOptions, files: Files, link: Link | None) -> None:
    devices = _add(domain, "devices")
    paravirtual = options.devices == "paravirtual"
    if files.disk is not None:
        _disk(devices, options, files.disk)
    if files.toolbox is not None:
        _toolbox(devices, options, files.toolbox)
    _stream(devices, "serial", files.console, {"type": "isa-serial", "port": "0"})
    if paravirtual:
        _stream(devices, "channel", files.agent, {"type": "virtio", "name": PORT})
    else:
        _stream(devices, "serial", files.agent, {"type": "isa-serial", "port": "1"})
    if link is not None:
        nic = _add(devices, "interface", type="ethernet")
        _add(nic, "mac", address=link.mac)
        _add(nic, "target", dev=link.interface, managed="no")
        _add(nic, "model", type=options.like_qemu.card)
        _add(nic, "rom", enabled="no")
    # Suppress the devices that libvirt would add by default, and that no workload uses.
    _add(devices, "controller", type="usb", model="none")
    _add(devices, "memballoon", model="none")
    _add(devices, "audio", id="1", type="none")


def _disk(devices: ET.Element, options: LibvirtOptions, file: Path) -> None:
    device = options.disk_format in ("block", "lvm")
    disk = _add(devices, "disk", type="block" if device else "file", device="disk")
    kind = "qcow2" if options.disk_format == "qcow2" else "raw"
    driver = {"name": "qemu", "type": kind, "cache": options.disk_cache}
    driver |= {} if options.disk_io == "default" else {"io": options.disk_io}
    carried = _carried(options)
    if options.bus == "virtio-scsi":
        controller = _add(devices, "controller", type="scsi", index="0", model="virtio-scsi")
        if carried:
            _add(controller, "driver", **carried)
    else:
        driver |= carried
    # By default QEMU pauses a guest when the host's disk is full, which looks like a hang.
    _add(disk, "driver", **driver, error_policy="report", rerror_policy="report")
    _add(disk, "source", **{"dev" if device else "file": str(file)})
    _add(disk, "target", dev=_TARGETS[options.bus], bus=BUSES[options.bus])


def _carried(options: LibvirtOptions) -> dict[str, str]:
    """Return the settings of the disk's bus, on the disk or on its controller."""
    queues = {} if options.disk_queues is None else {"queues": str(options.disk_queues)}
    return {**queues, **({"iothread": "1"} if options.iothread else {})}


def _toolbox(devices: ET.Element, options: LibvirtOptions, file: Path) -> None:
    paravirtual = options.devices == "paravirtual"
    disk = _add(devices, "disk", type="file", device="disk")
    _add(disk, "driver", name="qemu", type="raw")
    # The file may be the cache's own, so libvirt must not change its owner.
    _add(_add(disk, "source", file=str(file)), "seclabel", model="dac", relabel="no")
    bus = "virtio" if paravirtual else BUSES[options.bus]
    _add(disk, "target", dev=_TOOLBOX_TARGETS[bus], bus=bus)
    _text(disk, "serial", TOOLBOX_SERIAL)
    # An emulated disk cannot be read-only. With `transient`, writes go to a file next to the image,
    # which libvirt removes.
    _add(disk, "readonly" if paravirtual else "transient")


def _stream(devices: ET.Element, kind: str, socket: Path, target: Mapping[str, str]) -> None:
    stream = _add(devices, kind, type="unix")
    _add(stream, "source", mode="bind", path=str(socket))
    _add(stream, "target", **target)


def _add(parent: ET.Element, tag: str, **attributes: str) -> ET.Element:
    return ET.SubElement(parent, tag, attributes)


def _text(parent: ET.Element, tag: str, text: str, **attributes: str) -> None:
    _add(parent, tag, **attributes).text = text


def expected_disk(options: LibvirtOptions) -> dict[str, str]:
    """Return the result that :func:`reported_disk` must give for a disk with these options."""
    driven = {} if options.disk_io == "default" else {"io": options.disk_io}
    kind = "qcow2" if options.disk_format == "qcow2" else "raw"
    held = "block" if options.disk_format in ("block", "lvm") else "file"
    driven_by = {"cache": options.disk_cache, "type": kind, "bus": BUSES[options.bus], "held": held}
    return {**driven_by, **driven, **_carried(options)}


def reported_disk(xml: str) -> dict[str, str]:
    """Return the settings of a running domain's first disk, as libvirt reports them.

    Args:
        xml: The live XML of the domain.

    Returns:
        The attributes of its driver, and of its controller's driver on virtio-scsi; ``bus``;
        and ``held``: whether a ``file`` or a ``block`` device holds it. Empty if it has no
        disk.
    """
    domain = ET.fromstring(xml)
    disk = domain.find("devices/disk")
    if disk is None:
        return {}
    driver, target = disk.find("driver"), disk.find("target")
    driven_by = {} if driver is None else dict(driver.attrib)
    bus = "" if target is None else target.get("bus", "")
    if bus == "scsi":
        carried = domain.find("devices/controller[@type='scsi']/driver")
        driven_by |= {} if carried is None else dict(carried.attrib)
    return {**driven_by, "bus": bus, "held": disk.get("type", "")}


def reported_features(xml: str) -> dict[str, bool]:
    """Map features to whether a running domain's processor has them, as libvirt reports."""
    listed = ET.fromstring(xml).findall("cpu/feature")
    return {
        each.get("name", ""): each.get("policy", "require") in ("require", "force")
        for each in listed
    }
