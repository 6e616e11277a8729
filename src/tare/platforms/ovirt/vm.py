"""A VM at an engine: its requested and reported properties, and its disturbances."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tare.errors import MachineFault
from tare.platforms.contract import MachineSpec
from tare.platforms.ovirt.engine import MARK, Engine
from tare.platforms.ovirt.options import OvirtOptions
from tare.platforms.vendors.configuration import FILE, LABEL
from tare.platforms.vendors.machine import VirtualMachine
from tare.platforms.vendors.session import NoSuchObject

BLANK = "Blank"
STANDING = ("paused", "not_responding", "unknown", "suspended", "saving_state")
"""The states in which a VM neither runs nor is off."""


def vm_wanted(
    types: Any,
    options: OvirtOptions,
    spec: MachineSpec,
    cluster: str,
    host: str,
    configuration: Mapping[str, Any],
    profile: str | None,
) -> Any:
    """Return the VM to request from the engine: pinned to a host, without a balloon.

    Args:
        types: The library's types.
        options: The arm's options.
        spec: The specification of the machine.
        cluster: The cluster's id.
        host: The host's id.
        configuration: The configuration for its agent; the host puts it on a CD.
        profile: The CPU profile's id; None: the cluster's default.
    """
    vcpus = spec.shape.vcpus
    pins = [
        types.VcpuPin(vcpu=number, cpu_set=str(spec.cpus[number % len(spec.cpus)]))
        for number in range(vcpus if spec.cpus else 0)
    ]
    bios = {
        ("q35", "bios"): types.BiosType.Q35_SEA_BIOS,
        ("q35", "uefi"): types.BiosType.Q35_OVMF,
        ("i440fx", "bios"): types.BiosType.I440FX_SEA_BIOS,
    }[options.chipset, options.firmware]
    return types.Vm(
        name=spec.name,
        comment=MARK + spec.name,
        description="a machine of Tare's, removed when it was measured",
        cluster=types.Cluster(id=cluster),
        template=types.Template(name=BLANK),
        type=types.VmType.SERVER,
        stateless=False,
        memory=spec.shape.memory,
        # This way no memory can be ballooned or hot-plugged.
        memory_policy=types.MemoryPolicy(
            guaranteed=spec.shape.memory, max=spec.shape.memory, ballooning=False
        ),
        cpu=types.Cpu(
            topology=types.CpuTopology(sockets=vcpus, cores=1, threads=1),
            cpu_tune=types.CpuTune(vcpu_pins=pins) if pins else None,
        ),
        cpu_shares=options.cpu_shares(spec.role),
        cpu_profile=types.CpuProfile(id=profile) if profile is not None else None,
        bios=types.Bios(type=bios),
        os=types.OperatingSystem(
            type="other_linux",
            boot=types.Boot(devices=[types.BootDevice.CDROM, types.BootDevice.HD]),
        ),
        high_availability=types.HighAvailability(enabled=False),
        placement_policy=types.VmPlacementPolicy(
            affinity=types.VmAffinity.PINNED, hosts=[types.Host(id=host)]
        ),
        usb=types.Usb(enabled=False),
        soundcard_enabled=False,
        payloads=[
            types.Payload(
                type=types.VmDeviceType.CDROM,
                volume_id=LABEL,
                files=[types.File(name=FILE, content=json.dumps(configuration, sort_keys=True))],
            )
        ],
    )


def differing(wanted: Any, found: Any) -> str:
    """Describe how a VM differs from the request; empty if it does not."""
    asked, reported = _shape(wanted), _shape(found)
    for name, value in asked.items():
        if value is not None and reported[name] != value:
            return f"{name} was to be {value}, but the engine reports {reported[name]}"
    return ""


def _shape(vm: Any) -> dict[str, Any]:
    topology, tune = vm.cpu.topology, vm.cpu.cpu_tune
    pins = tune.vcpu_pins if tune is not None and tune.vcpu_pins else ()
    policy, placement = vm.memory_policy, vm.placement_policy
    return {
        "memory": vm.memory,
        "guaranteed memory": policy.guaranteed if policy else None,
        "ballooning": policy.ballooning if policy else None,
        "vCPUs": topology.sockets * topology.cores * (topology.threads or 1),
        "pinning": {pin.vcpu: pin.cpu_set for pin in pins},
        "CPU shares": vm.cpu_shares,
        "CPU profile": vm.cpu_profile.id if vm.cpu_profile else None,
        "firmware": str(vm.bios.type) if vm.bios and vm.bios.type else None,
        "host": [host.id for host in placement.hosts] if placement and placement.hosts else None,
    }


class OvirtVm(VirtualMachine):
    """A VM that has been created.

    Args:
        engine: The engine.
        vm: The VM's id.
        wanted: The VM as requested.
        facts: The facts that the engine and the host reported about themselves.
    """

    def __init__(self, engine: Engine, vm: str, wanted: Any, facts: Mapping[str, Any]) -> None:
        self._engine = engine
        self._vm = vm
        self._wanted = wanted
        self._facts = facts
        self._host: str | None = None
        self._started: Any = None

    async def power_on(self) -> None:
        """Check that the VM is as requested, and start it."""
        if why := differing(self._wanted, await self._engine.vm(self._vm)):
            raise MachineFault(why)
        await self._engine.power_on(self._vm)

    async def why_off(self) -> str:
        """Return why the VM does not run; empty while it runs."""
        try:
            vm = await self._engine.vm(self._vm)
        except NoSuchObject:
            return "its VM is gone from the engine"
        state = str(vm.status)
        if state == "down":
            return "the engine reports that its VM is down" + (
                f" ({vm.stop_reason})" if vm.stop_reason else ""
            )
        if state in STANDING:
            detail = f" ({vm.status_detail})" if vm.status_detail else ""
            return f"the engine reports that its VM is {state.replace('_', ' ')}{detail}"
        return ""

    async def power_off(self) -> None:
        """Switch the VM off at once; do nothing if it is gone."""
        try:
            await self._engine.power_off(self._vm)
        except NoSuchObject:
            return

    async def applied(self) -> Mapping[str, Any]:
        """Return the VM's properties as the engine reports them."""
        vm = await self._engine.vm(self._vm)
        self._host = vm.host.id if vm.host else None
        self._started = vm.start_time
        shape = _shape(vm)
        scheduling: dict[str, Any] = {}
        if shape["CPU shares"]:
            scheduling["cpu-shares"] = shape["CPU shares"]
        if shape["pinning"]:
            scheduling["vcpus"] = {str(vcpu): cpus for vcpu, cpus in shape["pinning"].items()}
        hypervisor = {**self._facts, "machine": shape["firmware"] or ""}
        if (ha := vm.high_availability) is not None and ha.enabled is not None:
            hypervisor["HA"] = "on" if ha.enabled else "off"
        if shape["CPU profile"]:
            hypervisor["CPU profile"] = shape["CPU profile"]
        applied: dict[str, Any] = {"hypervisor": hypervisor}
        return {**applied, "scheduling": scheduling} if scheduling else applied

    async def disturbances(self) -> tuple[str, ...]:
        """Return the events that disturbed it: migration, snapshots, backups, pauses, restarts."""
        try:
            vm = await self._engine.vm(self._vm)
            snapshots, backups = await self._copies()
        except NoSuchObject:
            return ("it left the engine",)
        found = [f"snapshot {each.id}" for each in snapshots]
        found += [f"backup {each.id}" for each in backups]
        state = str(vm.status)
        if state in (*STANDING, "migrating", "reboot_in_progress"):
            found.append(f"it was {state.replace('_', ' ')}")
        if self._host is not None and (vm.host is None or vm.host.id != self._host):
            found.append(f"migrated to {vm.host.id if vm.host else 'no host'}")
        if self._started is not None and vm.start_time != self._started:
            found.append("it was restarted")
        if vm.memory_policy is not None and vm.memory_policy.ballooning:
            found.append("ballooned: its balloon is on")
        if vm.memory != self._wanted.memory:
            found.append(f"its memory is {vm.memory} bytes")
        return tuple(found)

    async def _copies(self) -> tuple[list[Any], list[Any]]:
        """Return the snapshots that were taken, and the backups."""
        active = self._engine.types.SnapshotType.ACTIVE
        snapshots = await self._engine.ask(
            lambda api: api.vms_service().vm_service(self._vm).snapshots_service().list()
        )
        try:
            backups = await self._engine.ask(
                lambda api: api.vms_service().vm_service(self._vm).backups_service().list()
            )
        except NoSuchObject:
            # Engines before 4.4 have no backups.
            backups = []
        return [each for each in snapshots if each.snapshot_type != active], list(backups)
