"""Libvirt's domain XML, as ``virsh dumpxml`` prints it; libvirt.org, "Domain XML format"."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable

from tare.platforms.imported.model import Found
from tare.platforms.imported.numbers import UNITS, bytes_of, whole

IGNORED = frozenset({"uuid", "title", "description", "metadata", "currentMemory", "resource"})
"""What says nothing of how the machine performs, or the same as another part."""
ENDS = frozenset({"on_poweroff", "on_reboot", "on_crash", "pm", "seclabel", "genid"})
PLAIN_DEVICES = frozenset(
    {"emulator", "controller", "serial", "console", "channel", "input", "graphics", "video"}
)
"""Devices that every desktop's machine has, and no workload of Tare's touches."""


def read_domain(root: ET.Element) -> Found:
    """Return what a domain says.

    Args:
        root: The element ``domain``.
    """
    found = Found()
    kinds = {"kvm": "kvm", "qemu": "tcg"}
    kind = root.get("type", "")
    if kind in kinds:
        found.options["accelerator"] = kinds[kind]
    else:
        found.leave(f"type {kind}")
    # The mainboard decides what a bus means.
    if (board := root.find("os/type")) is not None and board.get("machine"):
        found.board(str(board.get("machine")))
    for part in root:
        _PARTS.get(part.tag, _other)(found, part)
    return found


def _other(found: Found, part: ET.Element) -> None:
    if part.tag not in IGNORED | ENDS:
        found.leave(f"<{part.tag}>")


def _name(found: Found, part: ET.Element) -> None:
    found.name = part.text or ""


def _memory(found: Found, part: ET.Element) -> None:
    found.memory = bytes_of(part.text, UNITS.get(part.get("unit", "KiB")))


def _vcpu(found: Found, part: ET.Element) -> None:
    found.vcpus = whole(part.text)
    if part.get("cpuset"):
        found.leave(f"vCPUs on CPUs {part.get('cpuset')}", "say so in a scenario: `cpus: pinned`")


def _tune(found: Found, part: ET.Element) -> None:
    for each in part:
        why = "say so in a scenario: `cpus: pinned`" if each.tag == "vcpupin" else ""
        if each.tag in ("emulatorpin", "iothreadpin"):
            why = "write `emulator-cpus`"
        if each.tag == "shares":
            why = "write `scheduling: {weight: …}`"
        if each.tag in ("quota", "period"):
            why = "write `scheduling: {cap: …}`"
        found.leave(f"<cputune> {each.tag}", why)


def _backing(found: Found, part: ET.Element) -> None:
    for each in part:
        if each.tag == "hugepages":
            found.options["hugepages"] = True
            page = each.find("page")
            if page is not None and (unit := UNITS.get(page.get("unit", "KiB"))):
                found.options["hugepage_size"] = bytes_of(page.get("size"), unit)
        elif each.tag == "locked":
            found.options["mlock"] = True
        else:
            found.leave(f"<memoryBacking> {each.tag}")


def _nodes(found: Found, part: ET.Element) -> None:
    for each in part:
        if each.tag == "memory" and each.get("mode", "strict") == "strict":
            found.bind_memory(each.get("nodeset", ""))
        else:
            found.leave(f"<numatune> {each.tag} {each.get('mode', '')}".rstrip())


def _processor(found: Found, part: ET.Element) -> None:
    mode = part.get("mode", "custom")
    model = (part.findtext("model") or "").strip()
    flags = [
        f"{'-' if each.get('policy') in ('disable', 'forbid') else '+'}{each.get('name', '')}"
        for each in part.findall("feature")
    ]
    if mode == "host-model":
        found.leave("CPU host-model", "the host's own processor is taken")
    elif mode == "custom" and model:
        found.options["cpu"] = ",".join([model, *flags])
    if mode != "custom" and flags:
        found.options["cpu"] = ",".join(["host" if mode != "maximum" else "max", *flags])
    for each in part:
        if each.tag not in ("model", "feature", "topology"):
            found.leave(f"<cpu> {each.tag}")
    topology = part.find("topology")
    if topology is not None and whole(topology.get("threads")) not in (None, 1):
        found.leave("threads of a core", "each vCPU is a core of its own")


def _system(found: Found, part: ET.Element) -> None:
    for each in part:
        if each.tag in ("loader", "nvram") or part.get("firmware"):
            found.leave("UEFI firmware", "the kernel is booted directly")
    found.leave("what it boots", "the kernel of the study is booted")


def _features(found: Found, part: ET.Element) -> None:
    for each in part:
        if each.tag == "hyperv":
            found.options["enlightenments"] = {"hyperv": True}
            found.leave("single enlightenments of Hyper-V", "the usual ones are taken")
        elif each.tag == "kvm" and (hidden := each.find("hidden")) is not None:
            if hidden.get("state") == "on":
                found.options["enlightenments"] = {"kvm": False}
        elif each.tag not in ("acpi", "apic", "pae", "vmport", "smm"):
            found.leave(f"<features> {each.tag}")


def _devices(found: Found, part: ET.Element) -> None:
    for each in part:
        if each.tag == "disk" and each.get("device", "disk") == "disk":
            _disk(found, each)
        elif each.tag == "interface":
            model = each.find("model")
            driver = each.find("driver")
            found.add_nic(
                "rtl8139" if model is None else model.get("type", ""),
                None if driver is None else whole(driver.get("queues")),
            )
        elif each.tag == "controller" and each.get("type") == "scsi":
            if not (controller := each.get("model", "auto")).startswith("virtio"):
                found.leave(f"disk controller {controller}", "virtio-scsi is taken")
        elif each.tag not in PLAIN_DEVICES:
            model_of = each.get("model") or each.get("device") or each.get("type") or ""
            if (each.tag, model_of) != ("memballoon", "none"):
                found.leave(f"device {each.tag} {model_of}".rstrip())


def _disk(found: Found, disk: ET.Element) -> None:
    driver, target = disk.find("driver"), disk.find("target")
    said = {} if driver is None else driver.attrib
    bus = "ide" if target is None else target.get("bus", "ide")
    first = found.disks == 0
    found.add_disk(bus, said.get("cache", ""), said.get("io", ""))
    if not first:
        return
    found.disk_kept_as(said.get("type", "raw"))
    if queues := whole(said.get("queues")):
        found.options["disk_queues"] = queues
    if said.get("iothread"):
        found.options["iothread"] = True
    for name in sorted(set(said) - {"name", "type", "cache", "io", "queues", "iothread"}):
        found.leave(f"disk {name}={said[name]}")
    if disk.find("iotune") is not None:
        found.leave("limits of the disk's rate (<iotune>)")


_PARTS: dict[str, Callable[[Found, ET.Element], None]] = {
    "name": _name,
    "memory": _memory,
    "vcpu": _vcpu,
    "cputune": _tune,
    "memoryBacking": _backing,
    "numatune": _nodes,
    "cpu": _processor,
    "os": _system,
    "features": _features,
    "devices": _devices,
}
