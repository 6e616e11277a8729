"""XenServer's driver passes the cases that every platform passes; local agents play the guests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import ClassVar

import pytest
import pytest_asyncio

from platforms.test_proxmox_conformance import login
from platforms.vendor_guests import Guests
from platforms.xenserver_server import USER, XenServer
from tare.platforms.contract import Context
from tare.platforms.xenserver.options import XenserverOptions
from tare.platforms.xenserver.platform import Xenserver
from tare.run.session import agent_path
from tare.testing.conformance import PlatformCases
from tare.testing.hosts import Elsewhere
from tare.testing.machines import Running

pytest.importorskip("XenAPI")
NAMED = XenserverOptions.model_validate({"address": "set-by-the-fixture"})
KEPT = {"tare-live.iso", "tare-live.raw"}


class Vms(PlatformCases):
    chosen: ClassVar[dict[str, object]] = {}
    killed_words = "its VM is Halted"
    server: ClassVar[XenServer]
    guests: ClassVar[Guests]

    @pytest_asyncio.fixture(scope="class", loop_scope="module", autouse=True)
    @classmethod
    async def xenserver(cls, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[XenServer]:
        folder = tmp_path_factory.mktemp("xenserver")
        server = XenServer(folder)
        guests = Guests(agent_path(), server.powered_off)
        server.plug, server.unplug = guests.plug, guests.unplug
        cls.server, cls.guests = server, guests
        cls.options = XenserverOptions.model_validate(
            {
                "address": "127.0.0.1",
                "port": server.port,
                "ca": str(server.ca),
                "credentials": str(login(folder, USER, server.password)),
                "image": "tare-live.iso",
                **cls.chosen,
            }
        )
        server.start()
        try:
            yield server
            # What was there before is all that is there now.
            left = {disk["name_label"] for disk in server.objects["VDI"].values()}
            assert left == KEPT and len(server.objects["VDI"]) == len(KEPT)
            assert all(server.objects[kind] == {} for kind in ("VM", "VBD", "VIF", "task"))
            assert server.sessions == set()
        finally:
            await guests.close()
            server.stop()

    @pytest_asyncio.fixture(scope="class", loop_scope="module")
    @classmethod
    async def elsewhere(cls, context: Context) -> AsyncIterator[Elsewhere | None]:
        yield None

    async def kill(self, running: Running) -> None:
        """End the guest as a crash of it does."""
        (vm,) = (
            vm
            for vm, record in self.server.objects["VM"].items()
            if record["name_label"] == running.spec.name
        )
        await self.guests.end(vm)


@pytest.mark.slow
class TestXenserver(Vms):
    platform = Xenserver()
    options = NAMED


@pytest.mark.acceptance
class TestXenserverFromADisk(Vms):
    platform = Xenserver()
    options = NAMED
    chosen: ClassVar[dict[str, object]] = {"devices": "emulated", "image": "tare-live.raw"}
