"""The configuration of a Proxmox VM, ``/etc/pve/qemu-server/NUMBER.conf``; qm.conf(5)."""

from __future__ import annotations

import re

from tare.platforms.imported.cpu_tuning import OWN_CPU, weigh
from tare.platforms.imported.model import Found
from tare.platforms.imported.numbers import bytes_of, cpu_set, fraction, whole
from tare.platforms.imported.qemu_words import pairs

_LINE = re.compile(r"([a-z][a-z0-9_-]*):\s*(.*)")
_DISK = re.compile(r"(virtio|scsi|sata|ide)\d+")
_NIC = re.compile(r"net\d+")
_SIZE = re.compile(r"([0-9]{1,15})([KMGT]?)")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
IGNORED = frozenset(
    {
        *("boot", "bootdisk", "description", "digest", "meta", "onboot", "ostype", "parent"),
        *("smbios1", "startup", "tags", "template", "vmgenid", "vga", "tablet", "agent", "scsihw"),
        *("lock", "protection", "keyboard", "localtime", "name", "memory", "cores", "sockets"),
        *("cpu", "machine", "kvm", "hugepages", "vcpus", "affinity", "cpulimit", "cpuunits"),
    }
)
"""Keys that say nothing of how the machine performs, or that are read by their names below."""
_NOTHING = frozenset({("balloon", "0"), ("numa", "0"), ("acpi", "1")})
"""What is so in any case."""
_UNUSED = re.compile(r"unused\d+")
INSTEAD = {
    "args": "write `extra-args`",
}
SHOWING = frozenset({"memory", "cores", "sockets", "scsihw", "vmgenid", "smbios1", "bios", "boot"})
"""Keys of which a VM's configuration has one."""
CONTAINERS = frozenset({"rootfs", "unprivileged"})
"""Keys that a container's configuration has alone (pct.conf(5))."""
PLAIN_CPU = {True: "kvm64", False: "qemu64"}
"""The processor where none is said, by whether KVM runs it (PVE/QemuServer/CPUConfig.pm)."""


def is_configuration(text: str) -> bool:
    """Return whether a text begins as such a file does."""
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and not line.startswith("#")), "")
    return _LINE.fullmatch(first) is not None


def read_proxmox(text: str) -> Found:
    """Return what a configuration says; its snapshots, which follow it, are not read.

    Raises:
        ValueError: A line is none of such a file, or it describes no VM.
    """
    said: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.strip()
        if line.startswith("["):
            break
        if not line or line.startswith("#"):
            continue
        parts = _LINE.fullmatch(line)
        if parts is None:
            raise ValueError(f"line {number} is no `key: value`")
        said[parts[1]] = parts[2].strip()
    if CONTAINERS & set(said):
        raise ValueError("describes a container, which `platform: oci` or `incus` has")
    if not SHOWING & set(said):
        raise ValueError("describes no virtual machine")
    found = Found(name=said.get("name", ""))
    # Proxmox has 512 MiB, one core and one socket where nothing is said (qm.conf(5)).
    memory = pairs(said.get("memory", "512"), "current").get("current", "")
    found.memory = bytes_of(memory, 1 << 20)
    found.vcpus = (whole(said.get("cores", "1")) or 1) * (whole(said.get("sockets", "1")) or 1)
    if (there := whole(said.get("vcpus"))) and there < found.vcpus:
        found.leave(
            f"vCPUs that may be added, up to {found.vcpus}", "those that are there are taken"
        )
        found.vcpus = there
    kvm = said.get("kvm") != "0"
    found.options["accelerator"] = "kvm" if kvm else "tcg"
    board = pairs(said.get("machine", "pc"), "type")
    kind = board.get("type", "pc")
    found.board("pc" if kind.startswith("i440fx") else kind)
    for name in sorted(set(board) - {"type"}):
        found.leave(f"machine {name}={board[name]}")
    _processor(found, said.get("cpu", PLAIN_CPU[kvm]))
    if "hugepages" in said:
        found.options["hugepages"] = True
        if size := {"2": 2 << 20, "1024": 1 << 30}.get(said["hugepages"]):
            found.options["hugepage_size"] = size
    for key, value in said.items():
        _part(found, key, value)
    _tuning(found, said)
    # Where nothing is said, it is LSI's (qm.conf(5)).
    controller = said.get("scsihw", "lsi")
    on_scsi = any(key.startswith("scsi") and _DISK.fullmatch(key) for key in said)
    if on_scsi and not controller.startswith("virtio-scsi"):
        found.leave(f"disk controller {controller}", "virtio-scsi is taken")
    return found


