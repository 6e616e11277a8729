"""One virtual machine of vSphere's, and what disturbed it."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tare.errors import MachineFault
from tare.events.hypervisor import HypervisorFigures
from tare.hosts.ledger.ledger import Entry, Ledger
from tare.platforms.contract import Shape
from tare.platforms.vendors.machine import VirtualMachine
from tare.platforms.vendors.own_disk import OwnDisk
from tare.platforms.vendors.session import Missing, Refused
from tare.platforms.vsphere.esxi_host import in_drs, proof_of, threads_of
from tare.platforms.vsphere.figures import figures_of
from tare.platforms.vsphere.inventory import properties, spot
from tare.platforms.vsphere.options import VsphereOptions
from tare.platforms.vsphere.removing import remove
from tare.platforms.vsphere.session import VsphereSession
from tare.platforms.vsphere.spec import (
    BOOT_DISK,
    CONFIGURATION,
    config_spec,
    media,
    pins_of,
)

VM, FILES = "vsphere-vm", "vsphere-files"
"""The ledger's words for a virtual machine, and for its folder on the datastore."""
ON = "poweredOn"
HIDDEN = "DRS is on for this host: affinity is neither shown nor kept there"


class VsphereVm(VirtualMachine):
    """A virtual machine of Tare's own.

    Args:
        session: The way to the API, the machine's own.
        options: The arm's options.
        name: Its name.
    """

    def __init__(self, session: VsphereSession, options: VsphereOptions, name: str) -> None:
        self._session = session
        self._vim = session.vim
        self._options = options
        self._name = name
        self._id = ""
        self._home = ""
        self._folder = ""
        self._pins: Sequence[int] = ()
        self._vcpus = 0
        self._own: OwnDisk | None = None
        self._noted: tuple[Ledger, list[Entry]] | None = None

    async def create(
        self,
        shape: Shape,
        cpus: Sequence[int],
        image: bytes,
        ledger: Ledger,
        own: OwnDisk | None = None,
    ) -> None:
        """Make it, switched off, with the configuration on a CD.

        Args:
            shape: Its size.
            cpus: The CPUs of the placement; empty: anywhere.
            image: The image labelled TARE-CFG.
            ledger: Is told before anything is made.
            own: The empty disk that it is to have; None: none.

        Raises:
            TareError: The options name what is not there, or vSphere refuses.
        """
        vim, options = self._vim, self._options
        self._pins = await self._session.call(lambda client: self._pinned(client, cpus))
        self._vcpus, self._own = shape.vcpus, own
        # The way names files by their whole paths.
        noted = {**options.model_dump(mode="json"), **options.way()}
        self._noted = (ledger, [ledger.record(VM, name=self._name, options=noted)])

        def begin(client: Any) -> Any:
            where = spot(client, vim, options)
            spec = config_spec(vim, options, self._name, shape, where, self._pins)
            return where.folder.CreateVM_Task(config=spec, pool=where.pool, host=where.host)

        made = await self._session.task(begin)
        self._id = made._moId
        datacenter, self._home, file = await self._session.call(self._placed)
        self._folder = file.rpartition("/")[0]
        # What lies there outlives the machine where somebody else takes that away.
        there = ledger.record(FILES, name=self._name, folder=self._folder, options=noted)
        self._noted[1].append(there)
        path = self._folder.partition("] ")[2]
        await self._session.upload(datacenter, options.datastore, f"{path}/{CONFIGURATION}", image)
        if options.boot is not None and options.boot.endswith(".vmdk"):
            await self._session.task(self._copied)
        await self._session.task(self._attached)

    def _pinned(self, client: Any, cpus: Sequence[int]) -> list[int]:
        where = spot(client, self._vim, self._options)
        pins = pins_of(cpus, self._options, threads_of(where.host))
        if pins and in_drs(where.host, self._vim):
            raise Refused(HIDDEN, "take the host out of the cluster, or do not pin")
        return pins

    def _placed(self, client: Any) -> tuple[str, str, str]:
        where, vm = spot(client, self._vim, self._options), self._known(client)
        return where.path, vm.runtime.host._moId, str(vm.config.files.vmPathName)

    def _copied(self, client: Any) -> Any:
        datacenter = spot(client, self._vim, self._options).datacenter
        return client.content.virtualDiskManager.CopyVirtualDisk_Task(
            sourceName=self._options.boot,
            sourceDatacenter=datacenter,
            destName=f"{self._folder}/{BOOT_DISK}",
            destDatacenter=datacenter,
        )

    def _attached(self, client: Any) -> Any:
        vm = self._known(client)
        changes = media(
            self._vim, vm.config.hardware.device, self._options, self._folder, self._own
        )
        return vm.ReconfigVM_Task(spec=self._vim.vm.ConfigSpec(deviceChange=changes))

    def _known(self, client: Any) -> Any:
        return self._vim.VirtualMachine(self._id, client._stub)

    async def power_on(self) -> None:
        """Switch it on, once it is seen to be what was asked for."""
        await self._session.call(self._checked)
        await self._session.task(lambda client: self._known(client).PowerOnVM_Task())

    def _checked(self, client: Any) -> None:
        config, asked = self._known(client).config, self._options
        told = config.cpuAllocation
        seen: dict[str, tuple[Any, Any]] = {
            "reservation": (told.reservation, asked.reservation),
            "limit": (told.limit, asked.limit),
            "shares": (told.shares.shares if told.shares else None, asked.shares),
            "latency sensitivity": (
                config.latencySensitivity.level if config.latencySensitivity else None,
                None if asked.latency_sensitivity == "normal" else asked.latency_sensitivity,
            ),
            "affinity": (_affinity(config), list(self._pins) or None),
        }
        for what, (is_so, wanted) in seen.items():
            if wanted is not None and is_so != wanted:
                raise MachineFault(
                    f"{self._name}: its {what} was to be {wanted}, but vSphere says {is_so}"
                )

    async def why_off(self) -> str:
        """Return why it does not run; empty while it does."""
        try:
            state = await self._session.call(
                lambda client: str(self._known(client).runtime.powerState)
            )
        except Missing:
            return "somebody removed it"
        words = {"poweredOff": "it is powered off", "suspended": "it is suspended"}
        return "" if state == ON else words.get(state, f"it is {state}")

    async def power_off(self) -> None:
        """Pull the plug; nothing happens where it is off."""
        if self._id and not await self.why_off():
            await self._session.task(lambda client: self._known(client).PowerOffVM_Task())

    async def remove(self) -> None:
        """Remove it, and its folder on the datastore with the image that holds its key."""
        if self._noted is None:
            return
        await remove(self._session, self._options, self._name, self._folder)
        ledger, entries = self._noted
        for entry in entries:
            ledger.done(entry)

    async def applied(self) -> Mapping[str, Any]:
        """Return how it is scheduled, what it has, and what the hypervisor is."""
        return await self._session.call(self._told)

    def _told(self, client: Any) -> dict[str, Any]:
        vm = self._known(client)
        config, host = vm.config, vm.runtime.host
        affinity = ",".join(map(str, _affinity(config) or ()))
        allocation = config.cpuAllocation
        return {
            "scheduling": {
                # The affinity is the virtual machine's: each vCPU may use all of it.
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
        """Return what befell it so far."""
        return await self._session.call(
            lambda client: tuple(
                befallen(client, self._known(client), self._session.types, self._home)
            )
        )

    async def figures(self, begun: float, ended: float) -> HypervisorFigures | None:
        """Return what ESXi counted in the intervals of 20 s that lie wholly within a while."""
        return await self._session.call(
            lambda client: figures_of(client, self._known(client), self._vim, begun, ended)
        )


def _affinity(config: Any) -> list[int] | None:
    told = config.cpuAffinity
    return sorted(told.affinitySet) if told is not None and told.affinitySet else None


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
"""Events after which nothing measured meanwhile counts ("Event" and its kinds, API reference)."""


def befallen(client: Any, machine: Any, types: Any, home: str) -> Iterator[str]:
    """Yield what befell a virtual machine so far, a phrase each.

    Args:
        client: The service instance.
        machine: The virtual machine.
        types: PyVmomi's module.
        home: The id of the ESXi host that it was made on.
    """
    yield from _events(client, machine, types.vim)
    seen = properties(client, types, machine, ("snapshot", "runtime", "summary.quickStats"))
    yield from _snapshots(seen.get("snapshot"))
    runtime, told = seen["runtime"], seen["summary.quickStats"]
    if runtime.host is not None and runtime.host._moId != home:
        yield f"it runs on another host, {runtime.host.name}"
    if runtime.consolidationNeeded:
        yield f"its disks need consolidation, as after a backup, at {_now()}"
    for words, size in (
        ("ballooned", told.balloonedMemory),
        ("swapped", told.swappedMemory),
        ("compressed", (told.compressedMemory or 0) // 1024),
    ):
        if size:
            # It holds for as long as it is so: each look tells of it anew.
            yield f"{size} MiB of its memory are {words} at {_now()}"


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


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")
