"""Create everything that one machine on a host needs: a folder, its files, and the VM."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tare.errors import InputError, MachineFault
from tare.platforms.contract import MachineSpec
from tare.platforms.hyperv.command import Long, PsObject, chosen, cmdlet, named, script
from tare.platforms.hyperv.cpu_groups import (
    HypervGroupResource,
    bind,
    group_details,
    require_groups,
)
from tare.platforms.hyperv.network import adapter_address
from tare.platforms.hyperv.options import AUTO, HypervOptions
from tare.platforms.hyperv.server import Server, same_path, within
from tare.platforms.hyperv.session import HypervSession
from tare.platforms.vendors.isolated_network import IsolatedNic
from tare.platforms.vendors.own_disk import Bus
from tare.platforms.vendors.platform import VmRequest, require_cpus
from tare.platforms.vendors.resource import ServerResource
from tare.platforms.vendors.session import NoSuchObject

CONFIGURATION, ISO, OWN = "tare-cfg.iso", ".iso", "disk.vhdx"
WRITE = "param([string]$Path, [byte[]]$Bytes) [IO.File]::WriteAllBytes($Path, $Bytes)"
"""No cmdlet writes bytes to a file. The script's text is constant; its values are parameters."""
TEMPLATE = "MicrosoftUEFICertificateAuthority"
IDE, SECOND = 1, 1
"""The controller and location of the second DVD drive in generation 1: both drives are on IDE 1."""

BUSES = {
    "paravirtual": Bus("SCSI, synthetic", frozenset({"hv_storvsc"})),
    "emulated": Bus(
        "IDE",
        frozenset({"ata_piix"}),
        # # Otherwise the disk appears on both buses, and is found twice (Linux's
        # drivers/ata/ata_piix.c).
        "boot an image that leaves it to IDE: tare image live --append ata_piix.prefer_ms_hyperv=0 "
        "--append module_blacklist=hv_storvsc",
    ),
}
"""The bus of a VM's own disk, by the arm's `devices`."""
PLACES: Mapping[str, Mapping[str, Any]] = {
    "paravirtual": {"ControllerType": "SCSI"},
    "emulated": {"ControllerType": "IDE", "ControllerNumber": 0, "ControllerLocation": 1},
}
"""The position of a VM's own disk, by `devices`; in generation 1, the boot disk is at IDE 0:0."""


@dataclass(frozen=True)
class VmLocation:
    """The location in which a VM is created.

    Args:
        host: The host's properties.
        folder: The folder in which the VM gets its own folder.
        switch: The virtual switch, by name.
    """

    host: PsObject
    folder: str
    switch: str


class HypervVmResource(ServerResource[HypervSession]):
    """A VM with its folder.

    A VM is Tare's if it has the name and its files are in that folder. The name alone is not
    enough, because Hyper-V lets several VMs have the same name.
    """

    kind = "hyperv-vm"
    # A file of a VM that was just switched off remains open for a moment.
    busy = ("RemoveFileSystemItemIOError", "InvalidState")

    @property
    def words(self) -> str:
        """A phrase that names the VM."""
        return f"the VM {self.name} with its folder"

    @property
    def _folder(self) -> str:
        return str(self.details["folder"])

    async def exists(self) -> bool:
        """Return whether the VM or its folder exists."""
        server = Server(self.session)
        is_vm = bool(await server.own(self.name, self._folder))
        return is_vm or await server.has(within(self._folder, self.name), "Container")

    async def remove(self) -> None:
        """Remove the VM, then its folder."""
        server = Server(self.session)
        for vm in await server.own(self.name, self._folder):
            with contextlib.suppress(NoSuchObject):
                await server.power_off(vm)
                await server.discard(vm)
        await server.remove_folder(within(self._folder, self.name))