def _processor(found: Found, value: str) -> None:
    said = pairs(value, "cputype")
    model = said.get("cputype", "")
    flags = [flag for flag in said.get("flags", "").split(";") if flag]
    hidden = said.get("hidden") == "1"
    if hidden:
        found.options["enlightenments"] = {"kvm": False}
    for name in sorted(set(said) - {"cputype", "flags"} - ({"hidden"} if hidden else set())):
        found.leave(f"CPU {name}={said[name]}")
    if model.startswith(("x86-64-v", "custom-")):
        # Proxmox's own models, and its owner's; QEMU has none of the name.
        found.leave(f"CPU {','.join([model, *flags])}", "the host's own processor is taken")
    elif flags or model not in ("host", "max"):
        found.options["cpu"] = ",".join([model, *flags])


def _tuning(found: Found, said: dict[str, str]) -> None:
    """Take limit, weight and CPUs of the whole VM (qm.conf(5), `cpulimit` and what follows)."""
    if (limit := fraction(said.get("cpulimit", "0"))) is None:
        found.leave(f"cpulimit: {said['cpulimit']}", "it is no number")
    elif limit > 0:
        found.schedule(cap=limit)
    if (units := said.get("cpuunits")) is not None:
        weigh(found, f"cpuunits {units}", whole(units))
    if (affinity := said.get("affinity")) is not None:
        cpus = cpu_set(affinity)
        if cpus is not None:
            found.options["emulator_cpus"] = list(cpus)
        found.leave(f"vCPUs on CPUs {affinity}", OWN_CPU if cpus else "it is no list of CPUs")


def _part(found: Found, key: str, value: str) -> None:
    if match := _DISK.fullmatch(key):
        _disk(found, match[1], pairs(value, "file"))
    elif _NIC.fullmatch(key):
        said = pairs(value, "model")
        first_pair = next(iter(said.items()), ("", ""))
        model = first_pair[1] if first_pair[0] == "model" else first_pair[0]
        if found.add_nic(model, whole(said.get("queues"))) and "bridge" not in said:
            # Without a bridge it is QEMU's own network (qm.conf(5)).
            found.options["network"] = "user"
        if "rate" in said:
            found.leave(f"network rate={said['rate']}")
    elif key not in IGNORED and not _UNUSED.fullmatch(key) and (key, value) not in _NOTHING:
        found.leave(f"{key}: {value}", INSTEAD.get(key, ""))


def _disk(found: Found, bus: str, said: dict[str, str]) -> None:
    volume = said.get("file", "")
    if said.get("media") == "cdrom" or volume == "none":
        return
    first = found.disks == 0
    # Without a word on it Proxmox goes past the host's page cache, as Tare does.
    aio = said.get("aio", "io_uring")
    found.add_disk(bus, said.get("cache", ""), aio, _bytes(said.get("size", "")))
    if not first:
        return
    if "aio" not in said:
        found.leave(
            "how QEMU drives the disk is not said",
            "Proxmox takes io_uring, but `disk-aio: native` on LVM, CIFS and some RBD",
        )
    kept = re.search(r"\.([a-z0-9]+)$", volume)
    found.disk_kept_as(said.get("format", kept[1] if kept else "raw"))
    if not kept and not volume.startswith("/"):
        found.leave(
            f"storage {volume.partition(':')[0]}",
            "on LVM write `disk-format: lvm`; a file is taken",
        )
    if said.get("iothread") == "1":
        found.options["iothread"] = True
    if queues := whole(said.get("queues")):
        found.options["disk_queues"] = queues
    told = ("mbps", "iops", "discard", "detect_zeroes", "snapshot")
    for name in sorted(each for each in said if each.startswith(told)):
        if said[name] not in ("ignore", "0", "off"):
            found.leave(f"disk {name}={said[name]}")


def _bytes(text: str) -> int | None:
    size = _SIZE.fullmatch(text)
    return None if size is None else bytes_of(size[1], _UNITS[size[2]])
