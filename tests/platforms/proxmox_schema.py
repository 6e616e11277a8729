"""What the server that stands for Proxmox takes for a VM's configuration, and what it says else."""

from __future__ import annotations

import email
import email.policy
import re
from typing import Any, Protocol
from urllib.parse import parse_qsl

ROOT = "root@pam"
RANGES = {
    "cores": (1, 8192),
    "sockets": (1, 4),
    "memory": (16, 1 << 30),
    "cpuunits": (1, 262144),
    "cpulimit": (0, 128),
    "balloon": (0, 1 << 30),
}
RIGHTS = {
    "VM.Config.CPU": {"cores", "sockets", "cpu", "cpulimit", "cpuunits"},
    "VM.Config.Memory": {"memory", "balloon"},
    "VM.Config.HWType": {"machine", "kvm", "scsihw", "smbios1"},
    "VM.Config.Options": {"name", "ostype", "onboot"},
    "VM.Config.Disk": {"boot"},
    "VM.Config.Network": {"net0", "net1"},
}
DRIVE = re.compile(r"(ide|sata|scsi|virtio)\d+")
_FLAG = r"[01]"
_DISK = {
    "aio": r"native|threads|io_uring",
    "cache": r"none|writethrough|writeback|unsafe|directsync",
    "discard": r"ignore|on",
    "format": r"raw|qcow2|vmdk",
    "import-from": r".+",
    "media": r"cdrom|disk",
    "size": r"\d+(\.\d+)?[KMGT]?",
    **dict.fromkeys(("backup", "detect_zeroes", "replicate", "shared", "snapshot"), _FLAG),
}
_DISK_ONLY = {
    "ide": {"ssd": _FLAG},
    "sata": {"ssd": _FLAG},
    "scsi": {"iothread": _FLAG, "queues": r"[2-9]|\d\d+", "ro": _FLAG, "ssd": _FLAG},
    "virtio": {"iothread": _FLAG, "ro": _FLAG},
}
_CARDS = r"e1000(-82540em|-82544gc|-82545em|e)?|ne2k_pci|pcnet|rtl8139|virtio|vmxnet3"
_CPU_SET = r"\d+(-\d+)?([,;]\d+(-\d+)?)*"
FORMATS: dict[str, dict[str, str]] = {
    "net": {
        "model": _CARDS,
        "bridge": r"[\w.-]+",
        "firewall": _FLAG,
        "link_down": _FLAG,
        "macaddr": r"([0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}",
        "mtu": r"\d+",
        "queues": r"\d+",
        "rate": r"\d+(\.\d+)?",
        "tag": r"\d+",
    },
    "cpu": {"cputype": r"[\w.-]+", "flags": r"[+-][\w-]+(;[+-][\w-]+)*", "hidden": _FLAG},
    "numa": {
        "cpus": _CPU_SET,
        "hostnodes": _CPU_SET,
        "memory": r"\d+",
        "policy": r"preferred|bind|interleave",
    },
    **{kind: {"file": r"[^,]+", **_DISK, **own} for kind, own in _DISK_ONLY.items()},
}
"""The parts of values that have several, with what each may be; a part without a name is the first.
Sources: qm(1), and PVE/QemuServer.pm and PVE/QemuServer/Drive.pm of qemu-server."""
WORDS = {
    "affinity": _CPU_SET,
    "args": r".+",
    "hugepages": r"any|2|1024",
    "numa": _FLAG,
    "scsihw": r"lsi|lsi53c810|virtio-scsi-pci|virtio-scsi-single|megasas|pvscsi",
    "ostype": r"other|wxp|w2k|w2k3|w2k8|wvista|win7|win8|win10|win11|l24|l26|solaris",
    "machine": r"(pc|q35|pc-i440fx-\d+\.\d+|pc-q35-\d+\.\d+|virt)(,.*)?",
}
"""Values that are one word."""
NEW = re.compile(r"[^/:\s]+:(\d+(?:\.\d+)?)")
"""A disk that is to be made: a storage, and GiB ($NEW_DISK_RE of PVE/API2/Qemu.pm)."""


class ApiFault(Exception):
    """What Proxmox dies with: an HTTP status and words."""

    def __init__(self, status: int, words: str, errors: dict[str, str] | None = None) -> None:
        super().__init__(words)
        self.status, self.words, self.errors = status, words, errors


class Server(Protocol):
    """What is needed of the server."""

    storages: dict[str, dict[str, Any]]
    vnets: dict[str, dict[str, Any]]

    def need(self, who: str, path: str, *rights: str) -> None: ...


