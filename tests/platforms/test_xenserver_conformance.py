"""XenServer's driver passes the cases that every platform passes; local agents play the guests."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from platforms.vendor_served import ServedCases, reached
from platforms.xenserver_server import USER, XenServer
from tare.platforms.xenserver.options import XenserverOptions
from tare.platforms.xenserver.platform import Xenserver

pytest.importorskip("XenAPI")
NAMED = XenserverOptions.model_validate({"address": "set-by-the-fixture"})
KEPT = {"tare-live.iso", "tare-live.raw"}


class Vms(ServedCases):
    killed_words = "its VM is Halted"
    bus = "2"

    @classmethod
    def begun(cls, folder: Path) -> tuple[Any, dict[str, object]]:
        server = XenServer(folder)
        return server, {**reached(server, USER, server.password), "image": "tare-live.iso"}

    @classmethod
    def number_of(cls, name: str) -> Any:
        known = cls.server.objects["VM"]
        (vm,) = (vm for vm, record in known.items() if record["name_label"] == name)
        return vm

    @classmethod
    def disk_of(cls, name: str) -> tuple[str, int]:
        objects, vm = cls.server.objects, cls.number_of(name)
        ((place, disk),) = (
            (vbd["userdevice"], vbd["VDI"])
            for vbd in objects["VBD"].values()
            # The configuration is in the place before, what boots in the first or the last.
            if vbd["VM"] == vm and vbd["userdevice"] == "2"
        )
        assert disk not in cls.server.content
        return place, int(objects["VDI"][disk]["virtual_size"])

    @classmethod
    def require_nothing_left(cls) -> None:
        objects = cls.server.objects
        left = {disk["name_label"] for disk in objects["VDI"].values()}
        assert left == KEPT and len(objects["VDI"]) == len(KEPT)
        assert all(objects[kind] == {} for kind in ("VM", "VBD", "VIF", "task"))
        assert cls.server.sessions == set()


@pytest.mark.slow
@pytest.mark.boots
class TestXenserver(Vms):
    platform = Xenserver()
    options = NAMED


@pytest.mark.acceptance
class TestXenserverFromADisk(Vms):
    platform = Xenserver()
    options = NAMED
    chosen: ClassVar[dict[str, object]] = {
        "devices": "emulated",
        "image": "tare-live.raw",
        "network_way": "given",
    }
