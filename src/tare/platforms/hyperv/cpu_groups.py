"""CPU groups: they confine whole VMs to some of the host's processors.

The Host Compute Service (HCS) creates and deletes groups, in Windows Server 2019 and Windows 10
1809 or newer. Its functions ``HcsGetServiceProperties`` and ``HcsModifyServiceSettings`` in
computecore.dll take JSON. A VM names its group in ``Msvm_ProcessorSettingData.CpuGroupId``. No
cmdlet does either. Sources: learn.microsoft.com, "Virtual Machine Resource Controls" and the HCS
reference.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tare.errors import InputError, MachineFault
from tare.platforms.contract import Carrier
from tare.platforms.hyperv.command import chosen, cmdlet, script
from tare.platforms.hyperv.session import RIGHTS, Failed, HypervSession
from tare.platforms.vendors.resource import ServerResource
from tare.platforms.vendors.session import RequestRefused

COMPUTE = """
param([string]$Call, [string]$Document)
Add-Type -Namespace Tare -Name Compute -MemberDefinition @'
[DllImport("computecore.dll", CharSet = CharSet.Unicode)]
public static extern int HcsGetServiceProperties(string query, out IntPtr result);
[DllImport("computecore.dll", CharSet = CharSet.Unicode)]
public static extern int HcsModifyServiceSettings(string settings, out IntPtr result);
'@
$text = [IntPtr]::Zero
if ($Call -eq 'get') {
    $code = [Tare.Compute]::HcsGetServiceProperties($Document, [ref]$text)
} else {
    $code = [Tare.Compute]::HcsModifyServiceSettings($Document, [ref]$text)
}
'{0:x8}' -f $code
if ($text -ne [IntPtr]::Zero) {
    [Runtime.InteropServices.Marshal]::PtrToStringUni($text)
    [Runtime.InteropServices.Marshal]::FreeHGlobal($text)
}
"""
"""The script's text is constant, and its values are parameters."""
BIND = """
param([guid]$Vm, [guid]$Group)
$space = 'root/virtualization/v2'
$asked = "SELECT * FROM Msvm_ProcessorSettingData WHERE InstanceID LIKE 'Microsoft:$Vm%'"
$setting = Get-WmiObject -Namespace $space -Query $asked | Select-Object -First 1
$setting.CpuGroupId = "$Group"
$service = Get-WmiObject -Namespace $space -Class Msvm_VirtualSystemManagementService
$done = $service.ModifyResourceSettings(@($setting.GetText('WmiDtd20')))
if ($done.ReturnValue -eq 4096) {
    $job = [wmi]$done.Job
    while ($job.JobState -in 3, 4) { Start-Sleep -Milliseconds 100; $job.Get() }
    if ($job.JobState -ne 7) { throw $job.ErrorDescription }
} elseif ($done.ReturnValue -ne 0) { throw "ModifyResourceSettings: $($done.ReturnValue)" }
"""
"""As above; ModifyResourceSettings changes the settings of an existing VM."""
DONE, DENIED = "00000000", "80070005"
"""The HRESULTs S_OK and E_ACCESSDENIED."""
SETTINGS = "Msvm_ProcessorSettingData"
ROOT = "root"
"""The scheduler with which Windows schedules VMs ("Manage Hyper-V hypervisor scheduler types")."""
NEWER = "use Windows Server 2019, Windows 10 1809 or newer; or leave `cpu-groups` out"


class HypervGroupResource(ServerResource[HypervSession]):
    """A CPU group for one VM."""

    kind = "hyperv-cpu-group"

    @property
    def words(self) -> str:
        """A phrase that names the group by its VM."""
        return f"the CPU group of {self.name}"

    @property
    def group(self) -> uuid.UUID:
        """The id of the group."""
        return uuid.UUID(str(self.details["group"]))

    async def create(self) -> None:
        """Create the group with its processors; raises if the host refuses."""
        processors = [int(each) for each in self.details["processors"]]
        await _modify(
            self.session,
            "CreateGroup",
            {
                "GroupId": str(self.group),
                "LogicalProcessorCount": len(processors),
                "LogicalProcessors": processors,
            },
        )

    async def exists(self) -> bool:
        """Return whether the group exists."""
        return self.group in await groups_of_host(self.session)

    async def remove(self) -> None:
        """Delete the group; its VM has already been removed."""
        await _modify(self.session, "DeleteGroup", {"GroupId": str(self.group)})


