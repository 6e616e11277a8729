"""Create everything that one machine needs: a VM, network cards, and a CD or a copy of an image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tare.errors import InputError
from tare.platforms.ovirt.engine import MANAGEMENT, Engine
from tare.platforms.ovirt.options import OvirtOptions
from tare.platforms.ovirt.session import OvirtSession
from tare.platforms.ovirt.vm import vm_wanted
from tare.platforms.vendors.isolated_network import IsolatedNic
from tare.platforms.vendors.own_disk import Bus
from tare.platforms.vendors.platform import VmRequest
from tare.platforms.vendors.resource import ServerResource


@dataclass(frozen=True)
class VmLocation:
    """The location in which machines are created, and the image that they boot.

    Args:
        cluster: The cluster.
        host: The host that the machines run on.
        network: The vNIC profile's id.
        image: The disk that the machines boot.
        storage: The id of the storage domain for copies of the image; None: the image is a CD.
        domain: The id of the storage domain for a machine's own disk; None: there is no image.
        profile: The CPU profile's id; None: the cluster's default.
    """

    cluster: Any
    host: Any
    network: str
    image: Any
    storage: str | None
    domain: str | None
    profile: str | None


def bus_of(options: OvirtOptions) -> Bus:
    """Return the bus to which disks are attached."""
    if options.devices == "paravirtual":
        return Bus("virtio-blk", frozenset({"virtio_blk"}))
    return {
        "q35": Bus("SATA", frozenset({"ahci"})),
        "i440fx": Bus("IDE", frozenset({"ata_piix"})),
    }[options.chipset]


def status_words(status: Any) -> str:
    """Format a host's status as words, such as ``non responsive``."""
    return str(status).replace("_", " ")


class OvirtVmResource(ServerResource[OvirtSession]):
    """A VM with its disks, which have its name."""

    kind = "ovirt-vm"
    busy = ("in progress", "locked", "is running", "Cannot stop", "Cannot remove VM")
    removal_s = 60.0

    @property
    def words(self) -> str:
        """A phrase that names the VM and its disk."""
        return f"the VM {self.name} with its disk"

    async def exists(self) -> bool:
        """Return whether Tare's VM with that name exists, or one of its disks."""
        engine = Engine(self.session)
        return bool(await engine.own(self.name) or await engine.disks(self.name))

    async def remove(self) -> None:
        """Remove the VM, then disks that were never attached to it.

        Disks carry no mark. But the name contains the run's name, and no disk had it when it was
        recorded in the ledger.
        """
        engine = Engine(self.session)
        for vm in await engine.own(self.name):
            await engine.remove_vm(vm.id)
        for disk in await engine.disks(self.name):
            await engine.remove_disk(disk.id)


