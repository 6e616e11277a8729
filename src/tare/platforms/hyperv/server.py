"""Requests to a Hyper-V host about its VMs, switches and files, and facts about the host."""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Mapping
from typing import Any

from tare.errors import InputError
from tare.hosts.ledger.undoing import PREFIX
from tare.platforms.contract import Carrier
from tare.platforms.hyperv.command import Cmdlet, PsObject, chosen, cmdlet, named, script
from tare.platforms.hyperv.session import RIGHTS, Failed, HypervSession
from tare.platforms.vendors.session import NoSuchObject, RequestRefused
from tare.study.planning.host_cpus import HostCpus

OFF, RUNNING = "Off", "Running"
SEEN = (
    *("Name", "Id", "State", "Path", "Generation", "Version", "ComputerName", "Uptime"),
    *("ProcessorCount", "MemoryStartup", "MemoryAssigned", "DynamicMemoryEnabled"),
    *("CheckpointType", "ReplicationState", "PrimaryOperationalStatus"),
    "SecondaryOperationalStatus",
)
"""The properties of a VM that are requested (Microsoft.HyperV.PowerShell.VirtualMachine)."""


class Server:
    """A Hyper-V host, reached through an open session."""

    def __init__(self, session: HypervSession) -> None:
        self.session = session

    async def host(self) -> PsObject:
        """Return the host's properties.

        Raises:
            InputError: The host does not show them to this account, which lacks rights for Hyper-V.
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
        """Return the time of the host's boot (Unix time, s); None: the account cannot read it."""
        found = await self.optional(
            cmdlet("Get-CimInstance", ClassName="Win32_OperatingSystem"), chosen("LastBootUpTime")
        )
        return found[0].moment("LastBootUpTime") if found else None

    async def switch(self, name: str | None) -> str:
        """Return a virtual switch's name; if ``name`` is None, that of the only switch.

        Raises:
            InputError: There is no such switch, or more than one.
        """
        found = await self.session.run(cmdlet("Get-VMSwitch"), chosen("Name"))
        names = [each.text("Name") for each in found]
        if name is None:
            # Tare's own isolated switches do not lead to the address that agents dial back to.
            names = [each for each in names if not each.startswith(PREFIX)]
        if name is None and len(names) == 1:
            return names[0]
        if name is None:
            raise InputError(
                f"{self.session.name} shows this account {len(names)} virtual switches",
                "name one by `switch`" if names else "make one (New-VMSwitch); " + RIGHTS,
            )
        if (many := names.count(name)) != 1:
            raise InputError(
                f"{self.session.name} has {many} virtual switches of the name {name}",
                f"correct `switch`; there are: {', '.join(sorted(names)) or 'none'}",
            )
        return name

    async def has(self, path: str, kind: str) -> bool:
        """Return whether there is a file (``Leaf``) or a folder (``Container``) with this path."""
        asked = cmdlet("Test-Path", LiteralPath=path, PathType=kind)
        return await self.session.values(asked) == ["True"]

    async def vm(self, vm: uuid.UUID) -> PsObject:
        """Return a VM; raises NoSuchObject if it is gone."""
        found = await self.session.run(cmdlet("Get-VM", Id=vm), chosen(*SEEN))
        if not found:
            raise NoSuchObject(f"{self.session.name} has no VM {vm}")
        return found[0]

    async def of(self, vm: uuid.UUID, *then: Cmdlet) -> list[PsObject]:
        """Run a pipeline that begins with one VM, found by its id, because names are not unique."""
        return await self.session.run(cmdlet("Get-VM", Id=vm), *then)

    async def power_on(self, vm: uuid.UUID) -> None:
        """Start a VM."""
        await self.of(vm, cmdlet("Start-VM"))

    async def power_off(self, vm: uuid.UUID) -> None:
        """Switch a VM off at once."""
        if (await self.vm(vm)).text("State") != OFF:
            await self.of(vm, cmdlet("Stop-VM", TurnOff=True, Force=True, Confirm=False))

    async def called(self, name: str) -> list[PsObject]:
        """Return the VMs with a name; Hyper-V lets several have the same.

        Raises:
            RequestRefused, InputError: The account may not see VMs, so an empty list would prove
            nothing.
        """
        await self.host()
        return await self.session.run(
            cmdlet("Get-VM"), named(name), chosen("Name", "Id", "State", "Path")
        )

    async def own(self, name: str, folder: str) -> list[uuid.UUID]:
        """Return the VMs with a name whose files are in the folder of that name in ``folder``.

        VMs of the same name elsewhere are not Tare's.
        """
        home = within(folder, name)
        found = await self.called(name)
        return [uuid.UUID(vm.text("Id")) for vm in found if same_path(vm.text("Path"), home)]

    async def remove_folder(self, path: str) -> None:
        """Remove a folder and its content; do nothing if it is gone."""
        with contextlib.suppress(NoSuchObject):
            await self.session.run(
                cmdlet("Remove-Item", LiteralPath=path, Recurse=True, Force=True, Confirm=False)
            )

    async def discard(self, vm: uuid.UUID) -> None:
        """Remove a VM that is off, but keep its files."""
        await self.of(vm, cmdlet("Remove-VM", Force=True, Confirm=False))

    async def snapshots(self, vm: uuid.UUID) -> list[str]:
        """Return the ids of a VM's checkpoints."""
        found = await self.of(vm, cmdlet("Get-VMSnapshot"), chosen("Id"))
        return [each.text("Id") for each in found]

    async def optional(self, *pipeline: Cmdlet) -> list[PsObject]:
        """Run a pipeline; return an empty list if PowerShell refuses it, or it fails."""
        try:
            return await self.session.run(*pipeline)
        except (NoSuchObject, RequestRefused, Failed):
            return []


