"""The Host Compute Service of a simulated host: CPU groups, and which VM is in which.

What it is asked is its own JSON ("HcsModifyServiceSettings", learn.microsoft.com). The HRESULTs of
refusals are recalled: no page lists those of CPU groups.
"""

from __future__ import annotations

import json
import uuid
from typing import Any

from platforms.hyperv_cmdlets import Given
from platforms.hyperv_host import Host, PsError

DONE, DENIED, INVALID = "00000000", "80070005", "80070057"
NONE = str(uuid.UUID(int=0))


def call(host: Host, given: Given) -> list[Any]:
    """Answer a call of computecore.dll: its HRESULT, and its document if it has one."""
    if not host.has_compute:
        words = "Unable to load DLL 'computecore.dll': The specified module could not be found."
        raise PsError("DllNotFoundException", words)
    if not host.may_hyperv:
        return [DENIED]
    asked = json.loads(given["Document"])
    if given["Call"] == "get":
        if asked == {"PropertyTypes": ["ProcessorTopology"]}:
            return [DONE, json.dumps({"Properties": [_topology(host)]})]
        assert asked == {"PropertyTypes": ["CpuGroup"]}
        groups = [
            {
                "GroupId": name.upper(),
                "Affinity": {"LogicalProcessorCount": len(each), "LogicalProcessors": each},
            }
            for name, each in host.cpu_groups.items()
        ]
        return [DONE, json.dumps({"Properties": [{"CpuGroups": groups}]})]
    assert asked["PropertyType"] == "CpuGroup"
    return [_modify(host, asked["Settings"]["Operation"], asked["Settings"]["OperationDetails"])]


def _topology(host: Host) -> dict[str, Any]:
    """Return the processors as CpuGroups.exe GetCpuTopology prints them."""
    threads = host.hardware["LogicalProcessorCount"]
    each = threads // host.cores
    processors = [
        {
            "LpIndex": number,
            "NodeNumber": number * host.nodes // threads,
            "PackageId": number * host.sockets // threads,
            "CoreId": number // each,
            "RootVpIndex": number,
        }
        for number in range(threads)
    ]
    return {"LogicalProcessorCount": threads, "LogicalProcessors": processors}


def _modify(host: Host, operation: str, details: dict[str, Any]) -> str:
    name = str(uuid.UUID(details["GroupId"]))
    if operation == "CreateGroup":
        processors = details["LogicalProcessors"]
        there = range(host.hardware["LogicalProcessorCount"])
        wrong = name in host.cpu_groups or not set(processors) <= set(there)
        if wrong or not processors or len(processors) != details["LogicalProcessorCount"]:
            return INVALID
        host.cpu_groups[name] = processors
        return DONE
    assert operation == "DeleteGroup"
    if name not in host.cpu_groups or any(vm.group == name for vm in host.vms.values()):
        return INVALID
    del host.cpu_groups[name]
    return DONE


def bind(host: Host, given: Given) -> None:
    """Change a VM's processor settings, as ModifyResourceSettings does."""
    vm, group = host.vms[uuid.UUID(given["Vm"])], str(uuid.UUID(given["Group"]))
    # A VM that is in a group may only leave it.
    if group not in (NONE, *host.cpu_groups) or NONE not in (group, vm.group):
        raise PsError("RuntimeException", "The parameter is incorrect.", terminating=True)
    vm.group = group
