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
