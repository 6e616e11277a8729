"""oVirt's driver passes the cases that every platform passes; local agents play the guests."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from platforms.ovirt_server import USER, OvirtServer
from platforms.vendor_served import ServedCases, reached
from tare.platforms.ovirt.options import OvirtOptions
from tare.platforms.ovirt.platform import Ovirt

pytest.importorskip("ovirtsdk4")
NAMED = OvirtOptions.model_validate({"address": "set-by-the-fixture"})


class Vms(ServedCases):
    killed_words = "its VM is down"

    @classmethod
    def begun(cls, folder: Path) -> tuple[Any, dict[str, object]]:
        server = OvirtServer(folder)
        return server, {**reached(server, USER, server.password), "image": "tare-live.iso"}

    @classmethod
    def number_of(cls, name: str) -> Any:
        (vm,) = (key for key, vm in cls.server.vms.items() if vm.name == name)
        return vm

    @classmethod
    def disk_of(cls, name: str) -> tuple[str, int]:
        attached = cls.server.attached[cls.number_of(name)]
        (own,) = (each for each in attached if not each.bootable)
        disk = cls.server.disks[own.disk.id]
        assert disk.sparse is False and disk.storage_domains[0].id == "s1"
        return str(own.interface), disk.provisioned_size

    @classmethod
    def require_nothing_left(cls) -> None:
        assert cls.server.left == []
        assert cls.server.tokens == set()


@pytest.mark.slow
@pytest.mark.boots
class TestOvirt(Vms):
    platform = Ovirt()
    options = NAMED
    bus = "virtio"


@pytest.mark.acceptance
class TestOvirtFromADisk(Vms):
    platform = Ovirt()
    options = NAMED
    bus = "sata"
    chosen: ClassVar[dict[str, object]] = {
        "devices": "emulated",
        "image": "tare-live.raw",
        "network_way": "given",
    }
