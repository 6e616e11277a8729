"""Libvirt's domain XML, as ``virsh dumpxml`` prints it; libvirt.org, "Domain XML format"."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable

from tare.platforms.imported.cpu_tuning import read_tuning
from tare.platforms.imported.libvirt_devices import read_devices
from tare.platforms.imported.model import CPU_OF_QEMU, Found
from tare.platforms.imported.numbers import UNITS, bytes_of, whole

IGNORED = frozenset(
    {
        *("uuid", "title", "description", "metadata", "resource"),
        # A disk's own `iothread` says that it has one.
        *("iothreads", "iothreadids"),
        # See :mod:`tare.platforms.imported.cpu_tuning`.
        "cputune",
    }
)
"""What says nothing of how the machine performs, or the same as another part."""
ENDS = frozenset({"on_poweroff", "on_reboot", "on_crash", "pm", "seclabel", "genid"})


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
    if (arch := _arch(root)) not in ("", "x86_64", "i686"):
        found.leave(f"processors of the kind {arch}", "Tare's machines have x86-64")
    # What QEMU does where nothing is said.
    found.options |= {"machine": "pc", "cpu": CPU_OF_QEMU}
    # The mainboard decides what a bus means.
    if (board := root.find("os/type")) is not None and board.get("machine"):
        found.board(str(board.get("machine")))
    # So does its memory what a balloon leaves of it.
    for part in sorted(root, key=lambda part: part.tag != "memory"):
        _PARTS.get(part.tag, _other)(found, part)
    # Which thread is the disk's, and how many vCPUs there are, is known by now.
    read_tuning(found, root)
    return found


def _arch(root: ET.Element) -> str:
    kind = root.find("os/type")
    return "" if kind is None else kind.get("arch", "")


def _other(found: Found, part: ET.Element) -> None:
    if part.tag not in IGNORED | ENDS:
        found.leave(f"<{part.tag.rpartition('}')[2]}>")


def _commandline(found: Found, part: ET.Element) -> None:
    words = (each.get("value", "") for each in part if each.tag.endswith("}arg"))
    found.leave(f"<qemu:commandline> {' '.join(words)}".rstrip(), "write `extra-args`")


def _name(found: Found, part: ET.Element) -> None:
    found.name = part.text or ""


def _memory(found: Found, part: ET.Element) -> None:
    found.memory = bytes_of(part.text, UNITS.get(part.get("unit", "KiB")))


def _balloon(found: Found, part: ET.Element) -> None:
    """Tell of memory that a balloon takes away: a machine of Tare's has none."""
    size = bytes_of(part.text, UNITS.get(part.get("unit", "KiB")))
    if size is not None and size != found.memory:
        found.leave(
            f"currentMemory of {size >> 20} MiB", "all of its memory is taken, as without a balloon"
        )


def _vcpu(found: Found, part: ET.Element) -> None:
    most = whole(part.text)
    found.vcpus = whole(part.get("current")) or most
    if most is not None and found.vcpus is not None and most > found.vcpus:
        found.leave(f"vCPUs that may be added, up to {most}", "those that are there are taken")


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
    if mode != "custom":
        found.options.pop("cpu", None)
        if flags:
            found.options["cpu"] = ",".join(["host" if mode != "maximum" else "max", *flags])
    elif model or flags:
        found.options["cpu"] = ",".join([model or CPU_OF_QEMU, *flags])
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


_PARTS: dict[str, Callable[[Found, ET.Element], None]] = {
    "name": _name,
    "memory": _memory,
    "currentMemory": _balloon,
    "{http://libvirt.org/schemas/domain/qemu/1.0}commandline": _commandline,
    "vcpu": _vcpu,
    "memoryBacking": _backing,
    "numatune": _nodes,
    "cpu": _processor,
    "os": _system,
    "features": _features,
    "devices": read_devices,
}
