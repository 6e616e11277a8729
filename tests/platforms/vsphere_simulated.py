"""Govmomi's simulator of ESXi and vCenter, and what a guest's firmware would do in it."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib
import json
import os
import shutil
import ssl
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from platforms.guest_networks import Card, GuestNetworks
from tare.images.cache import default_cache
from tare.platforms.vendors.configuration import read_configuration
from tare.platforms.vsphere.inventory import find_all
from tare.platforms.vsphere.options import VsphereOptions
from tare.testing.simulated_guest import LocalGuest

SOURCE = Path(__file__).parent / "vsphere_simulator"
PASSWORD = "planted-vsphere-password"
USER = "tare-measures"
BUILD_S = 540.0
PLACES = {
    False: {"datastore": "LocalDS_0", "host": "DC0_H0", "network": "VM Network"},
    True: {"datastore": "LocalDS_0", "network": "VM Network"},
}
"""Names in the simulator's inventory, by whether it is one ESXi host."""


def types() -> Any:
    """Return the API's types."""
    return importlib.import_module("pyVmomi")


def program() -> Path:
    """Return the simulator, built by the ordinary go; skips the test where it cannot be."""
    pytest.importorskip("pyVmomi", reason="pip install 'hypertare[vsphere]'")
    go = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
    if go is None:
        pytest.skip("Go, which builds the simulator, is not installed")
    sources = [SOURCE / name for name in ("main.go", "go.mod", "go.sum")]
    digest = hashlib.sha256(b"".join(each.read_bytes() for each in sources)).hexdigest()[:16]
    built = default_cache() / "tests" / f"vsphere-simulator-{digest}"
    if not built.exists():
        built.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=built.parent) as folder:
            made = Path(folder) / "simulator"
            done = subprocess.run(
                [go, "build", "-o", made, "."],
                cwd=SOURCE,
                capture_output=True,
                text=True,
                timeout=BUILD_S,
            )
            if done.returncode:
                pytest.skip(f"the simulator cannot be built: {done.stderr.strip()[-300:]}")
            made.rename(built)
    return built


@dataclass
class Simulator:
    """A simulator that runs.

    Args:
        process: It.
        port: Where it answers on loopback.
        folder: Where its certificate and the credentials are.
        esx: Whether it is one ESXi host.
    """

    process: subprocess.Popen[str]
    port: int
    folder: Path
    esx: bool

    def options(self, **more: object) -> VsphereOptions:
        """Return an arm's options for it."""
        return VsphereOptions.model_validate(
            {
                "address": "127.0.0.1",
                "port": self.port,
                "ca": str(self.folder / "ca.pem"),
                "credentials": str(self.folder / "credentials"),
                "power_off": 5.0,
                **PLACES[self.esx],
                **more,
            }
        )

    def order(self, **what: object) -> None:
        """Set what it refuses or cuts."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        assert json.loads(self.process.stdout.readline()) == {"done": what["do"]}

    def refuse(self, method: str, fault: str, count: int = 1, delay: int = 0) -> None:
        """Refuse a method from now on, so many times (0: always), after so many ms."""
        self.order(do="refuse", method=method, fault=fault, count=count, delay=delay)

    @contextmanager
    def client(self) -> Iterator[Any]:
        """Log in next to Tare, as the machine's owner would."""
        connect: Any = importlib.import_module("pyVim.connect")
        context = ssl.create_default_context(cafile=str(self.folder / "ca.pem"))
        there = connect.SmartConnect(
            host="127.0.0.1", port=self.port, user=USER, pwd=PASSWORD, sslContext=context
        )
        try:
            yield there
        finally:
            connect.Disconnect(there)

    def machines(self, client: Any) -> list[Any]:
        """Return Tare's virtual machines."""
        found = []
        for vm in find_all(client, types().vim.VirtualMachine):
            # One that was listed may be gone by now.
            with contextlib.suppress(types().vmodl.fault.ManagedObjectNotFound):
                if vm.name.startswith("tare-"):
                    found.append(vm)
        return found

    def hosts(self, client: Any) -> list[Any]:
        """Return the ESXi hosts."""
        return find_all(client, types().vim.HostSystem)

    def left(self) -> list[str]:
        """Return what is left of Tare's: virtual machines, switches, and files on datastores."""
        with self.client() as client:
            found = [str(vm) for vm in self.machines(client)]
            for host in self.hosts(client):
                network = host.configManager.networkSystem.networkInfo
                names = [each.name for each in network.vswitch]
                names += [each.spec.name for each in network.portgroup]
                found += [name for name in names if name.startswith("tare-")]
            for datastore in find_all(client, types().vim.Datastore):
                found += map(str, Path(datastore.summary.url).rglob("tare-*"))
        return found


