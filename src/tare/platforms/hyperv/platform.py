"""The platform ``hyperv``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from tare.errors import TareError
from tare.platforms.contract import (
    ANY_BOOT,
    Capabilities,
    Presence,
    Statement,
    Variant,
    Write,
)
from tare.platforms.hyperv.builder import BUSES, HypervVmResource, VmBuilder
from tare.platforms.hyperv.cpu_groups import (
    HypervGroupResource,
    groups_of_host,
    placed_by_core,
    require_groups,
)
from tare.platforms.hyperv.network import HypervSwitchResource
from tare.platforms.hyperv.options import AUTO, KNOBS, HypervOptions
from tare.platforms.hyperv.server import Server, carrier_of, facts_of, groups_of
from tare.platforms.hyperv.session import HypervSession
from tare.platforms.hyperv.vm import CpuGroupConfinement, HypervVm, wanted_of
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
)
from tare.platforms.vendors.resource import undoers_at
from tare.study.model.platform_options import GIVEN

MIN_MEMORY = 256 << 20
MOST_OF_GENERATION_1 = 64
"""The limit of vCPUs in generation 1 ("Plan for Hyper-V scalability in Windows Server")."""
MISSING_KNOBS = {
    "policy": "Hyper-V's schedulers do not support policy",
    "fifo": "Hyper-V's schedulers do not support fifo",
    "nice": "Hyper-V has weight instead",
    "slice": "Hyper-V does not set its time slice",
}
SWITCH_WRITES = Write(
    HypervSwitchResource.kind,
    "New-VMSwitch of a private switch tare-…, for workloads that need a network",
    "Remove-VMSwitch",
)
GROUP_WRITES = Write(
    HypervGroupResource.kind,
    "HcsModifyServiceSettings, CreateGroup, of a CPU group; ModifyResourceSettings of a VM tare-…, "
    "which puts it into the group",
    "HcsModifyServiceSettings, DeleteGroup",
)
CONFINED = "a CPU group confines a VM: each of its vCPUs may use all CPUs of the group"
NO_LIMIT = (
    "bandwidth management is a feature of Hyper-V's own network adapter, which the legacy adapter "
    "lacks"
)
UNPINNED = (
    "nothing is pinned; `cpu-groups: true` confines VMs to CPUs (Windows Server 2019 or later)"
)


class Hyperv(VendorPlatform[HypervOptions, HypervSession]):
    """Hyper-V of Windows Server and Windows: VMs made and removed by its cmdlets, over WinRM."""

    name = "hyperv"
    product = "Hyper-V"
    known_as = dict.fromkeys(("hyper-v", "windows"), "")
    options = HypervOptions
    variants = (
        Variant("", {"address": ANY}),
        Variant("generation 2", {"address": ANY, "generation": 2}),
    )
    undoers = undoers_at(HypervSession, HypervVmResource, HypervSwitchResource, HypervGroupResource)
    session_type = HypervSession
    example = "{platform: hyperv, address: hyperv1.example}"

    def describe(self, options: HypervOptions) -> str:
        """Return a phrase such as ``Hyper-V generation 1, paravirtual devices``."""
        parts = [f"Hyper-V generation {options.generation}", f"{options.devices} devices"]
        if options.secure_boot:
            parts.append("Secure Boot")
        if options.cpu_groups:
            parts.append("CPU groups")
        if words := options.scheduling.words():
            parts.append(words)
        return ", ".join(parts)

    def stated(self, options: HypervOptions) -> Statement:
        """Return Hyper-V's features; nothing is tried."""
        emulated = {"emulated"} if options.generation == 1 else set()
        stated = Statement(
            capabilities=Capabilities(
                pinning=bool(options.cpu_groups),
                max_vcpus=0,
                min_memory=MIN_MEMORY,
                devices=frozenset({"paravirtual"} | emulated),
                notes=(
                    *NOTES,
                    CONFINED if options.cpu_groups else UNPINNED,
                    "cap and reservation are whole percent of the VM's processors",
                    "memory is static, and checkpoints are disabled",
                    "a migration away and back between two checks is not noticed",
                    "CPU wait time per dispatch is a mean over the cell; guests show no steal",
                ),
                knobs=KNOBS,
                missing_knobs=MISSING_KNOBS,
                disk=frozenset({BUSES[options.devices].name}),
                toolbox=frozenset({LIVE}),
                limits_cards=options.devices == "paravirtual",
                no_limits=NO_LIMIT,
            ),
            elsewhere=True,
            kernel="the live image's",
            channel=CHANNEL,
            needs=(
                "Windows Server 2016, Windows 10 or newer with Hyper-V and WinRM over HTTPS, with "
                "an account in Hyper-V Administrators and Remote Management Users",
                "pypsrp (pip install 'hypertare[hyperv]')",
                "a live image on a disk of the host",
            ),
            confirmed="simulator",
            untested="Tested only against a simulator that answers and refuses as WinRM and the "
            "cmdlets do, never on a host.",
            host_boot=ANY_BOOT,
            boot_s=40.0,
            emulated_boot_s=120.0,
        )
        return isolating_network(stated, options)

    def disk_bus(self, options: HypervOptions) -> Bus:
        """Return how the disk that a shape asks for is attached to VMs."""
        return BUSES[options.devices]

    def session(self, connection: Mapping[str, Any]) -> HypervSession:
        """Return a session with a host."""
        return HypervSession(connection)

    async def look(
        self, session: HypervSession, options: HypervOptions, able: Capabilities
    ) -> ServerFindings:
        """Check that folder, switch and image exist."""
        server = Server(session)
        location = await VmBuilder(server, options).locate()
        facts = await facts_of(server, location.host)
        grouped = bool(options.cpu_groups)
        try:
            if grouped:
                require_groups(facts)
                await groups_of_host(session)
        except TareError as error:
            if options.cpu_groups != AUTO:
                raise
            grouped, able = False, replace(able, pinning=False)
            facts = {**facts, "cpu groups": f"not used: {error.message}"}
        product = facts.get("product") or "Hyper-V"
        reason = f"{options.address} is {product} {facts.get('build', '')}".strip()
        most = location.host.number("LogicalProcessorCount") or 1
        if options.generation == 1:
            most = min(most, MOST_OF_GENERATION_1)
        versions = {"hyperv": str(facts.get("build", ""))}
        able, rights = replace(able, max_vcpus=most), await groups_of(server)
        carrier = await carrier_of(server, location.host)
        if grouped:
            carrier = await placed_by_core(session, carrier)
        return ServerFindings(reason, versions, able, as_words(facts), rights, carrier)

    async def host_presence(self, session: HypervSession, options: HypervOptions) -> Presence:
        """Return the time of the host's boot; a host that answers for Hyper-V is up."""
        server = Server(session)
        await server.host()
        return Presence(since=await server.booted())

    def network_resources(
        self, session: HypervSession, options: HypervOptions, name: str, rate: float | None = None
    ) -> tuple[HypervSwitchResource]:
        """Return a private virtual switch."""
        return (HypervSwitchResource(session, {**options.connection(), "name": name}),)

    def writes(self, options: HypervOptions) -> tuple[Write, ...]:
        """Return what Tare creates for VMs on the host."""
        return (
            FOLDER,
            Write(
                HypervVmResource.kind,
                "New-Item of a folder tare-…, [IO.File]::WriteAllBytes of its configuration, "
                "Copy-Item of the image, New-VM, Set-VM, Set-VMProcessor, Set-VMFirmware, "
                "Add-VMNetworkAdapter, Remove-VMNetworkAdapter, Set-VMNetworkAdapter, "
                "Add-VMDvdDrive, Set-VMDvdDrive, "
                "New-VHD and Add-VMHardDiskDrive of the empty disk of its shape, Start-VM, Stop-VM",
                "Remove-VM, Remove-Item of the folder",
                "the folder of `folder`, else the host's own for VMs",
            ),
            *((GROUP_WRITES,) if options.cpu_groups else ()),
            *((SWITCH_WRITES,) if options.network_way != GIVEN else ()),
        )

    def boots(self, options: HypervOptions) -> str:
        """Return the origin of the kernel: the image, which the arm must name."""
        return image_named(
            options.image, "Hyper-V", "name a file of the host by `image`, such as `D:\\tare.iso`"
        )

    async def make(self, session: HypervSession, request: VmRequest[HypervOptions]) -> HypervVm:
        """Create the VM in a folder of its own."""
        options, spec, server = request.options, request.spec, Server(session)
        builder = VmBuilder(server, options)
        location = await builder.locate()
        facts = await facts_of(server, location.host)
        await builder.require_free(spec.name, location)
        processors = await builder.confine(request, location, facts)
        details = {**request.details, "folder": location.folder}
        await request.create(
            HypervVmResource(session, details, partial(builder.build, request, location))
        )
        wanted = wanted_of(options, spec, location.switch, request.isolated)
        group = None if builder.group is None else CpuGroupConfinement(builder.group, processors)
        return HypervVm(server, builder.vm, spec.name, wanted, facts, options.devices, group)