def check_settings(server: Server, given: dict[str, Any], who: str, path: str) -> None:
    """Refuse what Proxmox refuses of a new VM's configuration."""
    for key, value in given.items():
        if key in RANGES:
            _check_range(key, value)
        check_format(key, str(value))
        if DRIVE.fullmatch(key):
            _check_drive(server, value, who, path)
        elif right := next((r for r, keys in RIGHTS.items() if key in keys), None):
            server.need(who, path, right)
        elif key in ("affinity", "args"):
            if who != ROOT:
                raise ApiFault(500, f"only root can set '{key}' config")
        else:
            words = "property is not defined in schema and the schema does not allow additional"
            raise wrong(**{key: f"{words} properties"})
    bridge = dict(parse_qsl(given["net0"].replace(",", "&")))["bridge"]
    server.need(who, f"/sdn/zones/localnetwork/{bridge}", "SDN.Use")
    if "net1" in given:
        card = dict(parse_qsl(given["net1"].replace(",", "&")))
        vnet = card["bridge"]
        if not float(card.get("rate", "1")) > 0:
            raise wrong(net1="invalid format - rate: value must have a minimum value of 0")
        if vnet not in server.vnets:
            raise ApiFault(500, f"bridge '{vnet}' does not exist")
        server.need(who, f"/sdn/zones/{server.vnets[vnet]['zone']}/{vnet}", "SDN.Use")


def check_format(key: str, value: str) -> None:
    """Refuse a value that is not of its key's format."""
    if (word := WORDS.get(key)) is not None:
        if not re.fullmatch(word, value):
            raise wrong(**{key: f"value '{value}' does not have the format of {key}"})
        return
    kind = key.rstrip("0123456789")
    parts = FORMATS.get(key) if key == "cpu" else FORMATS.get(kind) if kind != key else None
    if parts is None:
        return
    first = next(iter(parts))
    for number, part in enumerate(value.split(",")):
        name, equals, text = part.partition("=")
        if not equals or (number == 0 and name not in parts and kind != "net"):
            name, text = first, part
        elif kind == "net" and number == 0 and re.fullmatch(_CARDS, name):
            # A model may be followed by its address: `virtio=AA:BB:…`.
            name = "macaddr"
        if name not in parts:
            raise wrong(**{key: f"invalid format - format error {key}.{name}: not defined"})
        if not re.fullmatch(parts[name], text):
            raise wrong(**{key: f"invalid format - {name}: value '{text}' is not allowed"})


def _check_range(key: str, value: Any) -> None:
    least, most = RANGES[key]
    try:
        number = float(value)
    except ValueError:
        raise wrong(**{key: "type check ('number') failed"}) from None
    if number < least:
        raise wrong(**{key: f"value must have a minimum value of {least}"})
    if number > most:
        raise wrong(**{key: f"value must have a maximum value of {most}"})


def _check_drive(server: Server, value: str, who: str, path: str) -> None:
    volume, *options = value.split(",")
    given = dict(option.split("=", 1) for option in options)
    storage = volume.partition(":")[0]
    if storage not in server.storages:
        raise ApiFault(500, f"storage '{storage}' does not exist")
    server.need(who, path, "VM.Config.CDROM" if given.get("media") == "cdrom" else "VM.Config.Disk")
    if source := given.get("import-from"):
        server.need(who, f"/storage/{storage}", "Datastore.AllocateSpace")
        if source not in server.storages[source.partition(":")[0]]["volumes"]:
            raise ApiFault(500, f"volume '{source}' does not exist")
    elif NEW.fullmatch(volume):
        server.need(who, f"/storage/{storage}", "Datastore.AllocateSpace")
        if "images" not in server.storages[storage]["content"].split(","):
            raise wrong(storage=f"storage '{storage}' does not support vm images")
    elif volume not in server.storages[storage]["volumes"]:
        raise ApiFault(500, f"volume '{volume}' does not exist")


def wrong(**errors: str) -> ApiFault:
    return ApiFault(400, "Parameter verification failed.", errors)


def parts_of(kind: str, body: bytes) -> dict[str, Any]:
    """Return the fields of a form; of a file its name and its content."""
    head = f"Content-Type: {kind}\r\n\r\n".encode()
    whole = email.message_from_bytes(head + body, policy=email.policy.HTTP)
    found: dict[str, Any] = {}
    for part in whole.iter_parts():
        name = part.get_param("name", header="content-disposition")
        content = part.get_payload(decode=True)
        assert isinstance(content, bytes)
        file = part.get_filename()
        found[str(name)] = (file, content) if file else content.decode()
    return found
