"""Virtual machines of ESXi and vCenter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tare.platforms.contract import (
    ANY_BOOT,
    Capabilities,
    Carrier,
    Presence,
    Statement,
    Variant,
    Write,
)
from tare.platforms.linux.writes import FOLDER
from tare.platforms.vendors.isolated_network import isolating_network, without_isolated
from tare.platforms.vendors.offer import CHANNEL, LIVE, NOTES
from tare.platforms.vendors.options import ANY
from tare.platforms.vendors.own_disk import Bus
from tare.platforms.vendors.platform import ServerFindings, VendorPlatform, VmRequest
from tare.platforms.vendors.resource import undoers_at
from tare.platforms.vsphere.builder import (
    HIDDEN,
    VmBuilder,
    VsphereFilesResource,
    VsphereVmResource,
)
from tare.platforms.vsphere.esxi_host import carrier_of, is_moved_by_drs, presence_of, proof_of
from tare.platforms.vsphere.inventory import find_location, host_named, port_group
from tare.platforms.vsphere.network import VsphereSwitchResource
from tare.platforms.vsphere.options import KNOBS, VsphereOptions
from tare.platforms.vsphere.rights import rights_of, why_no_network
from tare.platforms.vsphere.session import VsphereSession
from tare.platforms.vsphere.spec import BUSES, require_processors
from tare.platforms.vsphere.vm import VsphereVm
from tare.study.model.platform_options import GIVEN

MAX_VCPUS = 128
"""The most vCPUs that Tare gives one virtual machine, even if the host has more."""
MIN_MEMORY = 192 << 20
MISSING_KNOBS = {
    "policy": "ESXi's scheduler does not support policy",
    "fifo": "ESXi's scheduler does not support fifo",
    "nice": "ESXi has shares instead",
    "slice": "ESXi's API does not set its time slice",
}
SWITCH_WRITES = Write(
    VsphereSwitchResource.kind,
    "AddVirtualSwitch of a standard switch tare-… without an uplink and AddPortGroup on it, for "
    "workloads that need a network",
    "RemovePortGroup, RemoveVirtualSwitch",
    "the ESXi host",
)
BOOTS_NOTHING = "without `boot` the virtual machine boots nothing by itself: its network has to"


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
    undoers = undoers_at(
        lambda details: VsphereSession(details["options"]),
        VsphereVmResource,
        VsphereFilesResource,
        VsphereSwitchResource,
    )
    session_type = VsphereSession
    mac_prefix = "00:50:56"
    example = "{platform: vsphere, address: esxi.example, …}"

    def describe(self, options: VsphereOptions) -> str:
        """Return a phrase such as ``vSphere VM, paravirtual devices``."""
        return ", ".join(("vSphere VM", f"{options.devices} devices", *options.words()))

    def stated(self, options: VsphereOptions) -> Statement:
        """Return ESXi's features; nothing is tried."""
        stated = Statement(
            capabilities=Capabilities(
                pinning=True,
                max_vcpus=0,
                min_memory=MIN_MEMORY,
                devices=frozenset({"paravirtual", "emulated"}),
                notes=(
                    "affinity applies to the virtual machine: each vCPU may use all of its CPUs",
                    "in a cluster with DRS nothing is pinned, because DRS does not support "
                    "affinity",
                    "cap and reservation are a share of a host CPU's clock rate; weight is shares",
                    "ready and co-stop times are reported only for intervals of 20 s",
                    "a free ESXi refuses every change by the API",
                    *NOTES,
                    "the same applies while ESXi reports ballooned, swapped or compressed memory",
                ),
                knobs=KNOBS,
                missing_knobs=MISSING_KNOBS,
                disk=frozenset({BUSES[options.devices].name}),
                toolbox=frozenset({LIVE}),
                limits_cards=options.isolated_network is None,
                no_limits="Tare does not change the policy of your port group",
            ),
            elsewhere=True,
            kernel="that of what it boots (`boot`)",
            channel=CHANNEL,
            needs=(
                "an ESXi host or a vCenter with an account (`tare help vsphere`)",
                "VMware's Python library (pip install 'hypertare[vsphere]')",
                "an image on a datastore whose Linux starts `tare-agent dial`",
            ),
            untested="Tested only against govmomi's simulator, with a local agent for the guest.",
            confirmed="simulator",
            host_boot=ANY_BOOT,
            boot_s=60.0,
            emulated_boot_s=60.0,
        )
        return isolating_network(stated, options)

    def disk_bus(self, options: VsphereOptions) -> Bus:
        """Return how the disk that a shape asks for is attached to virtual machines."""
        return BUSES[options.devices]

    def session(self, connection: Mapping[str, Any]) -> VsphereSession:
        """Return a session with ESXi or vCenter."""
        return VsphereSession(connection)

    async def look(
        self, session: VsphereSession, options: VsphereOptions, able: Capabilities
    ) -> ServerFindings:
        """Find everything that the options name, and whether the host can pin."""
        proof, drs, carrier, rights, no_network = await session.call(
            lambda client: _look(client, session, options)
        )
        threads = len(carrier.cpus.online)
        require_processors(options.processors, threads)
        notes = (*able.notes, HIDDEN) if drs else able.notes
        able = replace(
            able,
            pinning=able.pinning and not drs,
            max_vcpus=min(threads, MAX_VCPUS),
            notes=notes if options.boot else (*notes, BOOTS_NOTHING),
        )
        able = without_isolated(able, options, no_network)
        reason = f"{proof['product']} at {options.address} accepts virtual machines"
        versions = {"vsphere": proof["product"]}
        return ServerFindings(reason, versions, able, proof, rights, carrier)

    async def host_presence(self, session: VsphereSession, options: VsphereOptions) -> Presence:
        """Return the state of the ESXi host; vCenter reports it even if the host is off."""
        return await session.call(
            lambda client: presence_of(
                client, session.types, host_named(client, session.vim, options)
            )
        )

    def network_resources(
        self, session: VsphereSession, options: VsphereOptions, name: str, rate: float | None = None
    ) -> tuple[VsphereSwitchResource, ...]:
        """Return a standard switch with its port group; none if the arm names a port group."""
        if options.isolated_network is not None:
            return ()
        connection = {**options.model_dump(mode="json"), **options.connection()}
        details = {"name": name, "options": connection, **({} if rate is None else {"rate": rate})}
        return (VsphereSwitchResource(session, details),)

    def writes(self, options: VsphereOptions) -> tuple[Write, ...]:
        """Return what Tare creates for VMs at the host or at vCenter."""
        return (
            FOLDER,
            Write(
                VsphereVmResource.kind,
                "CreateVM_Task of a VM tare-…, ReconfigVM_Task with its CD, what it boots and the "
                "empty disk of its shape, PowerOnVM_Task, PowerOffVM_Task",
                "Destroy_Task",
                f"datastore {options.datastore}, folder {options.folder or '(the topmost)'}, "
                f"pool {options.pool or '(the topmost)'}",
            ),
            Write(
                VsphereFilesResource.kind,
                "an upload of its CD and CopyVirtualDisk_Task into the VM's folder tare-…",
                "DeleteDatastoreFile_Task of that folder",
                f"datastore {options.datastore}",
            ),
            *((SWITCH_WRITES,) if _creates_network(options) else ()),
        )

    def boots(self, options: VsphereOptions) -> str:
        """Return the origin of the kernel; without `boot` the network must provide one."""
        return "that of what it boots"

    async def make(self, session: VsphereSession, request: VmRequest[VsphereOptions]) -> VsphereVm:
        """Create a virtual machine with the configuration on a CD."""
        builder, spec = VmBuilder(session, request), request.spec
        await builder.build()
        return VsphereVm(session, request.options, spec.name, spec.shape.vcpus, builder)


def _look(
    client: Any, session: VsphereSession, options: VsphereOptions
) -> tuple[dict[str, str], bool, Carrier, tuple[str, ...], str]:
    where = find_location(client, session.vim, options)
    drs = is_moved_by_drs(where.host, session.vim)
    if options.isolated_network is not None:
        port_group(where.host, options.isolated_network, "isolated-network")
    creates = _creates_network(options)
    return (
        proof_of(client, where.host, session.vim),
        drs,
        carrier_of(where.host, () if drs else options.processors),
        rights_of(client, session, options, where),
        why_no_network(client, session, where.host) if creates else "",
    )


def _creates_network(options: VsphereOptions) -> bool:
    return options.network_way != GIVEN and options.isolated_network is None
