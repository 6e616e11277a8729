"""The configuration of a Proxmox VM, ``/etc/pve/qemu-server/NUMBER.conf``; qm.conf(5)."""

from __future__ import annotations

import re

from tare.platforms.imported.model import Found
from tare.platforms.imported.numbers import bytes_of, whole
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
        *("cpu", "machine", "kvm", "hugepages"),
    }
)
"""Keys that say nothing of how the machine performs, or that are read by their names below."""
INSTEAD = {
    "affinity": "say so in a scenario: `cpus: pinned`",
    "cpulimit": "write `scheduling: {cap: …}`",
    "cpuunits": "write `scheduling: {weight: …}`",
    "args": "write `extra-args`",
}


def read_proxmox(text: str) -> Found:
    """Return what a configuration says; its snapshots, which follow it, are not read.

    Raises:
        ValueError: A line is none of such a file.
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
    found = Found(name=said.get("name", ""))
    # Proxmox has 512 MiB, one core and one socket where nothing is said (qm.conf(5)).
    found.memory = bytes_of(said.get("memory", "512").partition(",")[0], 1 << 20)
    found.vcpus = (whole(said.get("cores", "1")) or 1) * (whole(said.get("sockets", "1")) or 1)
    found.options["accelerator"] = "tcg" if said.get("kvm") == "0" else "kvm"
    board = pairs(said.get("machine", "pc"), "type").get("type", "pc")
    found.board("pc" if board.startswith("i440fx") else board)
    _processor(found, said.get("cpu", "x86-64-v2-AES"))
    if "hugepages" in said:
        found.options["hugepages"] = True
        if size := {"2": 2 << 20, "1024": 1 << 30}.get(said["hugepages"]):
            found.options["hugepage_size"] = size
    for key, value in said.items():
        _part(found, key, value)
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
    if model in ("host", "max") and not flags:
        return
    if model.startswith("x86-64-v"):
        # Proxmox's own models; QEMU has none of the name.
        found.leave(f"CPU {model}", "the host's own processor is taken")
        return
    found.options["cpu"] = ",".join([model, *flags])
    for name in sorted(set(said) - {"cputype", "flags"}):
        found.leave(f"CPU {name}={said[name]}")


def _part(found: Found, key: str, value: str) -> None:
    if match := _DISK.fullmatch(key):
        said = pairs(value, "volume")
        if said.get("media") != "cdrom" and said.get("volume") != "none":
            first = found.disks == 0
            found.add_disk(
                match[1],
                said.get("cache", ""),
                said.get("aio", ""),
                _bytes(said.get("size", "")),
            )
            if first and said.get("iothread") == "1":
                found.options["iothread"] = True
            for name in sorted(each for each in said if each.startswith(("mbps", "iops"))):
                found.leave(f"disk {name}={said[name]}")
    elif _NIC.fullmatch(key):
        said = pairs(value, "model")
        first_pair = next(iter(said.items()), ("", ""))
        model = first_pair[1] if first_pair[0] == "model" else first_pair[0]
        found.add_nic(model, whole(said.get("queues")))
        if "rate" in said:
            found.leave(f"network rate={said['rate']}")
    elif key not in IGNORED:
        found.leave(f"{key}: {value}", INSTEAD.get(key, ""))


def _bytes(text: str) -> int | None:
    size = _SIZE.fullmatch(text)
    return None if size is None else bytes_of(size[1], _UNITS[size[2]])
