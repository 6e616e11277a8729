"""The cmdlets that create and change VMs; :mod:`hyperv_cmdlets` lists what they refuse."""

from __future__ import annotations

import re
import uuid
from typing import Any

from platforms.hyperv_cmdlets import Given, Made, cmdlet, refused, require_rights
from platforms.hyperv_host import DIRECTORY, HOST, Card, Drive, Host, Vm, VmSwitch, path_of

PERCENT, WEIGHT = range(101), range(1, 10_001)
MOST = {1: 64, 2: 240}
"""vCPUs of each generation ("Plan for Hyper-V scalability", Windows Server 2016)."""


def require_off(vm: Vm, name: str) -> None:
    if vm.state != "Off":
        words = (
            f"Modifying the properties of '{vm.name}' failed. The operation cannot be performed "
            "while the object is in its current state."
        )
        raise refused("InvalidState", name, words)


def require_switch(host: Host, switch: str, name: str) -> None:
    if switch not in [*host.switches, *(each.name for each in host.made)]:
        words = f'Hyper-V was unable to find a virtual switch with name "{switch}".'
        raise refused("InvalidParameter", name, words)


@cmdlet("Get-VM", "Name", "Id")
def get_vm(host: Host, given: Given, objects: list[Any]) -> Made:
    seen = [vm for vm in host.vms.values() if host.may_hyperv]
    if "Id" in given:
        seen = [vm for vm in seen if vm.id == given["Id"]]
    if "Name" in given:
        seen = [vm for vm in seen if vm.name.lower() == given["Name"].lower()]
    if given and not seen:
        asked = next(iter(given.values()))
        words = f'Hyper-V was unable to find a virtual machine with "{asked}".'
        raise refused("InvalidParameter", "Get-VM", words)
    return seen


@cmdlet(
    "New-VM",
    *("Name", "Generation", "MemoryStartupBytes", "Path", "NoVHD", "VHDPath", "BootDevice"),
    "SwitchName",
)
def new_vm(host: Host, given: Given, objects: list[Any]) -> Made:
    require_rights(host, "New-VM")
    generation, disk = given["Generation"], given.get("VHDPath")
    if disk is not None and path_of(disk) not in host.files:
        raise refused("InvalidParameter", "New-VM", f"The file '{disk}' was not found.")
    if generation == 2 and given.get("BootDevice") in ("Floppy", "LegacyNetworkAdapter", "IDE"):
        words = "Generation 2 virtual machines do not support this boot device."
        raise refused("InvalidParameter", "New-VM", words)
    if disk is not None and generation == 2 and disk.lower().endswith(".vhd"):
        words = "Generation 2 virtual machines do not support VHD format virtual hard disks."
        raise refused("InvalidParameter", "New-VM", words)
    if not 32 << 20 <= given["MemoryStartupBytes"] <= HOST["MemoryCapacity"]:
        raise refused("InvalidParameter", "New-VM", "Invalid memory assignment.")
    home = f"{host.moved or given['Path']}\\{given['Name']}"
    vm = Vm(given["Name"], generation, given["MemoryStartupBytes"], home)
    host.files.setdefault(path_of(home), DIRECTORY)
    host.files[path_of(f"{home}\\Virtual Machines\\{vm.id}.vmcx")] = b"configuration"
    if disk is not None:
        vm.disks.append(disk)
    # Generation 1 has a DVD drive from the beginning; generation 2 one to boot from.
    if generation == 1 or given.get("BootDevice") == "CD":
        vm.drives.append(Drive(1 if generation == 1 else 0, 0))
    vm.boots = given.get("BootDevice", "")
    vm.cards.append(Card(False, given.get("SwitchName")))
    host.vms[vm.id] = vm
    yield vm


@cmdlet(
    "Set-VM",
    *("StaticMemory", "CheckpointType", "AutomaticStartAction", "AutomaticStopAction", "Notes"),
)
def set_vm(host: Host, given: Given, objects: list[Any]) -> Made:
    for vm in objects:
        require_off(vm, "Set-VM")
        vm.dynamic = vm.dynamic and not given.get("StaticMemory")
        vm.checkpoints = given.get("CheckpointType", vm.checkpoints)
        vm.notes = given.get("Notes", vm.notes)
    return ()


@cmdlet("Get-VMProcessor")
def get_processor(host: Host, given: Given, objects: list[Any]) -> Made:
    for vm in objects:
        yield {**vm.processor}