def require_groups(facts: Mapping[str, Any]) -> None:
    """Check that the hypervisor schedules VMs; raise InputError if Windows schedules them."""
    if facts.get("scheduler") == ROOT:
        raise InputError(
            "CPU groups confine nothing here: the hypervisor's scheduler is the root scheduler",
            "bcdedit /set hypervisorschedulertype core, and reboot; or leave `cpu-groups` out",
        )


async def groups_of_host(session: HypervSession) -> Mapping[uuid.UUID, tuple[int, ...]]:
    """Return the host's CPU groups, each with its processors.

    Raises:
        InputError: The host has no CPU groups.
        Refused: The account has no rights for them.
    """
    answer = await _call(session, "get", {"PropertyTypes": ["CpuGroup"]})
    try:
        found = json.loads(answer)["Properties"][0]["CpuGroups"] or ()
        return {
            uuid.UUID(each["GroupId"]): tuple(each["Affinity"]["LogicalProcessors"] or ())
            for each in found
        }
    except (ValueError, LookupError, TypeError):
        raise InputError(
            f"{session.name} does not report its CPU groups: {answer[:200]}", NEWER
        ) from None


async def placed_by_core(session: HypervSession, carrier: Carrier) -> Carrier:
    """Add to a host's CPUs the core, the package and the NUMA node of each.

    No cmdlet reports which processors share a core. Fields that the Host Compute Service does not
    report stay unchanged.

    Args:
        session: An open session.
        carrier: The host as reported by its cmdlets.
    """
    answer = await _call(session, "get", {"PropertyTypes": ["ProcessorTopology"]})
    try:
        found = json.loads(answer)["Properties"][0]["LogicalProcessors"]
        places = {
            int(each["LpIndex"]): (
                int(each["PackageId"]),
                int(each["CoreId"]),
                int(each["NodeNumber"]),
            )
            for each in found
        }
    except (ValueError, LookupError, TypeError):
        return carrier
    if sorted(places) != list(carrier.cpus.online):
        return carrier
    cores: dict[tuple[int, int], list[int]] = {}
    packages: dict[int, int] = {}
    for processor, (package, core, _) in sorted(places.items()):
        cores.setdefault((package, core), []).append(processor)
        packages.setdefault(package, processor)
    cpus = replace(
        carrier.cpus,
        siblings={each: tuple(core) for core in cores.values() for each in core},
        nodes={processor: node for processor, (_, _, node) in places.items()},
        packages={processor: packages[package] for processor, (package, _, _) in places.items()},
        cores=0,
    )
    return replace(carrier, cpus=cpus)


async def bind(session: HypervSession, vm: uuid.UUID, group: uuid.UUID) -> None:
    """Put a VM into a group; the VM must be off."""
    await session.run(script(BIND, Vm=str(vm), Group=str(group)))


async def group_of(session: HypervSession, vm: uuid.UUID) -> str:
    """Return the id of a VM's group as the host reports it; empty if it reports no group."""
    settings = cmdlet(
        "Get-CimInstance",
        Namespace="root/virtualization/v2",
        ClassName=SETTINGS,
        Filter=f"InstanceID LIKE 'Microsoft:{vm}%'",
    )
    found = await session.run(settings, chosen("CpuGroupId"))
    return found[0].text("CpuGroupId").lower() if found else ""


def group_details(
    details: Mapping[str, Any], group: uuid.UUID, processors: Sequence[int]
) -> dict[str, Any]:
    """Return the ledger's details of a group: those of its host, its id and its processors."""
    return {**details, "group": str(group), "processors": sorted(set(processors))}


async def _modify(session: HypervSession, operation: str, details: Mapping[str, Any]) -> None:
    settings = {"Operation": operation, "OperationDetails": details}
    await _call(session, "modify", {"PropertyType": "CpuGroup", "Settings": settings})


async def _call(session: HypervSession, call: str, document: Mapping[str, Any]) -> str:
    """Call the Host Compute Service, and return its document."""
    try:
        answer = await session.values(script(COMPUTE, Call=call, Document=json.dumps(document)))
    except Failed as fault:
        # The library, or its function, is missing.
        raise InputError(f"{session.name} has no CPU groups: {fault.message}", NEWER) from fault
    code, text = (answer[0] if answer else "nothing"), " ".join(answer[1:])
    if code == DENIED:
        raise RequestRefused(f"{session.name}: the account may not use CPU groups ({code})", RIGHTS)
    if code != DONE:
        raise MachineFault(f"{session.name}: the Host Compute Service refuses: {code} {text}")
    return text
