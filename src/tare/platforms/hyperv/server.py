"""What Tare asks of a Hyper-V host: its VMs, switches and files, and their removal."""

from __future__ import annotations

import contextlib
import uuid

from tare.errors import InputError
from tare.platforms.hyperv.command import Cmdlet, Told, chosen, cmdlet, named
from tare.platforms.hyperv.session import RIGHTS, Failed, HypervSession
from tare.platforms.vendors.faults import Missing, Refused
from tare.platforms.vendors.patience import patiently

BUSY_S = 30.0
OFF, RUNNING = "Off", "Running"
SEEN = (
    *("Name", "Id", "State", "Path", "Generation", "Version", "ComputerName", "Uptime"),
    *("ProcessorCount", "MemoryStartup", "MemoryAssigned", "DynamicMemoryEnabled"),
    *("CheckpointType", "ReplicationState", "PrimaryOperationalStatus"),
    "SecondaryOperationalStatus",
)
"""The properties of a VM that are looked at (Microsoft.HyperV.PowerShell.VirtualMachine)."""
# A file of a VM that has just been switched off is still held for a moment.
BUSY = ("RemoveFileSystemItemIOError", "InvalidState")


class Server:
    """A Hyper-V host, by a session that is open."""

    def __init__(self, session: HypervSession) -> None:
        self.session = session

    async def host(self) -> Told:
        """Return what the host is.

        Raises:
            InputError: It shows this account nothing: no rights for Hyper-V.
        """
        wanted = ("ComputerName", "LogicalProcessorCount", "MemoryCapacity", "VirtualMachinePath")
        found = await self.session.run(cmdlet("Get-VMHost"), chosen(*wanted))
        if not found:
            raise InputError(
                f"{self.session.name} shows this account nothing of Hyper-V",
                "add the account to the host's Hyper-V Administrators; " + RIGHTS,
            )
        return found[0]

    async def booted(self) -> float | None:
        """Return when the host was booted, in seconds since 1970; None: the account may not ask."""
        told = await self.optional(
            cmdlet("Get-CimInstance", ClassName="Win32_OperatingSystem"), chosen("LastBootUpTime")
        )
        return told[0].moment("LastBootUpTime") if told else None

    async def switch(self, name: str | None) -> str:
        """Return a virtual switch's name; None: that of the only one.

        Raises:
            InputError: There is none, or more than one.
        """
        found = await self.session.run(cmdlet("Get-VMSwitch"), chosen("Name"))
        names = [each.text("Name") for each in found]
        if name is None and len(names) == 1:
            return names[0]
        if name is None:
            raise InputError(
                f"{self.session.name} shows this account {len(names)} virtual switches",
                "say by `switch` which" if names else "make one (New-VMSwitch); " + RIGHTS,
            )
        if (many := names.count(name)) != 1:
            raise InputError(
                f"{self.session.name} has {many} virtual switches of the name {name}",
                f"correct `switch`; there are: {', '.join(sorted(names)) or 'none'}",
            )
        return name

    async def has(self, path: str, kind: str) -> bool:
        """Return whether there is a file (``Leaf``) or a folder (``Container``) of this path."""
        asked = cmdlet("Test-Path", LiteralPath=path, PathType=kind)
        return await self.session.values(asked) == ["True"]

    async def vm(self, vm: uuid.UUID) -> Told:
        """Return a VM; raises Missing where it is gone."""
        found = await self.session.run(cmdlet("Get-VM", Id=vm), chosen(*SEEN))
        if not found:
            raise Missing(f"{self.session.name} has no VM {vm}")
        return found[0]

    async def of(self, vm: uuid.UUID, *then: Cmdlet) -> list[Told]:
        """Return what a pipeline tells that begins with one VM, by its id: names may be twice."""
        return await self.session.run(cmdlet("Get-VM", Id=vm), *then)

    async def power_on(self, vm: uuid.UUID) -> None:
        """Start a VM."""
        await self.of(vm, cmdlet("Start-VM"))

    async def power_off(self, vm: uuid.UUID) -> None:
        """Switch a VM off as by pulling the plug."""
        if (await self.vm(vm)).text("State") != OFF:
            await self.of(vm, cmdlet("Stop-VM", TurnOff=True, Force=True, Confirm=False))

    async def called(self, name: str) -> list[Told]:
        """Return the VMs of a name: Hyper-V lets several have the same.

        Raises:
            Refused, InputError: The account may not see VMs: an empty list would say nothing.
        """
        await self.host()
        return await self.session.run(
            cmdlet("Get-VM"), named(name), chosen("Name", "Id", "State", "Path")
        )

    async def remove_named(self, name: str, folder: str) -> bool:
        """Remove Tare's VM of a name with its folder; what is busy is waited for.

        Args:
            name: Its name, and its folder's.
            folder: The folder in which its own is. What lies elsewhere is somebody else's.

        Returns:
            Whether there was anything.
        """
        return await patiently(lambda: self._remove_named(name, folder), BUSY, BUSY_S)

    async def _remove_named(self, name: str, folder: str) -> bool:
        home, found = within(folder, name), False
        for told in await self.called(name):
            if not same_path(told.text("Path"), home):
                continue
            vm = uuid.UUID(told.text("Id"))
            try:
                await self.power_off(vm)
                await self.discard(vm)
                found = True
            except Missing:
                continue
        if await self.has(home, "Container"):
            with contextlib.suppress(Missing):
                await self.session.run(
                    cmdlet("Remove-Item", LiteralPath=home, Recurse=True, Force=True, Confirm=False)
                )
            found = True
        return found

    async def discard(self, vm: uuid.UUID) -> None:
        """Remove a VM that is off, and leave its files."""
        await self.of(vm, cmdlet("Remove-VM", Force=True, Confirm=False))

    async def snapshots(self, vm: uuid.UUID) -> list[str]:
        """Return the ids of a VM's checkpoints."""
        found = await self.of(vm, cmdlet("Get-VMSnapshot"), chosen("Id"))
        return [each.text("Id") for each in found]

    async def optional(self, *pipeline: Cmdlet) -> list[Told]:
        """Return what a pipeline tells; nothing where PowerShell refuses it to the account."""
        try:
            return await self.session.run(*pipeline)
        except (Missing, Refused, Failed):
            return []


def within(folder: str, name: str) -> str:
    """Return the path of what is in a folder."""
    return f"{folder.rstrip(chr(92))}\\{name}"


def same_path(one: str, other: str) -> bool:
    """Return whether two paths of Windows are one, which knows no capitals."""
    return one.rstrip("\\").casefold() == other.rstrip("\\").casefold()
