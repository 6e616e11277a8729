"""The specification of a virtual machine, in the API's own types (``VirtualMachineConfigSpec``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tare.errors import InputError
from tare.platforms.contract import Shape
from tare.platforms.vendors.isolated_network import IsolatedNic
from tare.platforms.vendors.own_disk import Bus, OwnDisk
from tare.platforms.vsphere.inventory import VmLocation
from tare.platforms.vsphere.options import CpuAllocation, VsphereOptions

GUEST = "otherLinux64Guest"
CONFIGURATION = "tare-cfg.iso"
SCSI, IDE, NIC, DISK, CD, BOOT_CD, OWN, SECOND_NIC = range(-101, -109, -1)
"""Keys of new devices are negative; the server replaces them."""


BUSES = {
    "paravirtual": Bus("PVSCSI", frozenset({"vmw_pvscsi"})),
    "emulated": Bus("LSI Logic", frozenset({"mptspi"})),
}
"""The bus of a disk, by the arm's `devices`."""


def require_processors(wanted: Sequence[int], threads: int) -> None:
    """Check that an ESXi host has some logical processors, because the API accepts any number.

    Args:
        wanted: The numbers of the processors.
        threads: The number of logical processors that the host has.

    Raises:
        InputError: One of them is missing.
    """
    if beyond := [processor for processor in wanted if processor >= threads]:
        raise InputError(
            f"there is no processor {beyond[0]} on the ESXi host, which has {threads}",
            f"list by `processors` those that machines are to use, out of 0 to {threads - 1}",
        )


def config_spec(
    vim: Any,
    options: VsphereOptions,
    name: str,
    shape: Shape,
    where: VmLocation,
    pins: Sequence[int],
    cpu: CpuAllocation,
) -> Any:
    """Return the machine to create: CPU, memory, a SCSI controller and a network interface.

    Args:
        vim: The API's types.
        options: The arm's options.
        name: The machine's name.
        shape: The machine's size.
        where: The location in which it is created.
        pins: The logical processors of the host that it may use; empty: any.
        cpu: Its allocation of the host's CPUs.
    """
    memory = shape.memory >> 20
    spec = vim.vm.ConfigSpec(
        name=name,
        annotation="made by Tare, and removed by it",
        guestId=GUEST,
        numCPUs=shape.vcpus,
        numCoresPerSocket=shape.vcpus,
        memoryMB=memory,
        cpuHotAddEnabled=False,
        memoryHotAddEnabled=False,
        files=vim.vm.FileInfo(vmPathName=f"[{where.datastore.name}]"),
        cpuAllocation=_allocation(vim, cpu),
        memoryReservationLockedToMax=options.reserve_memory,
        latencySensitivity=vim.LatencySensitivity(level=options.latency_sensitivity),
        extraConfig=[
            vim.option.OptionValue(key=key, value=value) for key, value in extra(options).items()
        ],
        deviceChange=[
            _added(vim, _controller(vim, options)),
            _added(vim, vim.vm.device.VirtualIDEController(key=IDE, busNumber=0)),
            _added(vim, _nic(vim, options, _backing(vim, where.network))),
        ],
    )
    if options.hardware is not None:
        spec.version = f"vmx-{options.hardware:02d}"
    if options.reserve_memory:
        spec.memoryAllocation = vim.ResourceAllocationInfo(reservation=memory)
    if pins:
        spec.cpuAffinity = vim.vm.AffinityInfo(affinitySet=list(pins))
    return spec


def extra(options: VsphereOptions) -> dict[str, str]:
    """Return the settings that have no field of their own in the API."""
    return {"stealclock.enable": "TRUE"} if options.steal_clock else {}


def _allocation(vim: Any, cpu: CpuAllocation) -> Any:
    shares = vim.SharesInfo(level="normal", shares=0)
    if cpu.shares is not None:
        shares = vim.SharesInfo(level="custom", shares=cpu.shares)
    return vim.ResourceAllocationInfo(
        reservation=cpu.reservation or 0,
        limit=-1 if cpu.limit is None else cpu.limit,
        shares=shares,
    )


def _controller(vim: Any, options: VsphereOptions) -> Any:
    kinds = {
        "paravirtual": vim.vm.device.ParaVirtualSCSIController,
        "emulated": vim.vm.device.VirtualLsiLogicController,
    }
    return kinds[options.devices](key=SCSI, busNumber=0, sharedBus="noSharing")


def _backing(vim: Any, network: Any) -> Any:
    """Return the backing that connects a card to a port group."""
    if not isinstance(network, vim.dvs.DistributedVirtualPortgroup):
        return vim.vm.device.VirtualEthernetCard.NetworkBackingInfo(
            deviceName=network.name, network=network
        )
    port = vim.dvs.PortConnection(
        portgroupKey=network.key, switchUuid=network.config.distributedVirtualSwitch.uuid
    )
    return vim.vm.device.VirtualEthernetCard.DistributedVirtualPortBackingInfo(port=port)


