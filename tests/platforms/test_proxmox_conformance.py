"""Proxmox's driver passes the cases that every platform passes; a local agent plays each guest."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from platforms.proxmox_schema import ROOT
from platforms.proxmox_server import Proxmox as Server
from platforms.vendor_served import ServedCases, reached
from tare.platforms.proxmox.options import ProxmoxOptions
from tare.platforms.proxmox.platform import Proxmox

pytest.importorskip("proxmoxer")
TOKEN = "tare@pve!runs"
IMAGE = "local:iso/tare-live.iso"
ALLOWED = {
    "/pool/tare": {
        *("VM.Allocate", "VM.Audit", "VM.PowerMgmt", "VM.Config.CDROM", "VM.Config.CPU"),
        *("VM.Config.Disk", "VM.Config.HWType", "VM.Config.Memory", "VM.Config.Network"),
        "VM.Config.Options",
    },
    "/storage/local": {"Datastore.AllocateTemplate", "Datastore.Allocate", "Datastore.Audit"},
    "/storage/fast": {"Datastore.AllocateSpace", "Datastore.Audit"},
    "/sdn/zones/localnetwork/vmbr0": {"SDN.Use"},
    "/nodes/pve": {"Sys.Audit"},
}


class Vms(ServedCases):
    user: ClassVar[str] = ROOT
    killed_words = "its VM is stopped"

    @classmethod
    def begun(cls, folder: Path) -> tuple[Any, dict[str, object]]:
        server = Server(folder)
        server.rights[TOKEN] = ALLOWED
        word = server.passwords.get(cls.user) or server.tokens[cls.user]
        return server, {**reached(server, cls.user, word), "image": IMAGE, "pool": "tare"}

    @classmethod
    def number_of(cls, name: str) -> Any:
        (number,) = (
            number for number, vm in cls.server.vms.items() if vm["config"]["name"] == name
        )
        return number

    @classmethod
    def disk_of(cls, name: str) -> tuple[str, int]:
        config = cls.server.vms[cls.number_of(name)]["config"]
        ((bus, size),) = (
            (key, value.rpartition("size=")[2])
            for key, value in config.items()
            if "size=" in str(value)
        )
        return bus, int(size.removesuffix("K")) << 10

    @classmethod
    def require_nothing_left(cls) -> None:
        assert cls.server.vms == {}
        assert cls.server.storages["fast"]["volumes"] == {}
        assert set(cls.server.storages["local"]["volumes"]) == {IMAGE}


NAMED = ProxmoxOptions.model_validate({"address": "set-by-the-fixture"})


@pytest.mark.slow
@pytest.mark.boots
class TestProxmox(Vms):
    platform = Proxmox()
    options = NAMED
    bus = "scsi1"
    chosen: ClassVar[dict[str, object]] = {"disks": "fast", "network_way": "given"}


@pytest.mark.acceptance
class TestProxmoxEmulatedByToken(Vms):
    platform = Proxmox()
    options = NAMED
    user = TOKEN
    bus = "sata1"
    chosen: ClassVar[dict[str, object]] = {
        "devices": "emulated",
        "bus": "sata",
        "nic": "rtl8139",
        "disks": "fast",
    }
