"""Proxmox's driver passes every platform's cases with guests that boot: QEMU, and the live image.

The server stands for Proxmox VE; what it makes of a VM's configuration is in
:mod:`platforms.live_qemu`. So a machine's own disk is one, formatted and worked on in the guest.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import pytest_asyncio

from images.live_guest import make_disc
from platforms.live_qemu import LiveGuests
from platforms.proxmox_schema import ROOT
from platforms.proxmox_server import Proxmox as Server
from platforms.test_vendor_disks import IMAGE
from platforms.vendor_served import reached
from tare.images.live.disc import TOOLS
from tare.platforms.contract import Context
from tare.platforms.proxmox.options import ProxmoxOptions
from tare.platforms.proxmox.platform import Proxmox
from tare.testing.conformance import PlatformCases
from tare.testing.hosts import SecondHost
from tare.testing.machines import RunningMachine

pytest.importorskip("proxmoxer")
pytestmark = [
    pytest.mark.guest,
    pytest.mark.slow,
    pytest.mark.acceptance,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        any(shutil.which(tool) is None for tool in (*TOOLS, "qemu-system-x86_64")),
        reason="xorriso, mtools or QEMU is not installed",
    ),
]
BOOT_S = 600.0


class TestProxmoxOfLiveGuests(PlatformCases):
    platform = Proxmox()
    options = ProxmoxOptions.model_validate({"address": "set-by-the-fixture"})
    patience_s = BOOT_S
    killed_words = "its VM is stopped"
    there: ClassVar[Server]
    guests: ClassVar[LiveGuests]

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def served(
        cls, agent_program: Path, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[None]:
        folder = tmp_path_factory.mktemp("served")
        server = cls.there = Server(folder)
        server.storages["local"]["volumes"][IMAGE] = b"live"
        guests = cls.guests = LiveGuests(
            server, make_disc(agent_program, folder / "tare.iso", "base"), folder
        )
        server.plug, server.unplug = guests.plug, guests.unplug
        settings: dict[str, Any] = {"image": IMAGE, "disks": "fast", "kvm": False, "cpu": "max"}
        way = reached(server, ROOT, server.passwords[ROOT])
        cls.options = ProxmoxOptions.model_validate({**way, **settings})
        server.start()
        try:
            yield
            assert server.vms == {} and server.storages["fast"]["volumes"] == {}
        finally:
            print(guests.console_words())
            guests.close()
            server.stop()

    @pytest_asyncio.fixture(scope="class", loop_scope="module")
    @classmethod
    async def elsewhere(cls, context: Context) -> AsyncIterator[SecondHost | None]:
        yield None

    async def kill(self, running: RunningMachine) -> None:
        """End the guest as a crash of its QEMU does."""
        (number,) = (
            number
            for number, vm in self.there.vms.items()
            if vm["config"]["name"] == running.spec.name
        )
        await asyncio.to_thread(self.guests.unplug, number)
