"""Cmdlets on a simulated host, which refuse what Hyper-V's refuse.

Each takes the parameters that its page on learn.microsoft.com lists, and no others (module/hyper-v,
module/microsoft.powershell.management). What is refused, where that is stated, and by which error
id; the ids are those that people's logs show, in the issues named, or that the module itself gives
(Microsoft.HyperV.PowerShell.Cmdlets.dll, which public repositories show decompiled: what a
parameter contradicts is InvalidParameter, category InvalidArgument), or, where marked, recalled:

============================================ =======================================================
an unknown VM: InvalidParameter,….GetVM      get-vm; canonical/multipass issue 3090
a VM that runs: InvalidState,….SetVM         set-vm, remove-vm; canonical/multipass issue 4204
percent beyond 100, weights beyond 10000     set-vmprocessor; words as in
                                             MicrosoftDocs/windows-powershell-docs issue 432, where
                                             no id is shown: the host decides, id recalled
more vCPUs than the host has processors:     canonical/multipass issue 3352: the cmdlet takes them,
OperationFailed,….StartVM                    and the start fails
no memory left: OutOfMemory,….StartVM        start-vm; kubernetes/minikube issue 18049
rights missing: AccessDenied,….<cmdlet>      MicrosoftDocs/windows-powershell-docs issue 2801;
                                             kubernetes/minikube issue 9286
rights missing: an empty list of Get-VM      get-vm ("gets the virtual machines", of those it may)
a legacy card in generation 2                add-vmnetworkadapter; "Should I create a generation 1
                                             or 2 virtual machine in Hyper-V?"; the host decides:
                                             id recalled
IDE to boot from in generation 2             new-vm; hashicorp/vagrant issue 6372; the module's id
.vhd in generation 2                         "Should I create …", as above; the module's id
a name that another VM has: no refusal       dsccommunity/HyperVDsc pull request 84
a switch that is not there                   new-vm: VirtualEngine/Lability pull request 40;
                                             add-vmnetworkadapter: the module's id
a switch in use: ObjectInUse,….RemoveVMSwitch AutomatedLab/AutomatedLab issue 164
a folder that is there: DirectoryExist       new-item
a path that is not there: PathNotFound       get-itemproperty, copy-item, remove-item
a file in use: RemoveFileSystemItemIOError   remove-item
no right to write: …UnauthorizedAccessError  new-item, copy-item
an unknown parameter: NamedParameterNotFound about_parameters
an unknown cmdlet: CommandNotFoundException  about_command_precedence
============================================ =======================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from platforms.hyperv_host import DIRECTORY, Host, PsError, path_of

Given = dict[str, Any]
Made = Iterable[Any]
KNOWN: dict[str, tuple[frozenset[str], Callable[[Host, Given, list[Any]], Made]]] = {}


def cmdlet(name: str, *parameters: str) -> Callable[[Any], Any]:
    def known(work: Any) -> Any:
        KNOWN[name.lower()] = (frozenset(each.lower() for each in parameters), work)
        return work

    return known


def run(host: Host, name: str, given: list[tuple[str, Any]], objects: list[Any]) -> list[Any]:
    """Run one command of a pipeline on the objects that come in."""
    if name.lower() not in KNOWN:
        words = f"The term '{name}' is not recognized as the name of a cmdlet."
        raise PsError("CommandNotFoundException", words, terminating=True)
    allowed, work = KNOWN[name.lower()]
    for parameter, _ in given:
        if parameter.lower() not in allowed:
            words = f"A parameter cannot be found that matches parameter name '{parameter}'."
            raise PsError(f"NamedParameterNotFound,{of(name)}", words, terminating=True)
    if name in host.fails:
        raise host.fails.pop(name)
    return list(work(host, dict(given), objects))


def of(name: str) -> str:
    return f"Microsoft.HyperV.PowerShell.Commands.{name.replace('-', '')}"


def refused(code: str, name: str, words: str) -> PsError:
    return PsError(f"{code},{of(name)}", words)


def require_rights(host: Host, name: str) -> None:
    if not host.may_hyperv:
        words = (
            "You do not have the required permission to complete this task. Contact the "
            "administrator of the authorization policy for the computer 'HYPERV1'."
        )
        raise refused("AccessDenied", name, words)


# What shapes a pipeline.


@cmdlet("Select-Object", "Property")
def select(host: Host, given: Given, objects: list[Any]) -> Made:
    for each in objects:
        properties = each if isinstance(each, dict) else each.properties(host)
        yield {name: properties.get(name) for name in given["Property"]}


@cmdlet("Where-Object", "Property", "EQ", "Like", "Value")
def where(host: Host, given: Given, objects: list[Any]) -> Made:
    wanted = str(given["Value"])
    for each in objects:
        properties = each if isinstance(each, dict) else each.properties(host)
        value = str(properties.get(given["Property"]))
        if given.get("Like"):
            assert wanted.count("*") == 1 and wanted.endswith("*")
            if value.lower().startswith(wanted[:-1].lower()):
                yield each
        elif value.lower() == wanted.lower():
            yield each


# The host and its files.


@cmdlet("Get-VMHost")
def get_host(host: Host, given: Given, objects: list[Any]) -> Made:
    require_rights(host, "Get-VMHost")
    yield dict(host.hardware)


@cmdlet("Get-VMHostNumaNode")
def get_numa_nodes(host: Host, given: Given, objects: list[Any]) -> Made:
    require_rights(host, "Get-VMHostNumaNode")
    for number in range(host.nodes):
        memory = host.hardware["MemoryCapacity"] // host.nodes >> 20
        yield {
            "NodeId": number,
            "ProcessorsAvailability": [100]
            * (host.hardware["LogicalProcessorCount"] // host.nodes),
            "MemoryTotal": memory,
            "MemoryAvailable": memory - 1024,
        }


@cmdlet("Get-VMSwitch", "Name")
def get_switch(host: Host, given: Given, objects: list[Any]) -> Made:
    for name in host.switches if host.may_hyperv else ():
        yield {"Name": name, "SwitchType": "External", "Notes": ""}
    yield from host.made if host.may_hyperv else ()


@cmdlet("Test-Path", "LiteralPath", "PathType")
def test_path(host: Host, given: Given, objects: list[Any]) -> Made:
    found = host.files.get(path_of(given["LiteralPath"]))
    kind = given.get("PathType", "Any")
    is_folder = found == DIRECTORY
    yield found is not None and (kind == "Any" or is_folder == (kind == "Container"))


@cmdlet("New-Item", "Path", "ItemType")
def new_item(host: Host, given: Given, objects: list[Any]) -> Made:
    commands = "Microsoft.PowerShell.Commands.NewItemCommand"
    if not host.may_write:
        words = "Access to the path is denied."
        raise PsError(f"CreateDirectoryUnauthorizedAccessError,{commands}", words)
    if path_of(given["Path"]) in host.files:
        words = f"An item with the specified name {given['Path']} already exists."
        raise PsError(f"DirectoryExist,{commands}", words)
    host.files[path_of(given["Path"])] = DIRECTORY
    yield {"Name": given["Path"].rpartition("\\")[2]}


@cmdlet("Copy-Item", "LiteralPath", "Destination")
def copy_item(host: Host, given: Given, objects: list[Any]) -> Made:
    commands = "Microsoft.PowerShell.Commands.CopyItemCommand"
    content = host.files.get(path_of(given["LiteralPath"]))
    if content is None:
        raise PsError(f"PathNotFound,{commands}", f"Cannot find path '{given['LiteralPath']}'.")
    if host.full:
        # The disk fills up half-way: what was written so far stays.
        host.files[path_of(given["Destination"])] = content[:1]
        raise PsError(
            f"CopyFileInfoItemIOError,{commands}", "There is not enough space on the disk."
        )
    host.files[path_of(given["Destination"])] = content
    return ()


@cmdlet("Remove-Item", "LiteralPath", "Recurse", "Force", "Confirm")
def remove_item(host: Host, given: Given, objects: list[Any]) -> Made:
    commands = "Microsoft.PowerShell.Commands.RemoveItemCommand"
    path = path_of(given["LiteralPath"])
    if path not in host.files:
        raise PsError(f"PathNotFound,{commands}", f"Cannot find path '{given['LiteralPath']}'.")
    running = [drive.path for vm in host.vms.values() if vm.state != "Off" for drive in vm.drives]
    if any(path_of(each).startswith(path) for each in [*running, host.held] if each):
        words = "The process cannot access the file because it is being used by another process."
        raise PsError(f"RemoveFileSystemItemIOError,{commands}", words)
    for each in [each for each in host.files if each == path or each.startswith(path + "\\")]:
        del host.files[each]
    return ()


@cmdlet("Get-ItemProperty", "LiteralPath")
def get_item_property(host: Host, given: Given, objects: list[Any]) -> Made:
    found = host.registry.get(given["LiteralPath"].lower())
    if found is None:
        commands = "Microsoft.PowerShell.Commands.GetItemPropertyCommand"
        raise PsError(f"PathNotFound,{commands}", f"Cannot find path '{given['LiteralPath']}'.")
    yield dict(found)


@cmdlet("Get-CimInstance", "ClassName", "Namespace", "Filter")
def get_cim_instance(host: Host, given: Given, objects: list[Any]) -> Made:
    commands = "Microsoft.Management.Infrastructure.CimCmdlets.GetCimInstanceCommand"
    if not host.may_wmi:
        raise PsError(f"HRESULT 0x80041003,{commands}", "Access denied")
    wanted = given.get("Filter", "").removeprefix("InstanceID LIKE '").removesuffix("%'").lower()
    for each in host.instances(given["ClassName"]):
        # WQL compares text whatever its case.
        if str(each.get("InstanceID", "")).lower().startswith(wanted):
            yield each


@cmdlet("Get-WinEvent", "FilterHashtable", "MaxEvents")
def get_win_event(host: Host, given: Given, objects: list[Any]) -> Made:
    if not host.may_log:
        commands = "Microsoft.PowerShell.Commands.GetWinEventCommand"
        raise PsError(f"LogsAndProvidersDontOverlap,{commands}", "There are no such logs.")
    assert given["FilterHashtable"]["Id"] == 2
    yield {"Message": f"Hypervisor scheduler type is 0x{host.scheduler:x}."}


def write_all_bytes(host: Host, given: Given) -> None:
    """Do what the one script of Tare's does."""
    if not host.may_write:
        words = "Access to the path is denied."
        raise PsError("UnauthorizedAccessException", words, terminating=True)
    host.files[path_of(given["Path"])] = bytes(given["Bytes"])
