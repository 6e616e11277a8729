"""VSphere passes the cases that every platform passes: the real driver and govmomi's simulator.

The simulator boots nothing, so a local agent replaces each guest: it reads the image that the
driver has uploaded and attached, and dials back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import ClassVar

import pytest
import pytest_asyncio

from platforms.loopback_cases import LoopbackCases
from platforms.vendor_served import NO_DISK
from platforms.vsphere_simulated import Simulator, booting, simulator, types
from tare.platforms.contract import Shape
from tare.platforms.vsphere.options import VsphereOptions
from tare.platforms.vsphere.platform import Vsphere
from tare.run.lifecycle.session import agent_path
from tare.testing.hosts import SecondHost
from tare.testing.machines import Machines, RunningMachine

UNSET = VsphereOptions(address="set-by-the-fixture", datastore="set-by-the-fixture")


class Simulated(LoopbackCases):
    chosen: ClassVar[dict[str, object]] = {}
    esx: ClassVar[bool] = False
    there: ClassVar[Simulator]
    killed_words = "it is powered off"
    options = UNSET

    @pytest_asyncio.fixture(scope="class", loop_scope="module", autouse=True)
    @classmethod
    async def server(cls) -> AsyncIterator[Simulator]:
        with simulator(esx=cls.esx) as running:
            cls.there = running
            cls.options = running.options(**cls.chosen)
            async with booting(running, agent_path()):
                yield running
            assert running.left() == []

    @pytest.fixture(scope="class")
    @classmethod
    def elsewhere(cls) -> SecondHost | None:
        """None: a second host would be a second ESXi, on the same network as the first."""
        return None

    controller: ClassVar[str]
    """What the server is to attach a disk to."""

    async def test_disk(self, machines: Machines, shape: Shape) -> None:
        """The server makes it as asked for."""
        running = await machines.subject()

        def disks() -> list[tuple[str, int]]:
            device = types().vim.vm.device
            with self.there.client() as client:
                (vm,) = (vm for vm in self.there.machines(client) if vm.name == running.spec.name)
                found = vm.config.hardware.device
                names = {each.key: type(each).__name__.rpartition(".")[2] for each in found}
                return [
                    (names[each.controllerKey], each.capacityInBytes)
                    for each in found
                    if isinstance(each, device.VirtualDisk)
                ]

        assert await asyncio.to_thread(disks) == [(self.controller, shape.disk)]
        assert await running.machine.forget_disk()
        pytest.skip(NO_DISK)

    async def kill(self, running: RunningMachine) -> None:
        """Switch the virtual machine off from outside, as its owner may."""

        def off() -> None:
            with self.there.client() as client:
                for vm in self.there.machines(client):
                    if vm.name == running.machine.name:
                        vm.PowerOffVM_Task()

        await asyncio.to_thread(off)


class TestVsphere(Simulated):
    platform = Vsphere()
    options = UNSET
    controller = "ParaVirtualSCSIController"
    chosen: ClassVar[dict[str, object]] = {"reservation": 100, "limit": 2000, "shares": 500}


class TestEsxi(Simulated):
    platform = Vsphere()
    options = UNSET
    controller = "VirtualLsiLogicController"
    esx = True
    chosen: ClassVar[dict[str, object]] = {
        "devices": "emulated",
        "hardware": 13,
        "network_way": "given",
    }
