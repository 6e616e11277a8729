"""The platform ``ovirt``: oVirt and Red Hat Virtualization."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from tare.platforms.contract import (
    ANY_BOOT,
    Capabilities,
    Presence,
    Statement,
    Variant,
    Write,
)
from tare.platforms.linux.writes import FOLDER
from tare.platforms.ovirt.builder import (
    OvirtVmResource,
    VmBuilder,
    VmLocation,
    bus_of,
    status_words,
)
from tare.platforms.ovirt.cpu_profile import OvirtProfileResource, create_profile
from tare.platforms.ovirt.engine import Engine
from tare.platforms.ovirt.network import OvirtNetworkResource, add_network, lacking_network
from tare.platforms.ovirt.options import KNOBS, OvirtOptions
from tare.platforms.ovirt.session import OvirtSession
from tare.platforms.ovirt.vm import OvirtVm
from tare.platforms.vendors.isolated_network import isolating_network, without_isolated
from tare.platforms.vendors.offer import CHANNEL, LIVE, NOTES, SWAP_UNKNOWN
from tare.platforms.vendors.options import ANY
from tare.platforms.vendors.own_disk import Bus
from tare.platforms.vendors.platform import (
    ServerFindings,
    VendorPlatform,
    VmRequest,
    as_words,
    image_named,
    require_cpus,
)
from tare.platforms.vendors.resource import undoers_at

MIN_MEMORY = 256 << 20
MISSING_KNOBS = {
    "reservation": "oVirt has CPU shares, and no reservation",
    "policy": "oVirt runs guests as ordinary threads and does not support policy",
    "fifo": "oVirt runs guests as ordinary threads and does not support fifo",
    "nice": "oVirt has CPU shares (weight) instead",
    "slice": "oVirt does not set the kernel's time slice",
}
CAP_WRITES = Write(
    OvirtProfileResource.kind,
    "POST /datacenters/ID/qoss (a CPU quality of service tare-…), POST /cpuprofiles",
    "DELETE /cpuprofiles/ID, DELETE /datacenters/ID/qoss/ID",
    "the cluster and its data center",
)


class Ovirt(VendorPlatform[OvirtOptions, OvirtSession]):
    """VMs of oVirt and Red Hat Virtualization, made and removed over the engine's REST API."""

    name = "ovirt"
    product = "oVirt"
    known_as = dict.fromkeys(("rhv", "rhev", "olvm", "vdsm"), "")
    options = OvirtOptions
    variants = (Variant("", {"address": ANY}),)
    undoers = undoers_at(OvirtSession, OvirtVmResource, OvirtProfileResource, OvirtNetworkResource)
    session_type = OvirtSession
    example = "{platform: ovirt, address: engine.example}"

    def describe(self, options: OvirtOptions) -> str:
        """Return a phrase such as ``oVirt q35, paravirtual devices``."""
        parts = [f"oVirt {options.chipset}", f"{options.devices} devices"]
        if options.devices == "emulated":
            parts.append(options.nic)
        if options.firmware == "uefi":
            parts.append("UEFI")
        if options.cpu_profile is not None:
            parts.append(f"CPU profile {options.cpu_profile}")
        if words := options.scheduling.words():
            parts.append(words)
        return ", ".join(parts)

    def stated(self, options: OvirtOptions) -> Statement:
        """Return oVirt's features; nothing is tried."""
        stated = Statement(
            capabilities=Capabilities(
                pinning=True,
                max_vcpus=0,
                min_memory=MIN_MEMORY,
                devices=frozenset({"paravirtual", "emulated"}),
                notes=(
                    *NOTES,
                    SWAP_UNKNOWN,
                    "VMs are pinned to one host and have no memory balloon",
                    "a cap is in whole percent of all CPUs of the host, which applies it some "
                    "seconds after the VM's start",
                    "the engine's figures are averages over unknown intervals, so none is shown",
                    "a machine's key is on a CD that the engine keeps until the VM is removed",
                ),
                knobs=KNOBS,
                missing_knobs=MISSING_KNOBS,
                disk=frozenset({bus_of(options).name}),
                toolbox=frozenset({LIVE}),
                limits_cards=options.isolated_profile is None,
                no_limits="Tare does not change your vNIC profile",
            ),
            elsewhere=True,
            kernel="the live image's",
            channel=CHANNEL,
            needs=(
                "an engine of oVirt 4.4 or RHV 4.4 or newer, with an account that may make, edit "
                "and run VMs of a cluster",
                "ovirt-engine-sdk-python (apt-get install --no-remove gcc python3-dev libxml2-dev; "
                "pip install 'hypertare[ovirt]')",
                "a live image in one of its storage domains",
            ),
            confirmed="simulator",
            untested="Tested only against a simulator that answers and refuses as the engine does, "
            "never on a host.",
            host_boot=ANY_BOOT,
            boot_s=40.0,
            emulated_boot_s=120.0,
        )
        return isolating_network(stated, options)

    def disk_bus(self, options: OvirtOptions) -> Bus:
        """Return how the disk that a shape asks for is attached to VMs."""
        return bus_of(options)

    def session(self, connection: Mapping[str, Any]) -> OvirtSession:
        """Return a session with an engine."""
        return OvirtSession(connection)

    async def look(
        self, session: OvirtSession, options: OvirtOptions, able: Capabilities
    ) -> ServerFindings:
        """Check that cluster, host, network and image exist."""
        engine = Engine(session)
        location = await VmBuilder(engine, options).locate()
        facts = await engine.facts(location.host, location.cluster)
        versions = {"ovirt": str(facts.get("build", "")), "libvirt": str(facts.get("libvirt", ""))}
        reason = f"{options.address} is {facts.get('product')} {facts.get('build')}"
        able = replace(able, max_vcpus=int(facts.get("cpus", 1)))
        able = without_isolated(able, options, await lacking_network(engine, options))
        rights, carrier = await engine.rights(), await engine.carrier(location.host)
        return ServerFindings(reason, versions, able, as_words(facts), rights, carrier)

    async def host_presence(self, session: OvirtSession, options: OvirtOptions) -> Presence:
        """Return the state of the host, which the engine reports even if the host is off."""
        engine = Engine(session)
        host = await VmBuilder(engine, options).host()
        if host.status != engine.types.HostStatus.UP:
            return Presence(absent=f"the host {host.name} is {status_words(host.status)}")
        return Presence(since=await engine.booted(host.id))

    def writes(self, options: OvirtOptions) -> tuple[Write, ...]:
        """Return what Tare creates for VMs at the engine."""
        return (
            FOLDER,
            Write(
                OvirtVmResource.kind,
                "POST /vms (a VM tare-…), /vms/ID/nics, /vms/ID/cdroms, /disks (the empty one of "
                "its shape), /disks/ID/copy, /vms/ID/diskattachments, "
                "/vms/ID/start, /vms/ID/stop",
                "DELETE /vms/ID, DELETE /disks/ID",
                "the cluster and the storage domain of the image",
            ),
            *((CAP_WRITES,) if options.caps else ()),
            Write(
                OvirtNetworkResource.kind,
                "POST /networks (tare-…, of the OVN provider), POST /clusters/ID/networks; for "
                "workloads over a network; with a link of some speed POST /datacenters/ID/qoss (a "
                "network quality of service tare-…), PUT /vnicprofiles/ID of the new network",
                "DELETE /networks/ID, DELETE /datacenters/ID/qoss/ID",
                "the cluster's data center",
            ),
        )

    def network_resources(
        self, session: OvirtSession, options: OvirtOptions, name: str, rate: float | None = None
    ) -> tuple[OvirtNetworkResource, ...]:
        """Return a network of the OVN provider; empty if the arm names one to use."""
        if options.isolated_profile is not None:
            return ()
        engine = Engine(session)
        build = partial(add_network, engine, VmBuilder(engine, options), name, rate)
        limited = {} if rate is None else {"limited": True}
        details = {**options.connection(), "name": name, **limited}
        return (OvirtNetworkResource(session, details, build),)

    def boots(self, options: OvirtOptions) -> str:
        """Return the origin of the kernel: the image, which the arm must name."""
        return image_named(options.image, "oVirt", "name a disk by `image`: its name, or its id")

    async def make(self, session: OvirtSession, request: VmRequest[OvirtOptions]) -> OvirtVm:
        """Create the VM."""
        spec, engine = request.spec, Engine(session)
        builder = VmBuilder(engine, request.options)
        location = await builder.locate()
        facts = await engine.facts(location.host, location.cluster)
        # The engine checks this only when the VM is started.
        instead = "plan again: the host has fewer CPUs than when it was planned"
        require_cpus(spec.cpus, int(facts.get("cpus", 0)), "the host", instead)
        await builder.require_free(spec.name)
        percent = request.options.cpu_limit(spec.role, int(facts.get("cpus", 0)) or 1)
        if percent is not None:
            location = await self._capped(engine, request, location, percent)
        await request.create(
            OvirtVmResource(session, request.details, partial(builder.build, request, location))
        )
        return OvirtVm(engine, builder.vm, builder.wanted, facts)

    async def _capped(
        self,
        engine: Engine,
        request: VmRequest[OvirtOptions],
        location: VmLocation,
        percent: int,
    ) -> VmLocation:
        """Create the CPU profile that caps a VM, and return the VM's location with that profile."""
        profile = ""

        async def create() -> None:
            nonlocal profile
            profile = await create_profile(engine, request.spec.name, location.cluster, percent)

        details = {**request.details, "data_center": str(location.cluster.data_center.id)}
        await request.create(OvirtProfileResource(engine.session, details, create))
        return replace(location, profile=profile)
