"""What is made for one machine in a pool: a VM, its disks and its network card."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tare.errors import InputError
from tare.platforms.contract import MachineSpec
from tare.platforms.vendors.own_disk import Bus, OwnDisk
from tare.platforms.xenserver.options import XenserverOptions
from tare.platforms.xenserver.pool import NULL, OWNER, Pool
from tare.platforms.xenserver.vm import vm_record

ISO = "iso"
MTU = "1500"
BUSES = {
    "paravirtual": Bus("Xen's block device", frozenset({"vbd"})),
    "emulated": Bus(
        "IDE",
        frozenset({"ata_piix"}),
        "boot an image that keeps it: tare image live --append xen_emul_unplug=never --append nopv",
    ),
}
"""How a VM's own disk shows, by the arm's `devices`: every VM has both, and its kernel chooses."""


class Making:
    """Makes a VM with what is attached to it.

    Args:
        pool: Where.
        options: The arm's options.
        host: The host that it is to run on.
    """

    def __init__(self, pool: Pool, options: XenserverOptions, host: str) -> None:
        self._pool = pool
        self._options = options
        self._host = host

    async def look(self) -> tuple[str, str, str]:
        """Return the repository, the network and the image.

        Raises:
            InputError: One of them is not there, or the repository takes no disks.
        """
        options, pool = self._options, self._pool
        repository = (
            await pool.default_sr() if options.sr is None else await pool.find("SR", options.sr)
        )
        kind = await pool.ask(lambda api: api.SR.get_content_type(repository))
        if kind == ISO:
            raise InputError(
                "the repository of `sr` holds CDs, and takes no disks", "name another by `sr`"
            )
        return repository, await self._network(), await self._image()

    async def _network(self) -> str:
        if self._options.network is not None:
            return await self._pool.find("network", self._options.network)
        # The host's own way to the outside: whoever reaches its API there is reached from there.
        for interface in await self._pool.ask(lambda api: api.host.get_PIFs(self._host)):
            record = await self._pool.get("PIF", interface, "record")
            if record["management"]:
                return str(record["network"])
        raise InputError("the host has no management network", "name one by `network`")

    async def _image(self) -> str:
        if self._options.image is None:
            return ""
        return await self._pool.find("VDI", self._options.image)

    async def make(
        self, spec: MachineSpec, configuration: bytes, own: OwnDisk | None = None
    ) -> tuple[str, Mapping[str, Any]]:
        """Make the VM, switched off.

        Args:
            spec: The machine.
            configuration: The bytes of its configuration disk.
            own: The empty disk that it is to have; None: none.

        Returns:
            Its reference, and the record that was asked for.
        """
        pool, wanted = self._pool, vm_record(self._options, spec, self._host)
        repository, network, image = await self.look()
        disk = await self._disk(repository, spec.name, len(configuration))
        await pool.session.put("/import_raw_vdi", {"vdi": disk, "format": "raw"}, configuration)
        vm = str(await pool.ask(lambda api: api.VM.create(wanted)))
        holder = await pool.ask(lambda api: api.VDI.get_SR(image))
        if await pool.ask(lambda api: api.SR.get_content_type(holder)) == ISO:
            await self._attach(vm, image, "3", "CD", bootable=True)
        else:
            copy = await self._copy(image, repository, spec.name)
            await self._attach(vm, copy, "0", "Disk", bootable=True)
        await self._attach(vm, disk, "1", "Disk", bootable=False)
        if own is not None:
            empty = await self._disk(repository, spec.name, own.size)
            # The first four are IDE's too.
            await self._attach(vm, empty, "2", "Disk", bootable=False)
        await pool.ask(
            lambda api: api.VIF.create(
                {
                    "device": "0",
                    "network": network,
                    "VM": vm,
                    "MAC": "",
                    "MTU": MTU,
                    "other_config": {},
                    "qos_algorithm_type": "",
                    "qos_algorithm_params": {},
                }
            )
        )
        return vm, wanted

    async def _disk(self, repository: str, name: str, size: int) -> str:
        """Make a disk that bears the machine's name from its beginning on."""
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
        """Copy an image that is a disk: a VM writes to what it boots from."""
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