@contextmanager
def simulator(*, esx: bool = False) -> Iterator[Simulator]:
    """Run a simulator that nobody else uses."""
    with tempfile.TemporaryDirectory(prefix="tare-test-vsphere-") as folder:
        place = Path(folder)
        process = subprocess.Popen(
            [str(program()), *(["-esx"] if esx else []), "-user", USER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "SIMULATOR_PASSWORD": PASSWORD, "TMPDIR": folder},
        )
        try:
            assert process.stdout is not None
            way = json.loads(process.stdout.readline())
            (place / "ca.pem").write_text(way["certificate"])
            secret = place / "credentials"
            secret.touch(0o600)
            secret.write_text(f"user={USER}\npassword={PASSWORD}\n")
            yield Simulator(process, int(way["port"]), place, esx)
        finally:
            process.kill()
            process.wait()


class Firmware:
    """Boots a local guest for each virtual machine that is switched on, from what is attached.

    Args:
        simulated: The simulator.
        agent: The agent's program.
        networks: Gives each guest the network cards that its VM has; None: guests have this
            computer's own network.
    """

    def __init__(
        self, simulated: Simulator, agent: Path, networks: GuestNetworks | None = None
    ) -> None:
        self._simulated = simulated
        self._agent = agent
        self._networks = networks
        self._guests: dict[str, LocalGuest] = {}
        self.keys: set[str] = set()
        """The secret keys of all machines that were booted."""

    async def follow(self) -> None:
        """Do as the virtual machines' power says, for ever."""
        with self._simulated.client() as client:
            while True:
                on = await asyncio.to_thread(self._powered, client)
                for name, images in on.items():
                    if name not in self._guests:
                        self.keys |= {
                            known["key"] for each in images if (known := read_configuration(each))
                        }
                        self._guests[name] = await self._made(client, name)
                        await self._guests[name].boot(images)
                    elif not self._guests[name].runs:
                        # As a guest that has powered itself off.
                        await asyncio.to_thread(self._off, client, name)
                for name in set(self._guests) - set(on):
                    await self._end(name, self._guests.pop(name))
                await asyncio.sleep(0.1)

    async def end(self) -> None:
        """End all guests."""
        for name, guest in self._guests.items():
            await self._end(name, guest)

    async def _made(self, client: Any, name: str) -> LocalGuest:
        if self._networks is None:
            return LocalGuest(self._agent)
        cards = await asyncio.to_thread(self._cards, client, name)
        around = await self._networks.create(name, cards)
        return LocalGuest(self._agent, around, self._networks.environment)

    async def _end(self, name: str, guest: LocalGuest) -> None:
        await guest.end()
        if self._networks is not None:
            await self._networks.remove(name)

    def _cards(self, client: Any, name: str) -> list[Card]:
        """Return a VM's network cards, in the order of its devices."""
        (vm,) = (each for each in self._simulated.machines(client) if each.name == name)
        own = PLACES[self._simulated.esx]["network"]
        return [
            Card(
                "" if each.backing.deviceName == own else each.backing.deviceName,
                type(each).__name__.rpartition(".")[2],
                each.macAddress if each.addressType.lower() == "manual" else "",
            )
            for each in vm.config.hardware.device
            if isinstance(each, types().vim.vm.device.VirtualEthernetCard)
        ]

    def _powered(self, client: Any) -> dict[str, list[bytes]]:
        vim, vmodl = types().vim, types().vmodl
        found: dict[str, list[bytes]] = {}
        for vm in self._simulated.machines(client):
            with contextlib.suppress(vmodl.fault.ManagedObjectNotFound, OSError):
                if vm.runtime.powerState != "poweredOn":
                    continue
                stores = {each.name: each.summary.url for each in vm.datastore}
                disks = [
                    each.backing.fileName
                    for each in vm.config.hardware.device
                    if isinstance(each, vim.vm.device.VirtualCdrom) and each.connectable.connected
                ]
                images = [_file(stores, each).read_bytes() for each in disks]
                # It may have been switched off during this check.
                if vm.runtime.powerState == "poweredOn":
                    found[vm.name] = images
        return found

    def _off(self, client: Any, name: str) -> None:
        for vm in self._simulated.machines(client):
            with contextlib.suppress(types().vmodl.fault.ManagedObjectNotFound):
                if vm.name == name:
                    vm.PowerOffVM_Task()


def _file(stores: dict[str, str], named: str) -> Path:
    store, _, path = named.removeprefix("[").partition("] ")
    return Path(stores[store]) / path


@asynccontextmanager
async def booting(
    simulated: Simulator, agent: Path, networks: GuestNetworks | None = None
) -> AsyncIterator[Firmware]:
    """Play firmware in a simulator."""
    firmware = Firmware(simulated, agent, networks)
    task = asyncio.create_task(firmware.follow())
    try:
        yield firmware
    finally:
        task.cancel()
        ended = (await asyncio.gather(task, return_exceptions=True))[0]
        await firmware.end()
        if isinstance(ended, Exception):
            raise ended
