"""Create a vSphere virtual machine, and remove it with all files that Tare put on its datastore."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from tare.errors import MachineFault, TareError
from tare.hosts.ledger.undoing import PREFIX
from tare.platforms.vendors.platform import VmRequest
from tare.platforms.vendors.resource import ServerResource
from tare.platforms.vendors.session import NoSuchObject, RequestRefused
from tare.platforms.vsphere.esxi_host import is_moved_by_drs, threads_of
from tare.platforms.vsphere.inventory import find_location, machine_named
from tare.platforms.vsphere.options import CpuAllocation, VsphereOptions
from tare.platforms.vsphere.session import BUSY, WRONG_STATE, VsphereSession
from tare.platforms.vsphere.spec import (
    BOOT_DISK,
    CONFIGURATION,
    config_spec,
    media,
    require_processors,
    second_card,
)

OFF = "poweredOff"
NO_FILE = "FileNotFound"
"""The API's fault for a file that is not there."""
HIDDEN = "DRS is on for this host: affinity is neither shown nor kept there"


class VsphereVmResource(ServerResource[VsphereSession]):
    """A virtual machine, with its folder on the datastore.

    Destroying a machine removes only the machine's own files. It leaves the image with its key, and
    a disk that was copied but is not attached yet.
    """

    kind = "vsphere-vm"
    busy = (WRONG_STATE, BUSY)
    # If the connection breaks during a start, the machine may start after it was seen switched off.
    removal_s = 60.0
    _machine, _state = "", ""
    _removed_machine, _removed_files = False, False

    def __init__(
        self,
        session: VsphereSession,
        details: Mapping[str, Any],
        build: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        super().__init__(session, details, build)
        self._options = VsphereOptions.model_validate(details["options"])
        self._folder = str(details.get("folder", ""))
        """The folder where files may remain, as ``[DATASTORE] NAME``; empty: unknown, or none."""

    @property
    def words(self) -> str:
        """A phrase that names the machine and its server."""
        return f"the virtual machine {self.name} from {self._options.address}"

    @property
    def removed(self) -> str:
        """The sentence that ``tare clean`` prints after its removal."""
        if self._removed_machine:
            return f"Removed {self.words}."
        if self._removed_files:
            return f"Removed files of {self.name} from {self._options.address}."
        return ""

    async def exists(self) -> bool:
        """Return whether the machine exists, or may have left files in a known folder."""
        vim, options = self.session.vim, self._options

        def identify(client: Any) -> tuple[str, str, str]:
            vm = machine_named(client, find_location(client, vim, options).folder, vim, self.name)
            if vm is None:
                return "", "", ""
            file = vm.config.files.vmPathName if vm.config is not None else ""
            return vm._moId, str(vm.runtime.powerState), str(file).rpartition("/")[0]

        self._machine, self._state, folder = await self.session.call(identify)
        self._folder = folder or self._folder
        return bool(self._machine or self._folder)

    async def remove(self) -> None:
        """Switch off and destroy the machine, and remove the rest of its folder."""
        if self._machine:
            await self._destroy()
            self._removed_machine = True
        for file in _left_in(self._folder) if self._folder else ():
            try:
                self._removed_files |= await self._delete(file)
            except TareError as fault:
                what = f"{file} with {CONFIGURATION}" if file == self._folder else file
                raise MachineFault(f"{self.name}: {what} is left there: {fault.message}") from fault
        self._folder = ""

    async def _destroy(self) -> None:
        vim, machine = self.session.vim, self._machine
        if self._state != OFF:
            # Another client may have switched it off since the state was read.
            with contextlib.suppress(RequestRefused):
                await self.session.task(
                    lambda client: vim.VirtualMachine(machine, client._stub).PowerOffVM_Task()
                )
        # Remove the key first, whatever happens to the rest. If that fails, it is tried again
        # later.
        if self._folder:
            with contextlib.suppress(TareError):
                await self._delete(f"{self._folder}/{CONFIGURATION}")
        with contextlib.suppress(NoSuchObject):
            await self.session.task(
                lambda client: vim.VirtualMachine(machine, client._stub).Destroy_Task()
            )

    async def _delete(self, file: str) -> bool:
        """Remove a file or folder of a datastore; return whether it existed."""
        vim, options = self.session.vim, self._options

        def begin(client: Any) -> Any:
            return client.content.fileManager.DeleteDatastoreFile_Task(
                name=file, datacenter=find_location(client, vim, options).datacenter
            )

        try:
            await self.session.task(begin)
        except NoSuchObject:
            return False
        except TareError as fault:
            if NO_FILE in fault.message:
                return False
            raise
        return True


class VsphereFilesResource(VsphereVmResource):
    """The files in a machine's folder, which remain if another client removes the machine.

    They are removed with the machine: vSphere keeps a machine's folder as long as the machine
    exists.
    """

    kind = "vsphere-files"


def _left_in(folder: str) -> tuple[str, ...]:
    """Return paths that may remain: the folder if it has a machine's name, else Tare's files.

    Folders on vSAN have other names; only Tare's own files are removed there.
    """
    name = folder.rpartition("] ")[2]
    if name.startswith(PREFIX) and "/" not in name:
        return (folder,)
    return (f"{folder}/{CONFIGURATION}", f"{folder}/{BOOT_DISK}")


class VmBuilder:
    """Creates a virtual machine, switched off, with the configuration on a CD.

    Args:
        session: An open session.
        request: The machine to create.
    """

    def __init__(self, session: VsphereSession, request: VmRequest[VsphereOptions]) -> None:
        self._session = session
        self._vim = session.vim
        self._request = request
        self._options = request.options
        self._folder = ""
        self.pins: Sequence[int] = ()
        """The logical processors of the host that the machine may use; empty: any."""
        self.cpu = CpuAllocation()
        """The machine's allocation of the host's CPUs."""
        self.vm = ""
        """The id of the virtual machine that was created."""
        self.home = ""
        """The id of the ESXi host that it was created on."""
        self._datacenter = ""

    async def build(self) -> None:
        """Create the machine, then its files.

        Raises:
            TareError: The options name something that is missing, or vSphere refuses.
        """
        request, session = self._request, self._session
        self.pins = await session.call(self._find_pins)
        options = {**self._options.model_dump(mode="json"), **self._options.connection()}
        details: Mapping[str, Any] = {"name": request.spec.name, "options": options}
        await request.create(VsphereVmResource(session, details, self._create))
        self._datacenter, self.home, file = await session.call(self._find_files)
        self._folder = file.rpartition("/")[0]
        details = {**details, "folder": self._folder}
        await request.create(VsphereFilesResource(session, details, self._add_files))

    def _find_pins(self, client: Any) -> list[int]:
        where = find_location(client, self._vim, self._options)
        spec = self._request.spec
        pins = sorted(set(spec.cpus or spec.within))
        require_processors(pins, threads_of(where.host))
        mhz = round(int(where.host.hardware.cpuInfo.hz) / 1e6)
        self.cpu = self._options.allocation(spec.role, spec.shape.vcpus, mhz)
        if pins and is_moved_by_drs(where.host, self._vim):
            raise RequestRefused(HIDDEN, "take the host out of the cluster, or do not pin")
        return pins

    async def _create(self) -> None:
        spec = self._request.spec

        def begin(client: Any) -> Any:
            where = find_location(client, self._vim, self._options)
            config = config_spec(
                self._vim, self._options, spec.name, spec.shape, where, self.pins, self.cpu
            )
            if (card := self._request.isolated) is not None:
                config.deviceChange.append(second_card(self._vim, self._options, where.host, card))
            return where.folder.CreateVM_Task(config=config, pool=where.pool, host=where.host)

        self.vm = (await self._session.task(begin))._moId

    def _find_files(self, client: Any) -> tuple[str, str, str]:
        where, vm = find_location(client, self._vim, self._options), self._known(client)
        return where.path, vm.runtime.host._moId, str(vm.config.files.vmPathName)

    async def _add_files(self) -> None:
        """Upload the configuration, copy the disk that the machine boots, and attach both."""
        options, session = self._options, self._session
        path = f"{self._folder.partition('] ')[2]}/{CONFIGURATION}"
        await session.upload(self._datacenter, options.datastore, path, self._request.image)
        if options.boot is not None and options.boot.endswith(".vmdk"):
            await session.task(self._copy)
        await session.task(self._attach)

    def _copy(self, client: Any) -> Any:
        datacenter = find_location(client, self._vim, self._options).datacenter
        return client.content.virtualDiskManager.CopyVirtualDisk_Task(
            sourceName=self._options.boot,
            sourceDatacenter=datacenter,
            destName=f"{self._folder}/{BOOT_DISK}",
            destDatacenter=datacenter,
        )

    def _attach(self, client: Any) -> Any:
        vm = self._known(client)
        changes = media(
            self._vim, vm.config.hardware.device, self._options, self._folder, self._request.disk
        )
        return vm.ReconfigVM_Task(spec=self._vim.vm.ConfigSpec(deviceChange=changes))

    def _known(self, client: Any) -> Any:
        return self._vim.VirtualMachine(self.vm, client._stub)