class VmBuilder:
    """Creates VMs, with their disks and network cards.

    Args:
        engine: The engine.
        options: The arm's options.
    """

    def __init__(self, engine: Engine, options: OvirtOptions) -> None:
        self._engine = engine
        self._options = options
        self.vm = ""
        """The id of the VM that was created."""
        self.wanted: Any = None
        """The VM as requested."""

    async def locate(self) -> VmLocation:
        """Find everything that an arm names.

        Raises:
            InputError: Something is missing, not visible to the account, or not up.
        """
        options, engine = self._options, self._engine
        cluster = await self._cluster()
        host = await self._host_in(cluster)
        if host.status != engine.types.HostStatus.UP:
            raise InputError(
                f"the host {host.name} is {status_words(host.status)}",
                "activate it, or name another by `on-host`",
            )
        network = await engine.find(
            "vNIC profiles",
            lambda api: api.vnic_profiles_service(),
            options.vnic_profile or MANAGEMENT,
            "vnic-profile",
        )
        profile = None
        if options.cpu_profile is not None:
            found = await engine.find(
                "CPU profiles",
                lambda api: api.cpu_profiles_service(),
                options.cpu_profile,
                "cpu-profile",
                lambda profile: profile.cluster is not None and profile.cluster.id == cluster.id,
            )
            profile = str(found.id)
        image, domain = await self._image()
        is_cd = image is not None and image.content_type == engine.types.DiskContentType.ISO
        storage = None if is_cd else domain
        return VmLocation(cluster, host, str(network.id), image, storage, domain, profile)

    async def host(self) -> Any:
        """Return the host that machines run on, whether it is up or not.

        Raises:
            InputError: The host is missing.
        """
        return await self._host_in(await self._cluster())

    async def _cluster(self) -> Any:
        return await self._engine.find(
            "clusters", lambda api: api.clusters_service(), self._options.cluster, "cluster"
        )

    async def _host_in(self, cluster: Any) -> Any:
        return await self._engine.find(
            "hosts",
            lambda api: api.hosts_service(),
            self._options.on_host,
            "on-host",
            lambda host: host.cluster is not None and host.cluster.id == cluster.id,
        )

    async def _image(self) -> tuple[Any, str | None]:
        """Return the image that VMs boot, and the storage domain of their disks."""
        options, engine = self._options, self._engine
        if options.image is None:
            return None, None
        image = await engine.find("disks", lambda api: api.disks_service(), options.image, "image")
        if options.storage is None:
            domains = image.storage_domains
            return image, str(domains[0].id) if domains else None
        storage = await engine.find(
            "storage domains",
            lambda api: api.storage_domains_service(),
            options.storage,
            "storage",
        )
        return image, str(storage.id)

    async def require_free(self, name: str) -> None:
        """Raise InputError if a disk already has the name: Tare would mistake it for the VM's."""
        if await self._engine.disks(name):
            raise InputError(
                f"{self._engine.session.name} has a disk called {name} already",
                "it may be of a run that was killed: tare clean",
            )

    async def build(self, request: VmRequest[OvirtOptions], location: VmLocation) -> None:
        """Create the VM, switched off, and set :attr:`vm` and :attr:`wanted`."""
        spec = request.spec
        engine, types = self._engine, self._engine.types
        self.wanted = vm_wanted(
            types,
            self._options,
            spec,
            location.cluster.id,
            location.host.id,
            request.configuration,
            location.profile,
        )
        added = await engine.ask(lambda api: api.vms_service().add(self.wanted))
        self.vm = vm = str(added.id)

        async def is_made() -> bool:
            return bool((await engine.vm(vm)).status == types.VmStatus.DOWN)

        await engine.until(is_made, "make its VM")
        card = types.Nic(
            name="nic1",
            interface=self._card(),
            vnic_profile=types.VnicProfile(id=location.network),
        )
        await engine.ask(lambda api: api.vms_service().vm_service(vm).nics_service().add(card))
        if request.isolated is not None:
            await self._add_isolated(vm, request.isolated)
        if location.storage is None:
            await self._insert(vm, str(location.image.id))
        else:
            await self._attach(vm, await self._copy(spec.name, location), bootable=True)
        if request.disk is not None:
            empty = await self._empty(spec.name, location, request.disk.size)
            await self._attach(vm, empty, bootable=False)

    async def _add_isolated(self, vm: str, isolated: IsolatedNic) -> None:
        """Add the card on the isolated network, whose vNIC profile has the name of the network."""
        types = self._engine.types
        profile = await self._engine.find(
            "vNIC profiles",
            lambda api: api.vnic_profiles_service(),
            self._options.isolated_profile or isolated.network,
            "isolated-profile",
        )
        card = types.Nic(
            name="nic2",
            interface=self._card(),
            mac=types.Mac(address=isolated.mac),
            vnic_profile=types.VnicProfile(id=profile.id),
        )
        await self._engine.ask(
            lambda api: api.vms_service().vm_service(vm).nics_service().add(card)
        )

    def _card(self) -> Any:
        kinds = self._engine.types.NicInterface
        if self._options.devices == "paravirtual":
            return kinds.VIRTIO
        return kinds(self._options.nic)

    async def _insert(self, vm: str, image: str) -> None:
        """Put an image into the VM's CD drive; every VM has one."""
        types = self._engine.types

        def insert(api: Any) -> None:
            drives = api.vms_service().vm_service(vm).cdroms_service()
            drive = drives.cdrom_service(drives.list()[0].id)
            drive.update(types.Cdrom(file=types.File(id=image)))

        await self._engine.ask(insert)

    async def _copy(self, name: str, location: VmLocation) -> str:
        """Copy the image, because a VM writes to the disk that it boots from."""
        engine, types = self._engine, self._engine.types
        await engine.ask(
            lambda api: (
                api.disks_service()
                .disk_service(location.image.id)
                .copy(
                    disk=types.Disk(name=name),
                    storage_domain=types.StorageDomain(id=location.storage),
                )
            )
        )

        async def is_copied() -> bool:
            found = await engine.disks(name)
            return bool(found) and found[0].status == types.DiskStatus.OK

        await engine.until(is_copied, "copy the image")
        return str((await engine.disks(name))[0].id)

    async def _empty(self, name: str, location: VmLocation, size: int) -> str:
        """Create an empty, fully allocated disk; it is later removed by its name, the VM's."""
        engine, types = self._engine, self._engine.types
        if location.domain is None:
            raise InputError(
                "the engine does not report in which storage domain the image is",
                "name the one for the disk of the shape by `storage`",
            )
        wanted = types.Disk(
            name=name,
            provisioned_size=size,
            format=types.DiskFormat.RAW,
            sparse=False,
            storage_domains=[types.StorageDomain(id=location.domain)],
        )
        disk = str((await engine.ask(lambda api: api.disks_service().add(wanted))).id)

        async def is_made() -> bool:
            found = [each for each in await engine.disks(name) if each.id == disk]
            return bool(found) and found[0].status == types.DiskStatus.OK

        await engine.until(is_made, "make its disk")
        return disk

    async def _attach(self, vm: str, disk: str, *, bootable: bool) -> None:
        types = self._engine.types
        bus = types.DiskInterface.VIRTIO
        if self._options.devices == "emulated":
            emulated = {"q35": types.DiskInterface.SATA, "i440fx": types.DiskInterface.IDE}
            bus = emulated[self._options.chipset]
        attachment = types.DiskAttachment(
            disk=types.Disk(id=disk), bootable=bootable, active=True, interface=bus
        )
        await self._engine.ask(
            lambda api: api.vms_service().vm_service(vm).disk_attachments_service().add(attachment)
        )