def within(folder: str, name: str) -> str:
    """Return the path of an entry of a folder."""
    return f"{folder.rstrip(chr(92))}\\{name}"


def same_path(one: str, other: str) -> bool:
    """Return whether two Windows paths are the same except for their case."""
    return one.rstrip("\\").casefold() == other.rstrip("\\").casefold()


WINDOWS = "HKLM:\\SOFTWARE\\Microsoft\\Windows NT\\CurrentVersion"
POWER = "HKLM:\\SYSTEM\\CurrentControlSet\\Control\\Power\\User\\PowerSchemes"
BOARD = "HKLM:\\HARDWARE\\DESCRIPTION\\System\\BIOS"
PROCESSOR = "HKLM:\\HARDWARE\\DESCRIPTION\\System\\CentralProcessor\\0"
PLANS = {
    "8c5e7fda-e8bf-4a96-9a85-a6e23a8c635c": "high performance",
    "381b4222-f694-41f0-9685-ff5bb260df2e": "balanced",
    "a1841308-3541-4fab-bc81-f71556f20b4a": "power saver",
    "e9a42b02-d5df-448d-aa00-03f14749eb61": "ultimate performance",
}
"""Windows' power plans (winnt.h, ``GUID_MIN_POWER_SAVINGS`` and similar constants)."""
SCHEDULERS = {1: "classic, SMT off", 2: "classic", 3: "core", 4: "root"}
"""The types in the hypervisor's start-up log ("Manage Hyper-V hypervisor scheduler types")."""
LAUNCHED = {"ProviderName": "Microsoft-Windows-Hyper-V-Hypervisor", "Id": 2}
GROUPS = {
    "S-1-5-32-544": "Administrators",
    "S-1-5-32-578": "Hyper-V Administrators",
    "S-1-5-32-580": "Remote Management Users",
    "S-1-5-32-558": "Performance Monitor Users",
    "S-1-5-32-573": "Event Log Readers",
}
"""The relevant groups, by their id, which is the same in every language ("Well-known SIDs")."""
MEMBER = "[Security.Principal.WindowsIdentity]::GetCurrent().Groups | ForEach-Object Value"
"""No cmdlet reports the groups to an ordinary account; the script's text is constant."""
NUMA_PROCESSORS = "ProcessorsAvailability"
NUMA = ("NodeId", NUMA_PROCESSORS, "MemoryAvailable", "MemoryTotal")
"""The properties of a NUMA node; memory is in MiB (Microsoft.HyperV.PowerShell.VMHostNumaNode)."""
_TYPE = re.compile(r"0x([0-9a-fA-F]+)")


