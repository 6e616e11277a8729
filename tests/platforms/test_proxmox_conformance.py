"""Proxmox's driver passes the cases that every platform passes; a local agent plays each guest."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import ClassVar

import pytest
import pytest_asyncio

from platforms.proxmox_schema import ROOT
from platforms.proxmox_server import Proxmox as Server
from platforms.vendor_guests import Guests
from tare.platforms.contract import Context
from tare.platforms.proxmox.options import ProxmoxOptions
from tare.platforms.proxmox.platform import Proxmox
from tare.run.session import agent_path
from tare.testing.conformance import PlatformCases
from tare.testing.hosts import Elsewhere
from tare.testing.machines import Running

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


def login(folder: Path, user: str, password: str) -> Path:
    """Write a file of credentials."""
    file = folder / "credentials"
    file.touch(0o600)
    file.write_text(f"user={user}\npassword={password}\n")
    return file


class Vms(PlatformCases):
    chosen: ClassVar[dict[str, object]] = {}
    user: ClassVar[str] = ROOT
    killed_words = "its VM is stopped"
    server: ClassVar[Server]
    guests: ClassVar[Guests]

    @pytest_asyncio.fixture(scope="class", loop_scope="module", autouse=True)
    @classmethod
    async def proxmox(cls, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
        folder = tmp_path_factory.mktemp("proxmox")
        server = Server(folder)
        guests = Guests(agent_path(), server.powered_off)
        server.plug, server.unplug = guests.plug, guests.unplug
        server.rights[TOKEN] = ALLOWED
        word = server.passwords.get(cls.user) or server.tokens[cls.user]
        cls.server, cls.guests = server, guests
        cls.options = ProxmoxOptions.model_validate(
            {
                "address": "127.0.0.1",
                "port": server.port,
                "ca": str(server.ca),
                "credentials": str(login(folder, cls.user, word)),
                "image": IMAGE,
                "pool": "tare",
                **cls.chosen,
            }
        )
        server.start()
        try:
            yield server
            # What was there before is all that is there now.
            assert server.vms == {}
            assert set(server.storages["local"]["volumes"]) == {IMAGE}
        finally:
            await guests.close()
            server.stop()

    @pytest_asyncio.fixture(scope="class", loop_scope="module")
    @classmethod
    async def elsewhere(cls, context: Context) -> AsyncIterator[Elsewhere | None]:
        yield None

    async def kill(self, running: Running) -> None:
        """End the guest as a crash of its QEMU does."""
        (number,) = (
            number
            for number, vm in self.server.vms.items()
            if vm["config"]["name"] == running.spec.name
        )
        await self.guests.end(number)


NAMED = ProxmoxOptions.model_validate({"address": "set-by-the-fixture"})


@pytest.mark.slow
class TestProxmox(Vms):
    platform = Proxmox()
    options = NAMED


@pytest.mark.acceptance
class TestProxmoxEmulatedByToken(Vms):
    platform = Proxmox()
    options = NAMED
    user = TOKEN
    chosen: ClassVar[dict[str, object]] = {"devices": "emulated", "bus": "sata", "nic": "rtl8139"}
