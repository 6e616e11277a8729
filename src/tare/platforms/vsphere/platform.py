"""Virtual machines of ESXi and vCenter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from tare.hosts.contract import Host
from tare.hosts.ledger.ledger import Entry
from tare.hosts.ledger.undoing import require_own
from tare.platforms.contract import (
    ANY_BOOT,
    Capabilities,
    Presence,
    Statement,
    Variant,
    Write,
)
from tare.platforms.linux.writes import FOLDER
from tare.platforms.vendors.offer import CHANNEL, LIVE, NOTES, dialling_network
from tare.platforms.vendors.options import ANY
from tare.platforms.vendors.own_disk import Bus
from tare.platforms.vendors.platform import Order, Seen, VendorPlatform
from tare.platforms.vendors.session import opened, require
from tare.platforms.vsphere.esxi_host import in_drs, presence_of, proof_of, threads_of
from tare.platforms.vsphere.inventory import host_named, spot
from tare.platforms.vsphere.options import VsphereOptions
from tare.platforms.vsphere.removing import remove
from tare.platforms.vsphere.rights import rights_of
from tare.platforms.vsphere.session import EXTRA, PRODUCT, VsphereSession
from tare.platforms.vsphere.spec import BUSES, require_processors
from tare.platforms.vsphere.vm import FILES, HIDDEN, VM, VsphereVm

MAX_VCPUS = 128
"""The most that Tare gives one virtual machine, on hosts of as many processors and more."""
MIN_MEMORY = 192 << 20
BOOTS_NOTHING = "without `boot` the virtual machine boots nothing by itself: its network has to"


async def undo_vm(host: Host, entry: Entry) -> str:
    """Remove a virtual machine; see :data:`tare.hosts.ledger.undoing.Undo`."""
    return await _undone(entry, "")


async def undo_files(host: Host, entry: Entry) -> str:
    """Remove a virtual machine's folder on a datastore, and the machine where it is still there."""
    return await _undone(entry, str(entry.details["folder"]))


async def _undone(entry: Entry, folder: str) -> str:
    name = str(entry.details["name"])
    require_own(name)
    options = VsphereOptions.model_validate(entry.details["options"])
    async with opened(VsphereSession(options.way())) as session:
        removed = await remove(session, options, name, folder)
    if removed.machine:
        return f"Removed the virtual machine {name} from {options.address}."
    return f"Removed files of {name} from {options.address}." if removed.files else ""


