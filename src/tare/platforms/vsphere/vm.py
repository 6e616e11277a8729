"""One virtual machine of vSphere's."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from tare.errors import MachineFault, TareError
from tare.events.hypervisor import HypervisorFigures
from tare.hosts.ledger.ledger import Entry, Ledger
from tare.platforms.contract import Shape
from tare.platforms.vendors.faults import Missing, Refused
from tare.platforms.vendors.own_disk import OwnDisk
from tare.platforms.vendors.virtual_machine import VirtualMachine
from tare.platforms.vsphere.befallen import befallen
from tare.platforms.vsphere.figures import figures_of
from tare.platforms.vsphere.inventory import machine_named, spot
from tare.platforms.vsphere.options import VsphereOptions
from tare.platforms.vsphere.proof import in_drs, proof_of, threads_of
from tare.platforms.vsphere.session import VsphereSession
from tare.platforms.vsphere.spec import (
    BOOT_DISK,
    CONFIGURATION,
    config_spec,
    media,
    pins_of,
)

OFF, ON = "poweredOff", "poweredOn"
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
        self._noted: tuple[Ledger, Entry] | None = None

    async def create(
        self,
        shape: Shape,
        cpus: Sequence[int],
        image: bytes,
        ledger: Ledger,
        kind: str,
        own: OwnDisk | None = None,
    ) -> None:
        """Make it, switched off, with the configuration on a CD.

        Args:
            shape: Its size.
            cpus: The CPUs of the placement; empty: anywhere.
            image: The image labelled TARE-CFG.
            ledger: Is told before anything is made.
            kind: The ledger's word for it.
            own: The empty disk that it is to have; None: none.

        Raises:
            TareError: The options name what is not there, or vSphere refuses.
        """
        vim, options = self._vim, self._options
        self._pins = await self._session.call(lambda client: self._pinned(client, cpus))
        self._vcpus, self._own = shape.vcpus, own
        # The way names files by their whole paths.
        noted = {**options.model_dump(mode="json"), **options.way()}
        entry = ledger.record(kind, name=self._name, options=noted)
        self._noted = (ledger, entry)

        def begin(client: Any) -> Any:
            where = spot(client, vim, options)
            spec = config_spec(vim, options, self._name, shape, where, self._pins)
            return where.folder.CreateVM_Task(config=spec, pool=where.pool, host=where.host)

        made = await self._session.task(begin)
        self._id = made._moId
        datacenter, self._home, file = await self._session.call(self._placed)
        self._folder = file.rpartition("/")[0]
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
        words = {OFF: "it is powered off", "suspended": "it is suspended"}
        return "" if state == ON else words.get(state, f"it is {state}")

    async def power_off(self) -> None:
        """Pull the plug; nothing happens where it is off."""
        if self._id and not await self.why_off():
            await self._session.task(lambda client: self._known(client).PowerOffVM_Task())

    async def remove(self) -> None:
        """Remove it, and the image with its key, from the datastore."""
        if self._noted is None:
            return
        await remove(self._session, self._options, self._name)
        ledger, entry = self._noted
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


async def remove(session: VsphereSession, options: VsphereOptions, name: str) -> bool:
    """Switch off and remove the virtual machine of that name, with its configuration's image.

    Args:
        session: The way to the API.
        options: Where it is: its folder, and nowhere else.
        name: Its name.

    Returns:
        Whether there was one.

    Raises:
        TareError: VSphere refuses.
    """
    vim = session.vim

    def found(client: Any) -> Any:
        where = spot(client, vim, options)
        return machine_named(client, where.folder, vim, name)

    def identity(client: Any) -> tuple[str, str, str]:
        vm = found(client)
        if vm is None:
            return "", "", ""
        file = vm.config.files.vmPathName if vm.config is not None else ""
        return vm._moId, str(vm.runtime.powerState), str(file).rpartition("/")[0]

    known, state, folder = await session.call(identity)
    if not known:
        return False
    if state != OFF:
        # Somebody else may have switched it off in between.
        with contextlib.suppress(Refused):
            await session.task(
                lambda client: vim.VirtualMachine(known, client._stub).PowerOffVM_Task()
            )
    kept = await _discard(session, options, folder) if folder else None
    try:
        await session.task(lambda client: vim.VirtualMachine(known, client._stub).Destroy_Task())
    except Missing:
        return False
    if kept is not None and (kept := await _discard(session, options, folder)) is not None:
        raise MachineFault(f"{name}: {folder}/{CONFIGURATION} is left there: {kept.message}")
    return True


async def _discard(
    session: VsphereSession, options: VsphereOptions, folder: str
) -> TareError | None:
    """Remove the image with the key, which destroying leaves: it removes a machine's own files.

    Returns:
        Why it is left; None where it is gone, or never was there.
    """
    try:
        await session.task(lambda client: _deleted(client, session.vim, options, folder))
    except TareError as fault:
        return None if isinstance(fault, Missing) or NO_FILE in fault.message else fault
    return None


NO_FILE = "FileNotFound"
"""The API's fault for a file that is not there."""


def _deleted(client: Any, vim: Any, options: VsphereOptions, folder: str) -> Any:
    return client.content.fileManager.DeleteDatastoreFile_Task(
        name=f"{folder}/{CONFIGURATION}", datacenter=spot(client, vim, options).datacenter
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