@cmdlet("Set-VMProcessor", "Count", "Maximum", "Reserve", "RelativeWeight")
def set_processor(host: Host, given: Given, objects: list[Any]) -> Made:
    for vm in objects:
        require_off(vm, "Set-VMProcessor")
        limits = {"Maximum": PERCENT, "Reserve": PERCENT, "RelativeWeight": WEIGHT}
        # Whether the host has as many is asked at the start alone.
        limits["Count"] = range(1, MOST[vm.generation] + 1)
        for name, value in given.items():
            if value not in limits[name]:
                words = f"Failed to modify device 'Processor'. {name} {value} is out of range."
                raise refused("InvalidParameter", "Set-VMProcessor", words)
        vm.processor |= given
    return ()


@cmdlet("Set-VMFirmware", "EnableSecureBoot", "SecureBootTemplate")
def set_firmware(host: Host, given: Given, objects: list[Any]) -> Made:
    for vm in objects:
        if vm.generation != 2:
            words = f"The virtual machine '{vm.name}' is not a generation 2 virtual machine."
            raise refused("InvalidParameter", "Set-VMFirmware", words)
        vm.firmware |= given
    return ()


@cmdlet("New-VMSwitch", "Name", "SwitchType", "Notes")
def new_switch(host: Host, given: Given, objects: list[Any]) -> Made:
    require_rights(host, "New-VMSwitch")
    # External ones take a network card; these two types are the others.
    assert given["SwitchType"] in ("Private", "Internal")
    host.made.append(VmSwitch(given["Name"], given["SwitchType"], given.get("Notes", "")))
    yield host.made[-1]


@cmdlet("Remove-VMSwitch", "Force", "Confirm")
def remove_switch(host: Host, given: Given, objects: list[Any]) -> Made:
    for switch in objects:
        running = (vm for vm in host.vms.values() if vm.state != "Off")
        if any(card.switch == switch.name for vm in running for card in vm.cards):
            words = (
                "Failed while removing virtual Ethernet switch. The virtual switch "
                f"'{switch.name}' cannot be deleted because it is being used by running virtual "
                "machines or assigned to child pools."
            )
            raise refused("ObjectInUse", "Remove-VMSwitch", words)
        host.made.remove(switch)
    return ()


@cmdlet("Get-VMNetworkAdapter")
def get_card(host: Host, given: Given, objects: list[Any]) -> Made:
    for vm in objects:
        yield from vm.cards


@cmdlet("Remove-VMNetworkAdapter", "Confirm")
def remove_card(host: Host, given: Given, objects: list[Any]) -> Made:
    for card in objects:
        for vm in host.vms.values():
            vm.cards = [each for each in vm.cards if each is not card]
    return ()


@cmdlet("Add-VMNetworkAdapter", "SwitchName", "IsLegacy", "StaticMacAddress")
def add_card(host: Host, given: Given, objects: list[Any]) -> Made:
    for vm in objects:
        require_switch(host, given["SwitchName"], "Add-VMNetworkAdapter")
        if given.get("IsLegacy") and vm.generation == 2:
            words = "Legacy network adapters are not supported by generation 2 virtual machines."
            raise refused("InvalidParameter", "Add-VMNetworkAdapter", words)
        mac = given.get("StaticMacAddress", "")
        if mac and not re.fullmatch(r"[0-9A-Fa-f]{12}", mac):
            words = f"'{mac}' is an invalid MAC address."
            raise refused("InvalidParameter", "Add-VMNetworkAdapter", words)
        vm.cards.append(Card(bool(given.get("IsLegacy")), given["SwitchName"], mac))
    return ()


@cmdlet("Set-VMNetworkAdapter", "MaximumBandwidth")
def set_card(host: Host, given: Given, objects: list[Any]) -> Made:
    for card in objects:
        if card.legacy:
            words = "Bandwidth settings are not supported by legacy network adapters."
            raise refused("InvalidParameter", "Set-VMNetworkAdapter", words)
        if given["MaximumBandwidth"] < 100_000:
            words = "The maximum bandwidth must be at least 100000 bits per second."
            raise refused("InvalidParameter", "Set-VMNetworkAdapter", words)
        card.most = int(given["MaximumBandwidth"])
    return ()


