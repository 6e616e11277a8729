"""What a Hyper-V host says of itself, for the proof: build, edition, power plan, scheduler."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tare.platforms.hyperv.command import Told, chosen, cmdlet, script
from tare.platforms.hyperv.server import Server
from tare.platforms.hyperv.session import Failed
from tare.platforms.vendors.faults import Missing, Refused

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
"""The power plans that Windows brings (winnt.h, ``GUID_MIN_POWER_SAVINGS`` and its like)."""
SCHEDULERS = {1: "classic, SMT off", 2: "classic", 3: "core", 4: "root"}
"""What the hypervisor notes at its launch ("Manage Hyper-V hypervisor scheduler types")."""
LAUNCHED = {"ProviderName": "Microsoft-Windows-Hyper-V-Hypervisor", "Id": 2}
GROUPS = {
    "S-1-5-32-544": "Administrators",
    "S-1-5-32-578": "Hyper-V Administrators",
    "S-1-5-32-580": "Remote Management Users",
    "S-1-5-32-558": "Performance Monitor Users",
    "S-1-5-32-573": "Event Log Readers",
}
"""The groups that matter here, by what they are in every language ("Well-known SIDs")."""
MEMBER = "[Security.Principal.WindowsIdentity]::GetCurrent().Groups | ForEach-Object Value"
"""What no cmdlet tells of an ordinary account; its text is always this."""
_TYPE = re.compile(r"0x([0-9a-fA-F]+)")


async def facts_of(server: Server, host: Told) -> Mapping[str, Any]:
    """Return what the host says of itself; what it does not tell this account is left out.

    The registry is asked rather than WMI wherever it knows: any account may read it.

    Args:
        server: The host.
        host: What it is, as :meth:`Server.host` returns it.
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
    """Return which of the groups that matter the account is in; empty where nothing is told."""
    try:
        told = await server.session.values(script(MEMBER))
    except (Missing, Refused, Failed):
        return ()
    return tuple(f"member of {name}" for sid, name in GROUPS.items() if sid in told)


async def _values(server: Server, key: str, *names: str) -> Told:
    found = await server.optional(cmdlet("Get-ItemProperty", LiteralPath=key), chosen(*names))
    return found[0] if found else Told({})


async def _hyper_threading(server: Server) -> str:
    """Return ``on`` or ``off``; empty where the account may not ask WMI."""
    wanted = ("NumberOfCores", "NumberOfLogicalProcessors")
    sockets = await server.optional(
        cmdlet("Get-CimInstance", ClassName="Win32_Processor"), chosen(*wanted)
    )
    cores, threads = (sum(each.number(name) or 0 for each in sockets) for name in wanted)
    return "" if not cores else "on" if threads > cores else "off"


async def _scheduler(server: Server) -> str:
    """Return the hypervisor's scheduler; empty where the account may not read the system's log."""
    found = await server.optional(
        cmdlet("Get-WinEvent", FilterHashtable={"LogName": "System", **LAUNCHED}, MaxEvents=1),
        chosen("Message"),
    )
    told = _TYPE.search(found[0].text("Message")) if found else None
    return "" if told is None else SCHEDULERS.get(int(told[1], 16), f"type {told[0]}")
