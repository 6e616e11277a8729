"""A vSphere virtual machine, and the events that disturbed it."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tare.errors import MachineFault
from tare.events.hypervisor import HypervisorFigures
from tare.platforms.vendors.machine import VirtualMachine
from tare.platforms.vendors.session import NoSuchObject
from tare.platforms.vsphere.builder import VmBuilder
from tare.platforms.vsphere.esxi_host import proof_of
from tare.platforms.vsphere.figures import figures_of
from tare.platforms.vsphere.inventory import properties
from tare.platforms.vsphere.options import VsphereOptions
from tare.platforms.vsphere.session import VsphereSession

ON = "poweredOn"


class VsphereVm(VirtualMachine):
    """A virtual machine that was created.

    Args:
        session: The machine's own session.
        options: The arm's options.
        name: Its name.
        vcpus: Its number of vCPUs.
        builder: The builder that created it.
    """

    def __init__(
        self,
        session: VsphereSession,
        options: VsphereOptions,
        name: str,
        vcpus: int,
        builder: VmBuilder,
    ) -> None:
        self._session = session
        self._vim = session.vim
        self._options = options
        self._name = name
        self._vcpus = vcpus
        self._id = builder.vm
        self._home = builder.home
        self._pins, self._cpu = builder.pins, builder.cpu

    def _known(self, client: Any) -> Any:
        return self._vim.VirtualMachine(self._id, client._stub)

    async def power_on(self) -> None:
        """Check that the machine is as requested, and switch it on."""
        await self._session.call(self._checked)
        await self._session.task(lambda client: self._known(client).PowerOnVM_Task())

    def _checked(self, client: Any) -> None:
        config, asked = self._known(client).config, self._options
        cpu = config.cpuAllocation
        seen: dict[str, tuple[Any, Any]] = {
            "reservation": (cpu.reservation, self._cpu.reservation),
            "limit": (cpu.limit, self._cpu.limit),
            "shares": (cpu.shares.shares if cpu.shares else None, self._cpu.shares),
            "latency sensitivity": (
                config.latencySensitivity.level if config.latencySensitivity else None,
                None if asked.latency_sensitivity == "normal" else asked.latency_sensitivity,
            ),
            "affinity": (_affinity(config), list(self._pins) or None),
        }
        for what, (is_so, wanted) in seen.items():
            if wanted is not None and is_so != wanted:
                raise MachineFault(
                    f"{self._name}: its {what} was to be {wanted}, but vSphere reports {is_so}"
                )

    async def why_off(self) -> str:
        """Return why the machine does not run; empty while it runs."""
        try:
            state = await self._session.call(
                lambda client: str(self._known(client).runtime.powerState)
            )
        except NoSuchObject:
            return "somebody removed it"
        words = {"poweredOff": "it is powered off", "suspended": "it is suspended"}
        return "" if state == ON else words.get(state, f"it is {state}")

    async def power_off(self) -> None:
        """Switch the machine off at once; do nothing if it is off."""
        if not await self.why_off():
            await self._session.task(lambda client: self._known(client).PowerOffVM_Task())

    async def applied(self) -> Mapping[str, Any]:
        """Return the machine's scheduling, its devices, and the facts about the hypervisor."""
        return await self._session.call(self._read_applied)

    def _read_applied(self, client: Any) -> dict[str, Any]:
        vm = self._known(client)
        config, host = vm.config, vm.runtime.host
        affinity = ",".join(map(str, _affinity(config) or ()))
        allocation = config.cpuAllocation
        return {
            "scheduling": {
                # The affinity belongs to the virtual machine: each vCPU may use all of its
                # processors.
                "vcpus": {str(number): affinity for number in range(self._vcpus) if affinity},
                "reservation_mhz": allocation.reservation,
                "limit_mhz": allocation.limit,
                "shares": allocation.shares.shares if allocation.shares else None,
            },
            "hypervisor": {
                **proof_of(client, host, self._vim),
                "virtual hardware": config.version,
                "devices": ", ".join(sorted(_kinds(config.hardware.device))),
            },
        }

    async def disturbances(self) -> tuple[str, ...]:
        """Return the events that have disturbed the machine so far."""
        return await self._session.call(
            lambda client: tuple(
                find_disturbances(client, self._known(client), self._session.types, self._home)
            )
        )

    async def figures(self, begun: float, ended: float) -> HypervisorFigures | None:
        """Return ESXi's counters for the 20 s intervals that are entirely within a period."""
        return await self._session.call(
            lambda client: figures_of(client, self._known(client), self._vim, begun, ended)
        )


def _affinity(config: Any) -> list[int] | None:
    affinity = config.cpuAffinity
    return sorted(affinity.affinitySet) if affinity is not None and affinity.affinitySet else None


def _kinds(devices: Sequence[Any]) -> set[str]:
    names = {type(device).__name__.rpartition(".")[2] for device in devices}
    return {
        name
        for name in names
        if "SCSI" in name or "Logic" in name or "vmxnet" in name.lower() or "E1000" in name
    }


MOVES = (
    "VmMigratedEvent",
    "DrsVmMigratedEvent",
    "VmRelocatedEvent",
    "VmBeingHotMigratedEvent",
    "VmSuspendedEvent",
    "VmFailoverEvent",
)
"""Events that invalidate values measured at that time ("Event" and its kinds, API reference)."""


def find_disturbances(client: Any, machine: Any, types: Any, home: str) -> Iterator[str]:
    """Yield the events that have disturbed a virtual machine so far, one phrase each.

    Args:
        client: The service instance.
        machine: The virtual machine.
        types: PyVmomi's module.
        home: The id of the ESXi host that it was created on.
    """
    yield from _events(client, machine, types.vim)
    seen = properties(client, types, machine, ("snapshot", "runtime", "summary.quickStats"))
    yield from _snapshots(seen.get("snapshot"))
    runtime, memory = seen["runtime"], seen["summary.quickStats"]
    if runtime.host is not None and runtime.host._moId != home:
        yield f"it runs on another host, {runtime.host.name}"
    if runtime.consolidationNeeded:
        yield f"its disks need consolidation, as after a backup, at {_utc_now()}"
    for words, size in (
        ("ballooned", memory.balloonedMemory),
        ("swapped", memory.swappedMemory),
        ("compressed", (memory.compressedMemory or 0) // 1024),
    ):
        if size:
            # A lasting condition is reported by each look.
            yield f"{size} MiB of its memory are {words} at {_utc_now()}"


def _events(client: Any, machine: Any, vim: Any) -> Iterator[str]:
    entity = vim.event.EventFilterSpec.ByEntity(entity=machine, recursion="self")
    asked = vim.event.EventFilterSpec(entity=entity)
    for event in client.content.eventManager.QueryEvents(asked) or ():
        kind = type(event).__name__.rpartition(".")[2]
        if kind in MOVES:
            yield f"{kind} at {event.createdTime.isoformat()}"


def _snapshots(tree: Any) -> Iterator[str]:
    waiting = list(tree.rootSnapshotList) if tree is not None else []
    while waiting:
        one = waiting.pop()
        yield f"snapshot {one.name} at {one.createTime.isoformat()}"
        waiting += list(one.childSnapshotList)


def _utc_now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")
