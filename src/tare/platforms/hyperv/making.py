"""What is made for one machine on a host: a folder, its files, and the VM."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tare.errors import InputError, MachineFault
from tare.platforms.contract import MachineSpec
from tare.platforms.hyperv.command import Long, Told, chosen, cmdlet, script
from tare.platforms.hyperv.options import HypervOptions
from tare.platforms.hyperv.server import Server, same_path, within
from tare.platforms.vendors.own_disk import Bus, OwnDisk

CONFIGURATION, ISO, OWN = "tare-cfg.iso", ".iso", "disk.vhdx"
WRITE = "param([string]$Path, [byte[]]$Bytes) [IO.File]::WriteAllBytes($Path, $Bytes)"
"""The one thing that no cmdlet does: its text is always this, and its values are parameters."""
TEMPLATE = "MicrosoftUEFICertificateAuthority"
IDE, SECOND = 1, 1
"""Generation 1: its DVD drives are the two places of its second IDE controller."""

BUSES = {
    "paravirtual": Bus("SCSI, synthetic", frozenset({"hv_storvsc"})),
    "emulated": Bus(
        "IDE",
        frozenset({"ata_piix"}),
        # Such a disk shows on both, and would be found twice (the kernel's drivers/ata/ata_piix.c).
        "boot an image that leaves it to IDE: tare image live --append ata_piix.prefer_ms_hyperv=0 "
        "--append module_blacklist=hv_storvsc",
    ),
}
"""How a VM's own disk is attached, by the arm's `devices`."""
PLACES: Mapping[str, Mapping[str, Any]] = {
    "paravirtual": {"ControllerType": "SCSI"},
    "emulated": {"ControllerType": "IDE", "ControllerNumber": 0, "ControllerLocation": 1},
}
"""Where it is attached: what boots from a disk of generation 1 is in the first place of IDE."""


@dataclass(frozen=True)
class Ground:
    """Where a VM is made.

    Args:
        host: What the host is.
        folder: The folder in which the VM's own is.
        switch: The virtual switch, by name.
    """

    host: Told
    folder: str
    switch: str


class Making:
    """Makes a VM with what is attached to it.

    Args:
        server: Where.
        options: The arm's options.
    """

    def __init__(self, server: Server, options: HypervOptions) -> None:
        self._server = server
        self._options = options

    async def look(self) -> Ground:
        """Find all that the options name.

        Raises:
            InputError: Something is not there, or not shown to the account.
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
        return Ground(host, folder, await server.switch(options.switch))

    async def require_free(self, name: str, ground: Ground) -> None:
        """Check that nobody's VM or folder bears a name: Hyper-V would make a second of it."""
        server, home = self._server, within(ground.folder, name)
        if await server.called(name):
            raise MachineFault(f"{server.session.name} has a VM called {name} already")
        if await server.has(home, "Any"):
            raise MachineFault(f"{server.session.name} has {home} already")

    async def make(
        self, spec: MachineSpec, ground: Ground, configuration: bytes, own: OwnDisk | None = None
    ) -> uuid.UUID:
        """Make the VM, switched off, in a folder of its own.

        Args:
            spec: The machine.
            ground: Where.
            configuration: The bytes of its configuration CD.
            own: The empty disk that it is to have; None: none.

        Returns:
            Its id.
        """
        options, session = self._options, self._server.session
        home = within(ground.folder, spec.name)
        await session.run(cmdlet("New-Item", Path=home, ItemType="Directory"), chosen("Name"))
        disc = within(home, CONFIGURATION)
        await session.run(script(WRITE, Path=disc, Bytes=configuration))
        image = str(options.image)
        boots: dict[str, Any] = {"NoVHD": True, "BootDevice": "CD"}
        if not image.lower().endswith(ISO):
            # A VM writes to what it boots from, and a child disk would read through its parent.
            copy = within(home, f"boot{image[image.rindex('.') :].lower()}")
            await session.run(cmdlet("Copy-Item", LiteralPath=image, Destination=copy))
            # In generation 1 this means IDE (New-VM's page).
            boots = {"VHDPath": copy, "BootDevice": "VHD"}
        made = await session.run(
            cmdlet(
                "New-VM",
                Name=spec.name,
                Generation=options.generation,
                MemoryStartupBytes=Long(spec.shape.memory),
                Path=ground.folder,
                **boots,
            ),
            chosen("Id", "Path"),
        )
        vm = uuid.UUID(made[0].text("Id"))
        if not same_path(made[0].text("Path"), home):
            # By its folder it is known as Tare's own: elsewhere, nobody would remove it.
            await self._server.discard(vm)
            raise MachineFault(f"its files are in {made[0].text('Path')}, and not in {home}")
        await self._set(vm, spec)
        await self._connect(vm, ground.switch)
        await self._insert(vm, disc)
        if own is not None:
            await self._give(vm, within(home, OWN), own.size)
        return vm

    async def _give(self, vm: uuid.UUID, path: str, size: int) -> None:
        """Make an empty disk of zeros, all of it set aside, and attach it."""
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
                # Backups and impatient people make checkpoints: these are refused.
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
        """Give the VM the card that was asked for, and no other: one comes with it."""
        server = self._server
        await server.of(
            vm, cmdlet("Get-VMNetworkAdapter"), cmdlet("Remove-VMNetworkAdapter", Confirm=False)
        )
        legacy = {"IsLegacy": True} if self._options.devices == "emulated" else {}
        await server.of(vm, cmdlet("Add-VMNetworkAdapter", SwitchName=switch, **legacy))

    async def _insert(self, vm: uuid.UUID, disc: str) -> None:
        """Put the image, where it is a CD, and the configuration into DVD drives."""
        options, server = self._options, self._server
        if options.image is not None and options.image.lower().endswith(ISO):
            await server.of(
                vm, cmdlet("Get-VMDvdDrive"), cmdlet("Set-VMDvdDrive", Path=options.image)
            )
        place: dict[str, int] = {}
        if options.generation == 1:
            place = {"ControllerNumber": IDE, "ControllerLocation": SECOND}
        await server.of(vm, cmdlet("Add-VMDvdDrive", Path=disc, **place))
