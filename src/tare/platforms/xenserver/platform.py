"""The platform ``xenserver``, for XenServer and XCP-ng."""

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
from tare.platforms.vendors.isolated_network import isolating_network
from tare.platforms.vendors.offer import CHANNEL, LIVE, NOTES
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
from tare.platforms.xenserver.builder import BUSES, VmBuilder, XenVmResource
from tare.platforms.xenserver.network import XenNetworkResource
from tare.platforms.xenserver.options import KNOBS, XenserverOptions
from tare.platforms.xenserver.pool import Pool
from tare.platforms.xenserver.session import XenSession
from tare.platforms.xenserver.vm import XenVm
from tare.study.model.platform_options import GIVEN

MIN_MEMORY = 256 << 20
MISSING_KNOBS = {
    "reservation": "Xen has weight and cap, and no reservation",
    "policy": "Xen's schedulers do not support policy",
    "fifo": "Xen's schedulers do not support fifo",
    "nice": "Xen has weight instead",
    "slice": "XenAPI does not set Xen's time slice; on Xen with `xl`, `platform: xen` does",
}
NETWORK_WRITES = Write(
    XenNetworkResource.kind,
    "network.create of a network tare-… without a PIF, for workloads that need a network",
    "network.destroy",
)


class Xenserver(VendorPlatform[XenserverOptions, XenSession]):
    """XenServer and XCP-ng: HVM guests of a pool, made and removed over XenAPI."""

    name = "xenserver"
    product = "XenServer"
    known_as = dict.fromkeys(("xcp-ng", "xcpng", "xcp", "citrix", "xapi"), "")
    options = XenserverOptions
    variants = (Variant("", {"address": ANY}),)
    undoers = undoers_at(XenSession, XenVmResource, XenNetworkResource)
    session_type = XenSession
    example = "{platform: xenserver, address: xen1.example} of a pool's coordinator"

    def describe(self, options: XenserverOptions) -> str:
        """Return a phrase such as ``XenServer HVM, paravirtual devices``."""
        parts = ["XenServer HVM", f"{options.devices} devices"]
        if options.devices == "emulated":
            parts.append(f"{options.nic} and IDE")
        if words := options.scheduling.words():
            parts.append(words)
        return ", ".join(parts)

    def stated(self, options: XenserverOptions) -> Statement:
        """Return XenServer's features; nothing is tried."""
        stated = Statement(
            capabilities=Capabilities(
                pinning=True,
                max_vcpus=0,
                min_memory=MIN_MEMORY,
                devices=frozenset({"paravirtual", "emulated"}),
                notes=(
                    *NOTES,
                    "guests are HVM, because newer XenServer has no PV guests",
                    "the guest's kernel chooses between paravirtual and emulated devices: emulated "
                    "ones need an image booted with `xen_emul_unplug=never nopv`",
                    "run states are reported every 5 s, for all vCPUs of a VM together",
                ),
                knobs=KNOBS,
                missing_knobs=MISSING_KNOBS,
                disk=frozenset({BUSES[options.devices].name}),
                toolbox=frozenset({LIVE}),
                limits_cards=True,
            ),
            elsewhere=True,
            kernel="the live image's",
            channel=CHANNEL,
            needs=(
                "XenServer 8, Citrix Hypervisor 8.2 or XCP-ng 8.2 or newer, with an account of the "
                "role vm-power-admin",
                "XenAPI (pip install 'hypertare[xenserver]')",
                "a live image in one of its repositories",
            ),
            confirmed="simulator",
            untested="Tested only against a simulator that answers and refuses as XenAPI does, "
            "never on a host.",
            host_boot=ANY_BOOT,
            boot_s=40.0,
            emulated_boot_s=120.0,
        )
        return isolating_network(stated, options)

    def disk_bus(self, options: XenserverOptions) -> Bus:
        """Return how the disk that a shape asks for is attached to VMs."""
        return BUSES[options.devices]

    def session(self, connection: Mapping[str, Any]) -> XenSession:
        """Return a session with a pool's coordinator."""
        return XenSession(connection)

    async def look(
        self, session: XenSession, options: XenserverOptions, able: Capabilities
    ) -> ServerFindings:
        """Check that host, repository, network and image exist."""
        pool = Pool(session)
        host = await pool.host(options.on_host)
        await VmBuilder(pool, options, host).locate()
        facts = await pool.facts(host)
        versions = {"xenserver": str(facts.get("build", "")), "xen": str(facts.get("xen", ""))}
        reason = f"{options.address} is {facts.get('product')} {facts.get('build')}"
        able = replace(able, max_vcpus=int(facts.get("cpus", 1)))
        rights, carrier = await pool.rights(), await pool.carrier(host)
        return ServerFindings(reason, versions, able, as_words(facts), rights, carrier)

    async def host_presence(self, session: XenSession, options: XenserverOptions) -> Presence:
        """Return the state of the host, which the coordinator reports even if the host is off."""
        pool = Pool(session)
        return await pool.presence(await pool.host(options.on_host))

    def network_resources(
        self, session: XenSession, options: XenserverOptions, name: str, rate: float | None = None
    ) -> tuple[XenNetworkResource]:
        """Return a network without a PIF."""
        return (XenNetworkResource(session, {**options.connection(), "name": name}),)

    def writes(self, options: XenserverOptions) -> tuple[Write, ...]:
        """Return what Tare creates for VMs in the pool."""
        return (
            FOLDER,
            Write(
                XenVmResource.kind,
                "VM.create of a VM tare-…, VDI.create (its configuration, the empty disk of its "
                "shape), VDI.copy of the image, VBD.create, "
                "VIF.create, VM.start_on, VM.hard_shutdown",
                "VDI.destroy, VM.destroy",
                "the repository `sr`, else the pool's own",
            ),
            *((NETWORK_WRITES,) if options.network_way != GIVEN else ()),
        )

    def boots(self, options: XenserverOptions) -> str:
        """Return the origin of the kernel: the image, which the arm must name."""
        return image_named(
            options.image, "XenServer", "name a VDI by `image`: its name, or its UUID"
        )

    async def make(self, session: XenSession, request: VmRequest[XenserverOptions]) -> XenVm:
        """Create the VM and its configuration disk."""
        options, spec, pool = request.options, request.spec, Pool(session)
        host = await pool.host(options.on_host)
        facts = await pool.facts(host)
        instead = "plan again: the host has fewer CPUs than when it was planned"
        require_cpus(spec.cpus, int(facts.get("cpus", 0)), "the host", instead)
        builder = VmBuilder(pool, options, host)
        await request.create(
            XenVmResource(session, request.details, partial(builder.build, request))
        )
        return XenVm(pool, builder.vm, host, builder.wanted, facts, options.devices)
