"""Create everything that one machine in a pool needs: a VM, its disks and its network cards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tare.errors import InputError
from tare.platforms.vendors.own_disk import Bus
from tare.platforms.vendors.platform import VmRequest
from tare.platforms.vendors.resource import ServerResource
from tare.platforms.xenserver.network import vif_record
from tare.platforms.xenserver.options import XenserverOptions
from tare.platforms.xenserver.pool import NULL, OWNER, Pool
from tare.platforms.xenserver.session import XenSession
from tare.platforms.xenserver.vm import vm_record

ISO = "iso"
BUSES = {
    "paravirtual": Bus("Xen's block device", frozenset({"vbd"})),
    "emulated": Bus(
        "IDE",
        frozenset({"ata_piix"}),
        "boot an image that keeps it: tare image live --append xen_emul_unplug=never --append nopv",
    ),
}
"""The bus of a VM's own disk, by `devices`. Every VM has both buses; the guest's kernel chooses."""


class XenVmResource(ServerResource[XenSession]):
    """A VM with its disks, which have the same name and Tare's mark."""

    kind = "xenserver-vm"
    busy = ("OTHER_OPERATION", "VDI_IN_USE", "VM_BAD_POWER_STATE")
    # VM_BAD_POWER_STATE: if the answer to a start was lost, the VM may start after it was seen
    # halted.

    @property
    def words(self) -> str:
        """A phrase that names the VM and its disks."""
        return f"the VM {self.name} with its disks"

    async def exists(self) -> bool:
        """Return whether the VM or one of its disks exists."""
        pool = Pool(self.session)
        return bool(await pool.own("VM", self.name) or await pool.own("VDI", self.name))

    async def remove(self) -> None:
        """Remove the VM, then its disks."""
        pool = Pool(self.session)
        for vm in await pool.own("VM", self.name):
            await pool.remove_vm(vm)
        for disk in await pool.own("VDI", self.name):
            await pool.remove_disk(disk)


class VmBuilder:
    """Creates VMs, with their disks and network cards.

    Args:
        pool: The pool.
        options: The arm's options.
        host: The reference of the host that the VMs run on.
    """

    def __init__(self, pool: Pool, options: XenserverOptions, host: str) -> None:
        self._pool = pool
        self._options = options
        self._host = host
        self.vm = ""
        """The reference of the VM that was created."""
        self.wanted: Mapping[str, Any] = {}
        """The record of the VM as requested."""

    async def locate(self) -> tuple[str, str, str]:
        """Return the repository, the network and the image.

        Raises:
            InputError: One of them is missing, or the repository accepts no disks.
        """
        options, pool = self._options, self._pool
        repository = (
            await pool.default_sr() if options.sr is None else await pool.find("SR", options.sr)
        )
        kind = await pool.ask(lambda api: api.SR.get_content_type(repository))
        if kind == ISO:
            raise InputError(
                "the repository of `sr` holds CDs, and accepts no disks", "name another by `sr`"
            )
        return repository, await self._network(), await self._image()

    async def _network(self) -> str:
        if self._options.network is not None:
            return await self._pool.find("network", self._options.network)
        # The host's API is reached over this network, so guests on it can reach this computer.
        for interface in await self._pool.ask(lambda api: api.host.get_PIFs(self._host)):
            record = await self._pool.get("PIF", interface, "record")
            if record["management"]:
                return str(record["network"])
        raise InputError("the host has no management network", "name one by `network`")

    async def _image(self) -> str:
        if self._options.image is None:
            return ""
        return await self._pool.find("VDI", self._options.image)

    async def build(self, request: VmRequest[XenserverOptions]) -> None:
        """Create the VM, switched off, and set :attr:`vm` and :attr:`wanted`."""
        pool, spec, configuration = self._pool, request.spec, request.image
        self.wanted = vm_record(self._options, spec, self._host)
        repository, network, image = await self.locate()
        disk = await self._disk(repository, spec.name, len(configuration))
        await pool.session.put("/import_raw_vdi", {"vdi": disk, "format": "raw"}, configuration)
        self.vm = vm = str(await pool.ask(lambda api: api.VM.create(self.wanted)))
        holder = await pool.ask(lambda api: api.VDI.get_SR(image))
        if await pool.ask(lambda api: api.SR.get_content_type(holder)) == ISO:
            await self._attach(vm, image, "3", "CD", bootable=True)
        else:
            copy = await self._copy(image, repository, spec.name)
            await self._attach(vm, copy, "0", "Disk", bootable=True)
        await self._attach(vm, disk, "1", "Disk", bootable=False)
        if request.disk is not None:
            empty = await self._disk(repository, spec.name, request.disk.size)
            # The first four positions are IDE drives too.
            await self._attach(vm, empty, "2", "Disk", bootable=False)
        await self._connect(vm, network, "0")
        if request.isolated is not None:
            isolated = await pool.find("network", request.isolated.network)
            await self._connect(vm, isolated, "1", request.isolated.mac, request.isolated.rate)

    async def _connect(
        self, vm: str, network: str, device: str, mac: str = "", rate: float | None = None
    ) -> None:
        record = vif_record(vm, network, device, mac, rate)
        await self._pool.ask(lambda api: api.VIF.create(record))

    async def _disk(self, repository: str, name: str, size: int) -> str:
        """Create a disk that has the machine's name and mark from the start."""
        return str(
            await self._pool.ask(
                lambda api: api.VDI.create(
                    {
                        "name_label": name,
                        "name_description": "a disk of a machine of Tare's",
                        "SR": repository,
                        "virtual_size": str(size),
                        "type": "user",
                        "sharable": False,
                        "read_only": False,
                        "other_config": {OWNER: name},
                        "xenstore_data": {},
                        "sm_config": {},
                        "tags": [],
                    }
                )
            )
        )

    async def _copy(self, image: str, repository: str, name: str) -> str:
        """Copy an image that is a disk, because a VM writes to the disk that it boots from."""
        size = int(await self._pool.ask(lambda api: api.VDI.get_virtual_size(image)))
        copy = await self._disk(repository, name, size)
        await self._pool.done(
            lambda api: api.Async.VDI.copy(image, NULL, NULL, copy), "copy the image"
        )
        return copy

    async def _attach(self, vm: str, disk: str, place: str, kind: str, *, bootable: bool) -> None:
        await self._pool.ask(
            lambda api: api.VBD.create(
                {
                    "VM": vm,
                    "VDI": disk,
                    "userdevice": place,
                    "bootable": bootable,
                    "mode": "RO" if kind == "CD" else "RW",
                    "type": kind,
                    "empty": False,
                    "unpluggable": False,
                    "other_config": {},
                    "qos_algorithm_type": "",
                    "qos_algorithm_params": {},
                }
            )
        )