class VmBuilder:
    """Creates VMs, with their disks and network cards.

    Args:
        server: The host.
        options: The arm's options.
    """

    def __init__(self, server: Server, options: HypervOptions) -> None:
        self._server = server
        self._options = options
        self.vm = uuid.UUID(int=0)
        """The id of the VM that was created."""
        self.group: uuid.UUID | None = None
        """The id of the CPU group that confines the VM; None: it is not confined."""

    async def locate(self) -> VmLocation:
        """Find everything that the options name.

        Raises:
            InputError: Something is missing, or not visible to the account.
        """
        options, server = self._options, self._server
        host = await server.host()
        folder = options.folder or host.text("VirtualMachinePath").rstrip("\\")
        if not await server.has(folder, "Container"):
            raise InputError(
                f"{server.session.name} shows this account no folder {folder}",
                "make it and let the account write there, or name another by `folder`",
            )
        if options.image is not None and not await server.has(options.image, "Leaf"):
            raise InputError(
                f"{server.session.name} shows this account no file {options.image}",
                "correct `image`, or let the account read it",
            )
        return VmLocation(host, folder, await server.switch(options.switch))

    async def require_free(self, name: str, location: VmLocation) -> None:
        """Check that no VM or folder has the name, because Hyper-V would create a second VM."""
        server, home = self._server, within(location.folder, name)
        if await server.called(name):
            raise MachineFault(f"{server.session.name} has a VM called {name} already")
        if await server.has(home, "Any"):
            raise MachineFault(f"{server.session.name} has {home} already")

    async def confine(
        self, request: VmRequest[HypervOptions], location: VmLocation, facts: Mapping[str, Any]
    ) -> tuple[int, ...]:
        """Create the CPU group of a machine, if it gets one, and return its processors.

        Raises:
            TareError: The host has no such processor, or no CPU groups.
        """
        spec = request.spec
        optional = self._options.cpu_groups == AUTO
        processors = tuple(sorted(set(spec.cpus or (() if optional else spec.within))))
        if not self._options.cpu_groups or not processors:
            return ()
        require_groups(facts)
        there = location.host.number("LogicalProcessorCount") or 0
        instead = "plan again: the host has fewer CPUs than when it was planned"
        require_cpus(processors, there, "the host", instead)
        self.group = uuid.uuid4()
        details = group_details(request.details, self.group, processors)
        await request.create(HypervGroupResource(self._server.session, details))
        return processors

    async def build(self, request: VmRequest[HypervOptions], location: VmLocation) -> None:
        """Create the VM, switched off, in a folder of its own; :attr:`vm` is its id."""
        options, session, spec = self._options, self._server.session, request.spec
        home = within(location.folder, spec.name)
        await session.run(cmdlet("New-Item", Path=home, ItemType="Directory"), chosen("Name"))
        disc = within(home, CONFIGURATION)
        await session.run(script(WRITE, Path=disc, Bytes=request.image))
        image = str(options.image)
        boots: dict[str, Any] = {"NoVHD": True, "BootDevice": "CD"}
        if not image.lower().endswith(ISO):
            # A VM writes to its boot disk; with a child disk, reads would go through the parent.
            copy = within(home, f"boot{image[image.rindex('.') :].lower()}")
            await session.run(cmdlet("Copy-Item", LiteralPath=image, Destination=copy))
            # In generation 1 the controller is IDE (documentation of New-VM).
            boots = {"VHDPath": copy, "BootDevice": "VHD"}
        made = await session.run(
            cmdlet(
                "New-VM",
                Name=spec.name,
                Generation=options.generation,
                MemoryStartupBytes=Long(spec.shape.memory),
                Path=location.folder,
                **boots,
            ),
            chosen("Id", "Path"),
        )
        self.vm = vm = uuid.UUID(made[0].text("Id"))
        if not same_path(made[0].text("Path"), home):
            # In another folder the VM would not be recognised as Tare's, and would not be removed.
            await self._server.discard(vm)
            raise MachineFault(f"its files are in {made[0].text('Path')}, and not in {home}")
        await self._set(vm, spec)
        if self.group is not None:
            await bind(session, vm, self.group)
        await self._connect(vm, location.switch)
        if request.isolated is not None:
            await self._add_card(vm, request.isolated.network, request.isolated.mac)
            await self._limit(vm, request.isolated)
        await self._insert(vm, disc)
        if request.disk is not None:
            await self._give(vm, within(home, OWN), request.disk.size)

    async def _give(self, vm: uuid.UUID, path: str, size: int) -> None:
        """Create an empty, fully allocated disk, and attach it."""
        made = cmdlet("New-VHD", Path=path, SizeBytes=Long(size), Fixed=True)
        await self._server.session.run(made, chosen("Path"))
        place = PLACES[self._options.devices]
        await self._server.of(vm, cmdlet("Add-VMHardDiskDrive", Path=path, **place))

    async def _set(self, vm: uuid.UUID, spec: MachineSpec) -> None:
        options, server = self._options, self._server
        await server.of(
            vm,
            cmdlet(
                "Set-VM",
                StaticMemory=True,
                # Nothing, such as a backup, may create checkpoints.
                CheckpointType="Disabled",
                AutomaticStartAction="Nothing",
                AutomaticStopAction="TurnOff",
                Notes="a machine of Tare's, removed when it was measured",
            ),
        )
        processor = options.processor(spec.role, spec.shape.vcpus)
        longs = {name: processor[name] for name in ("Count", "Maximum", "Reserve")}
        await server.of(
            vm,
            cmdlet(
                "Set-VMProcessor",
                RelativeWeight=processor["RelativeWeight"],
                **{name: Long(value) for name, value in longs.items()},
            ),
        )
        if options.generation == 2:
            secured = {"SecureBootTemplate": TEMPLATE} if options.secure_boot else {}
            state = "On" if options.secure_boot else "Off"
            await server.of(vm, cmdlet("Set-VMFirmware", EnableSecureBoot=state, **secured))

    async def _connect(self, vm: uuid.UUID, switch: str) -> None:
        """Remove the network card that the VM has by default, and add the requested one."""
        server = self._server
        await server.of(
            vm, cmdlet("Get-VMNetworkAdapter"), cmdlet("Remove-VMNetworkAdapter", Confirm=False)
        )
        await self._add_card(vm, switch)

    async def _add_card(self, vm: uuid.UUID, switch: str, mac: str = "") -> None:
        """Add a network card of the arm's kind; if the address is empty, the host chooses it."""
        parameters: dict[str, Any] = {"SwitchName": switch}
        if self._options.devices == "emulated":
            parameters["IsLegacy"] = True
        if mac:
            parameters["StaticMacAddress"] = adapter_address(mac)
        await self._server.of(vm, cmdlet("Add-VMNetworkAdapter", **parameters))

    async def _limit(self, vm: uuid.UUID, card: IsolatedNic) -> None:
        """Limit the card's sending rate, if it has a limit."""
        if card.rate is not None:
            await self._server.of(
                vm,
                cmdlet("Get-VMNetworkAdapter"),
                named(card.network, by="SwitchName"),
                cmdlet("Set-VMNetworkAdapter", MaximumBandwidth=Long(round(card.rate))),
            )

    async def _insert(self, vm: uuid.UUID, disc: str) -> None:
        """Insert the configuration, and the image if it is a CD, into DVD drives."""
        options, server = self._options, self._server
        if options.image is not None and options.image.lower().endswith(ISO):
            await server.of(
                vm, cmdlet("Get-VMDvdDrive"), cmdlet("Set-VMDvdDrive", Path=options.image)
            )
        place: dict[str, int] = {}
        if options.generation == 1:
            place = {"ControllerNumber": IDE, "ControllerLocation": SECOND}
        await server.of(vm, cmdlet("Add-VMDvdDrive", Path=disc, **place))