def _nic(vim: Any, options: VsphereOptions, backing: Any, key: int = NIC, mac: str = "") -> Any:
    """Return a network card.

    Args:
        vim: The API's types.
        options: The arm's options.
        backing: The backing for its port group.
        key: The card's device key.
        mac: The card's MAC address; empty: vSphere generates one.
    """
    kind = "vmxnet3" if options.devices == "paravirtual" else options.nic
    kinds = {
        "vmxnet3": vim.vm.device.VirtualVmxnet3,
        "e1000": vim.vm.device.VirtualE1000,
        "e1000e": vim.vm.device.VirtualE1000e,
    }
    return kinds[kind](
        key=key,
        # An address outside VMware's own range may be any that is unique ("Assign a Static MAC
        # Address", vSphere Networking).
        addressType="manual" if mac else "generated",
        macAddress=mac or None,
        backing=backing,
        connectable=_connected(vim),
    )


def second_card(vim: Any, options: VsphereOptions, host: Any, card: IsolatedNic) -> Any:
    """Return the change that adds a card of the first card's kind on an isolated network.

    Args:
        vim: The API's types.
        options: The arm's options.
        host: The ESXi host.
        card: The card, on a port group of a standard or of a distributed switch.
    """
    name = options.isolated_network or card.network
    distributed = [
        each
        for each in host.network
        if isinstance(each, vim.dvs.DistributedVirtualPortgroup) and each.name == name
    ]
    backing = (
        _backing(vim, distributed[0])
        if distributed
        # A port group of a standard switch is identified by its name.
        else vim.vm.device.VirtualEthernetCard.NetworkBackingInfo(deviceName=name)
    )
    return _added(vim, _nic(vim, options, backing, SECOND_NIC, card.mac))


def media(
    vim: Any,
    devices: Sequence[Any],
    options: VsphereOptions,
    folder: str,
    own: OwnDisk | None = None,
) -> list[Any]:
    """Return the changes that attach the configuration, the boot medium, and the machine's disk.

    Args:
        vim: The API's types.
        devices: The devices of the virtual machine, including its controllers.
        options: The arm's options.
        folder: The machine's folder, as ``[DATASTORE] PATH``.
        own: The machine's empty disk; None: it has none.
    """
    ide = _key_of(devices, vim.vm.device.VirtualIDEController)
    changes = [_added(vim, _cd(vim, CD, ide, 1, f"{folder}/{CONFIGURATION}"))]
    if options.boot is not None and options.boot.endswith(".iso"):
        changes.append(_added(vim, _cd(vim, BOOT_CD, ide, 0, options.boot)))
    elif options.boot is not None:
        scsi = _key_of(devices, vim.vm.device.VirtualSCSIController)
        backing = vim.vm.device.VirtualDisk.FlatVer2BackingInfo(
            fileName=f"{folder}/{BOOT_DISK}", diskMode="persistent"
        )
        disk = vim.vm.device.VirtualDisk(
            key=DISK, controllerKey=scsi, unitNumber=0, backing=backing
        )
        changes.append(_added(vim, disk))
    if own is not None:
        scsi = _key_of(devices, vim.vm.device.VirtualSCSIController)
        changes.append(_created(vim, own, scsi, f"{folder}/{OWN_DISK}"))
    return changes


def _created(vim: Any, own: OwnDisk, controller: int, file: str) -> Any:
    """Return the change that creates and attaches an empty disk."""
    backing = vim.vm.device.VirtualDisk.FlatVer2BackingInfo(
        fileName=file,
        diskMode="persistent",
        # All blocks are allocated and zeroed now, and not during a measurement.
        thinProvisioned=False,
        eagerlyScrub=True,
    )
    disk = vim.vm.device.VirtualDisk(
        key=OWN,
        controllerKey=controller,
        unitNumber=1,
        capacityInKB=own.size >> 10,
        capacityInBytes=own.size,
        backing=backing,
    )
    return vim.vm.device.VirtualDeviceSpec(operation="add", fileOperation="create", device=disk)


BOOT_DISK, OWN_DISK = "tare-boot.vmdk", "tare-disk.vmdk"


def _cd(vim: Any, key: int, controller: int, unit: int, file: str) -> Any:
    return vim.vm.device.VirtualCdrom(
        key=key,
        controllerKey=controller,
        unitNumber=unit,
        backing=vim.vm.device.VirtualCdrom.IsoBackingInfo(fileName=file),
        connectable=_connected(vim),
    )


def _connected(vim: Any) -> Any:
    return vim.vm.device.VirtualDevice.ConnectInfo(
        startConnected=True, allowGuestControl=False, connected=True
    )


def _key_of(devices: Sequence[Any], kind: Any) -> int:
    return next(int(device.key) for device in devices if isinstance(device, kind))


def _added(vim: Any, device: Any) -> Any:
    return vim.vm.device.VirtualDeviceSpec(operation="add", device=device)