async def facts_of(server: Server, host: PsObject) -> Mapping[str, Any]:
    """Return the facts that the host reports about itself; hidden ones are left out.

    The registry is preferred to WMI because any account may read it.

    Args:
        server: The host.
        host: The host's properties, as :meth:`Server.host` returns them.
    """
    windows = await _values(
        server, WINDOWS, "ProductName", "CurrentBuild", "UBR", "EditionID", "DisplayVersion"
    )
    power = await _values(server, POWER, "ActivePowerScheme")
    board = await _values(server, BOARD, "SystemManufacturer", "SystemProductName")
    processor = await _values(server, PROCESSOR, "ProcessorNameString")
    plan = power.text("ActivePowerScheme").strip("{}").lower()
    found = {
        "product": windows.text("ProductName"),
        "build": ".".join(
            part for part in (windows.text("CurrentBuild"), windows.text("UBR")) if part
        ),
        "version": windows.text("DisplayVersion"),
        "licence": windows.text("EditionID"),
        "power policy": PLANS.get(plan, plan),
        "model": " ".join(
            part
            for part in (board.text("SystemManufacturer"), board.text("SystemProductName"))
            if part
        ),
        "processor": processor.text("ProcessorNameString").strip(),
        "cpus": host.text("LogicalProcessorCount"),
        "hyper-threading": await _hyper_threading(server),
        "scheduler": await _scheduler(server),
    }
    return {name: value for name, value in found.items() if value}


async def groups_of(server: Server) -> tuple[str, ...]:
    """Return the groups among :data:`GROUPS` that the account is a member of; empty: unknown."""
    try:
        sids = await server.session.values(script(MEMBER))
    except (NoSuchObject, RequestRefused, Failed):
        return ()
    return tuple(f"member of {name}" for sid, name in GROUPS.items() if sid in sids)


async def _values(server: Server, key: str, *names: str) -> PsObject:
    found = await server.optional(cmdlet("Get-ItemProperty", LiteralPath=key), chosen(*names))
    return found[0] if found else PsObject({})


async def _sockets(server: Server) -> tuple[int, int, int]:
    """Return the numbers of sockets, cores and threads; 0 if the account may not query WMI."""
    wanted = ("NumberOfCores", "NumberOfLogicalProcessors")
    sockets = await server.optional(
        cmdlet("Get-CimInstance", ClassName="Win32_Processor"), chosen(*wanted)
    )
    cores, threads = (sum(each.number(name) or 0 for each in sockets) for name in wanted)
    return len(sockets), cores, threads


async def _hyper_threading(server: Server) -> str:
    """Return ``on`` or ``off``; empty if the account may not query WMI."""
    _, cores, threads = await _sockets(server)
    return "" if not cores else "on" if threads > cores else "off"


async def carrier_of(server: Server, host: PsObject) -> Carrier:
    """Return the host's CPUs and memory.

    ``Get-VMHost`` counts the hypervisor's logical processors. Windows itself may have fewer
    ("minroot"); in that case its own count of cores is not the host's.

    Args:
        server: The host.
        host: The host's properties, as :meth:`Server.host` returns them.
    """
    threads = host.number("LogicalProcessorCount") or 1
    sockets, cores, seen = await _sockets(server)
    nodes = await server.optional(cmdlet("Get-VMHostNumaNode"), chosen(*NUMA))
    # The processors of a node follow those of the previous node.
    numbers = [
        each.number("NodeId") or 0 for each in nodes for _ in range(each.count(NUMA_PROCESSORS))
    ]
    whole = len(numbers) == threads
    cpus = HostCpus(
        tuple(range(threads)),
        nodes=dict(enumerate(numbers)) if whole else {},
        memory={
            each.number("NodeId") or 0: (each.number("MemoryTotal") or 0) << 20 for each in nodes
        },
        cores=cores if seen == threads else 0,
    )
    free = sum(each.number("MemoryAvailable") or 0 for each in nodes) << 20
    return Carrier(
        host.text("ComputerName") or server.session.name,
        cpus,
        host.number("MemoryCapacity") or 0,
        free if nodes else None,
        sockets if seen == threads else 0,
    )


async def _scheduler(server: Server) -> str:
    """Return the hypervisor's scheduler; empty if the account may not read the system log."""
    found = await server.optional(
        cmdlet("Get-WinEvent", FilterHashtable={"LogName": "System", **LAUNCHED}, MaxEvents=1),
        chosen("Message"),
    )
    number = _TYPE.search(found[0].text("Message")) if found else None
    return "" if number is None else SCHEDULERS.get(int(number[1], 16), f"type {number[0]}")
