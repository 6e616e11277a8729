"""Hyper-V's driver passes the cases that every platform passes; local agents play the guests."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

pytest.importorskip("pypsrp")
pytest.importorskip("psrpcore")

from platforms.hyperv_host import DISK, IMAGE, USER
from platforms.hyperv_server import HypervServer
from platforms.vendor_served import ServedCases, reached
from tare.platforms.hyperv.options import HypervOptions
from tare.platforms.hyperv.platform import Hyperv

NAMED = HypervOptions.model_validate({"address": "set-by-the-fixture"})


class Vms(ServedCases):
    killed_words = "its VM is Off"
    bus = "SCSI"

    @classmethod
    def begun(cls, folder: Path) -> tuple[Any, dict[str, object]]:
        server = HypervServer(folder)
        return server, {**reached(server, USER, server.password), "image": IMAGE}

    @classmethod
    def number_of(cls, name: str) -> Any:
        (vm,) = (vm.id for vm in cls.server.host.vms.values() if vm.name == name)
        return vm

    @classmethod
    def disk_of(cls, name: str) -> tuple[str, int]:
        host = cls.server.host
        ((bus, path),) = host.vms[cls.number_of(name)].added
        held = host.files[path.lower()].decode()
        return bus, int(held.removeprefix("an empty disk of ").removesuffix(" bytes"))

    @classmethod
    def require_nothing_left(cls) -> None:
        assert cls.server.left == []
        assert cls.server.shells == {}


@pytest.mark.slow
@pytest.mark.boots
class TestHyperv(Vms):
    platform = Hyperv()
    options = NAMED


@pytest.mark.acceptance
class TestHypervEmulatedFromADisk(Vms):
    platform = Hyperv()
    options = NAMED
    bus = "IDE"
    chosen: ClassVar[dict[str, object]] = {"devices": "emulated", "image": DISK}


@pytest.mark.acceptance
class TestHypervGeneration2FromADisk(Vms):
    platform = Hyperv()
    options = NAMED
    chosen: ClassVar[dict[str, object]] = {
        "generation": 2,
        "image": DISK,
        "network_way": "given",
    }