@cmdlet("Get-VMDvdDrive")
def get_drive(host: Host, given: Given, objects: list[Any]) -> Made:
    for vm in objects:
        yield from vm.drives


def require_file(host: Host, path: str, name: str) -> None:
    if path_of(path) not in host.files:
        raise refused("InvalidParameter", name, f"The file '{path}' was not found.")


@cmdlet("Set-VMDvdDrive", "Path")
def set_drive(host: Host, given: Given, objects: list[Any]) -> Made:
    for drive in objects:
        require_file(host, given["Path"], "Set-VMDvdDrive")
        drive.path = given["Path"]
    return ()


@cmdlet("Add-VMDvdDrive", "Path", "ControllerNumber", "ControllerLocation")
def add_drive(host: Host, given: Given, objects: list[Any]) -> Made:
    for vm in objects:
        require_file(host, given["Path"], "Add-VMDvdDrive")
        place = (given.get("ControllerNumber", 0), given.get("ControllerLocation", len(vm.drives)))
        if any((each.number, each.location) == place for each in vm.drives):
            words = "The specified location is already in use."
            raise refused("InvalidParameter", "Add-VMDvdDrive", words)
        vm.drives.append(Drive(*place, path=given["Path"]))
    return ()


@cmdlet("New-VHD", "Path", "SizeBytes", "Fixed")
def new_disk(host: Host, given: Given, objects: list[Any]) -> Made:
    require_rights(host, "New-VHD")
    path, size = given["Path"], given["SizeBytes"]
    if path_of(path) in host.files:
        words = f"Failed to create the virtual hard disk. The file '{path}' exists. (0x80070050)."
        raise refused("ResourceExists", "New-VHD", words)
    if not 3 << 20 <= size <= 64 << 40 or size % 512:
        words = "Failed to create the virtual hard disk. One of its sizes is not valid."
        raise refused("InvalidParameter", "New-VHD", words)
    host.files[path_of(path)] = b"an empty disk of %d bytes" % size
    yield {"Path": path, "Size": size}


@cmdlet("Add-VMHardDiskDrive", "Path", "ControllerType", "ControllerNumber", "ControllerLocation")
def add_disk(host: Host, given: Given, objects: list[Any]) -> Made:
    for vm in objects:
        require_file(host, given["Path"], "Add-VMHardDiskDrive")
        if given["ControllerType"] == "IDE":
            if vm.generation == 2:
                words = "Generation 2 virtual machines do not support IDE controllers."
                raise refused("InvalidParameter", "Add-VMHardDiskDrive", words)
            place = (given["ControllerNumber"], given["ControllerLocation"])
            taken = {(0, number) for number in range(len(vm.disks))}
            if place in taken | {(each.number, each.location) for each in vm.drives}:
                words = "The specified location is already in use."
                raise refused("InvalidParameter", "Add-VMHardDiskDrive", words)
        vm.added.append((given["ControllerType"], given["Path"]))
    return ()


@cmdlet("Start-VM")
def start_vm(host: Host, given: Given, objects: list[Any]) -> Made:
    for vm in objects:
        if vm.processor["Count"] > HOST["LogicalProcessorCount"]:
            words = (
                f"'{vm.name}' failed to start. The processor topology specified for the virtual "
                "machine cannot be supported by this host."
            )
            raise refused("OperationFailed", "Start-VM", words)
        # For a VM that already runs, it only warns.
        if vm.state == "Off":
            host.start(vm)
    return ()


@cmdlet("Stop-VM", "TurnOff", "Force", "Confirm")
def stop_vm(host: Host, given: Given, objects: list[Any]) -> Made:
    assert given["TurnOff"] is True
    for vm in objects:
        host.stop(vm)
    return ()


@cmdlet("Remove-VM", "Force", "Confirm")
def remove_vm(host: Host, given: Given, objects: list[Any]) -> Made:
    for vm in objects:
        require_off(vm, "Remove-VM")
        del host.vms[vm.id]
        # Its configuration goes, its disks stay.
        host.files.pop(path_of(f"{vm.path}\\Virtual Machines\\{vm.id}.vmcx"), None)
    return ()


@cmdlet("Get-VMSnapshot")
def get_snapshot(host: Host, given: Given, objects: list[Any]) -> Made:
    for vm in objects:
        for each in vm.snapshots:
            yield {"Id": uuid.UUID(each), "VMName": vm.name}