class Vsphere(VendorPlatform[VsphereOptions, VsphereSession]):
    """Virtual machines of VMware ESXi, by its own API or by vCenter's."""

    name = "vsphere"
    product = "vSphere"
    known_as = dict.fromkeys(("esxi", "esx", "vcenter", "vmware"), "")
    options = VsphereOptions
    variants = tuple(
        Variant(devices, {"address": ANY, "datastore": "DATASTORE", "devices": devices})
        for devices in ("paravirtual", "emulated")
    )
    undoers = MappingProxyType({VM: undo_vm, FILES: undo_files})
    example = "{platform: vsphere, address: esxi.example, …}"

    def describe(self, options: VsphereOptions) -> str:
        """Return a phrase such as ``vSphere VM, paravirtual devices``."""
        return ", ".join(("vSphere VM", f"{options.devices} devices", *options.words()))

    def stated(self, options: VsphereOptions) -> Statement:
        """Return what ESXi offers; nothing is tried for it."""
        stated = Statement(
            capabilities=Capabilities(
                pinning=True,
                max_vcpus=0,
                min_memory=MIN_MEMORY,
                devices=frozenset({"paravirtual", "emulated"}),
                notes=(
                    "an affinity is the whole virtual machine's: each vCPU may use all of its CPUs",
                    "in a cluster with DRS nothing is pinned, for affinity is not kept there",
                    "reservation, limit and shares are vSphere's own options",
                    "ready and co-stop time are told for whole intervals of 20 s, and never less",
                    "a free ESXi refuses every change by its API",
                    *NOTES,
                    "so are cells while ESXi tells that memory is ballooned, swapped or compressed",
                ),
                disk=frozenset({BUSES[options.devices].name}),
                toolbox=frozenset({LIVE}),
            ),
            elsewhere=True,
            kernel="that of what it boots (`boot`)",
            channel=CHANNEL,
            needs=(
                "an ESXi host or a vCenter with an account (docs/owning.md)",
                "VMware's Python library (pip install 'hypertare[vsphere]')",
                "an image on a datastore whose Linux starts `tare-agent dial`",
            ),
            untested="Was run against govmomi's simulator only, with a local agent for the guest.",
            confirmed="simulator",
            host_boot=ANY_BOOT,
            boot_s=60.0,
            emulated_boot_s=60.0,
        )
        return dialling_network(stated, options)

    def disk_bus(self, options: VsphereOptions) -> Bus:
        """Return how virtual machines get the disk that their shape asks for."""
        return BUSES[options.devices]

    def require_library(self) -> None:
        """Check that pyVmomi is installed."""
        require(EXTRA, PRODUCT, "pyVmomi")

    def session(self, way: Mapping[str, Any]) -> VsphereSession:
        """Return a login at ESXi or vCenter."""
        return VsphereSession(way)

    async def look(
        self, session: VsphereSession, options: VsphereOptions, able: Capabilities
    ) -> Seen:
        """Find all that the options name, and see whether the host pins."""
        proof, drs, threads, rights = await session.call(
            lambda client: _looked(client, session, options)
        )
        require_processors(options.processors, threads)
        notes = (*able.notes, HIDDEN) if drs else able.notes
        able = replace(
            able,
            pinning=able.pinning and not drs,
            max_vcpus=min(threads, MAX_VCPUS),
            notes=notes if options.boot else (*notes, BOOTS_NOTHING),
        )
        reason = f"{proof['product']} at {options.address} takes virtual machines"
        return Seen(reason, {"vsphere": proof["product"]}, able, proof, rights)

    async def host_presence(self, session: VsphereSession, options: VsphereOptions) -> Presence:
        """Return the state of the ESXi host, which vCenter knows while the host is off."""
        return await session.call(
            lambda client: presence_of(
                client, session.types, host_named(client, session.vim, options)
            )
        )

    def writes(self, options: VsphereOptions) -> tuple[Write, ...]:
        """Return what VMs make at the host or vCenter."""
        return (
            FOLDER,
            Write(
                VM,
                "CreateVM_Task of a VM tare-…, ReconfigVM_Task with its CD, what it boots and the "
                "empty disk of its shape, PowerOnVM_Task, PowerOffVM_Task",
                "Destroy_Task",
                f"datastore {options.datastore}, folder {options.folder or '(the topmost)'}, "
                f"pool {options.pool or '(the topmost)'}",
            ),
            Write(
                FILES,
                "an upload of its CD and CopyVirtualDisk_Task into the VM's folder tare-…",
                "DeleteDatastoreFile_Task of that folder",
                f"datastore {options.datastore}",
            ),
        )

    def boots(self, options: VsphereOptions) -> str:
        """Say whose kernel it is: without `boot` the network has to bring one."""
        return "that of what it boots"

    async def make(self, session: VsphereSession, order: Order[VsphereOptions]) -> VsphereVm:
        """Make a virtual machine with the configuration on a CD."""
        spec = order.spec
        vm = VsphereVm(session, order.options, spec.name)
        order.undo.push_async_callback(vm.remove)
        await vm.create(spec.shape, spec.cpus, order.image, order.ledger, order.disk)
        return vm


def _looked(
    client: Any, session: VsphereSession, options: VsphereOptions
) -> tuple[dict[str, str], bool, int, tuple[str, ...]]:
    where = spot(client, session.vim, options)
    return (
        proof_of(client, where.host, session.vim),
        in_drs(where.host, session.vim),
        threads_of(where.host),
        rights_of(client, session, options, where),
    )
