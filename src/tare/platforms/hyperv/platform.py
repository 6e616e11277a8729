"""Hyper-V as a platform."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from tare.platforms.contract import (
    ANY_BOOT,
    Capabilities,
    Presence,
    Statement,
    Variant,
    Write,
)
from tare.platforms.hyperv.making import BUSES, Making
from tare.platforms.hyperv.options import KNOBS, HypervOptions
from tare.platforms.hyperv.server import Server, facts_of, groups_of
from tare.platforms.hyperv.session import EXTRA, PRODUCT, HypervSession
from tare.platforms.hyperv.vm import HypervVm, wanted_of
from tare.platforms.linux.writes import FOLDER
from tare.platforms.vendors.offer import CHANNEL, LIVE, NOTES, dialling_network
from tare.platforms.vendors.options import ANY
from tare.platforms.vendors.own_disk import Bus
from tare.platforms.vendors.platform import (
    Order,
    Seen,
    VendorPlatform,
    image_named,
    removal,
    shown_of,
)
from tare.platforms.vendors.session import require

VM = "hyperv-vm"
MIN_MEMORY = 256 << 20
MOST_OF_GENERATION_1 = 64
"""vCPUs ("Plan for Hyper-V scalability in Windows Server")."""
MISSING_KNOBS = {
    "policy": "Hyper-V's schedulers know no policy",
    "fifo": "Hyper-V's schedulers know no fifo",
    "nice": "Hyper-V has weight instead",
    "slice": "Hyper-V does not set its time slice",
}


async def remove_noted(session: HypervSession, details: Mapping[str, Any]) -> bool:
    """Remove the VM that the ledger names, with its folder."""
    return await Server(session).remove_named(str(details["name"]), str(details["folder"]))


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
    undoers = MappingProxyType(
        {VM: removal(HypervSession, remove_noted, "Removed the VM {name} with its folder.")}
    )
    example = "{platform: hyperv, address: hyperv1.example}"

    def describe(self, options: HypervOptions) -> str:
        """Return a phrase such as ``Hyper-V generation 1, paravirtual devices``."""
        parts = [f"Hyper-V generation {options.generation}", f"{options.devices} devices"]
        if options.secure_boot:
            parts.append("Secure Boot")
        if words := options.scheduling.words():
            parts.append(words)
        return ", ".join(parts)

    def stated(self, options: HypervOptions) -> Statement:
        """Return what Hyper-V offers; nothing is tried for it."""
        emulated = {"emulated"} if options.generation == 1 else set()
        stated = Statement(
            capabilities=Capabilities(
                pinning=False,
                max_vcpus=0,
                min_memory=MIN_MEMORY,
                devices=frozenset({"paravirtual"} | emulated),
                notes=(
                    *NOTES,
                    "no pinning: Hyper-V's cmdlets bind no vCPU to a CPU; CPU groups, which "
                    "confine whole VMs, take Microsoft's cpugroups.exe",
                    "cap and reservation are whole percent of the VM's processors",
                    "memory is static, and checkpoints are refused",
                    "a migration there and back between two looks is not seen",
                    "CPU wait time per dispatch is a mean from just before a cell to just after "
                    "it; guests show no steal",
                ),
                knobs=KNOBS,
                missing_knobs=MISSING_KNOBS,
                disk=frozenset({BUSES[options.devices].name}),
                toolbox=frozenset({LIVE}),
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
            untested="Was run against a server of Tare's own that answers and refuses as WinRM and "
            "the cmdlets do, never on a host.",
            host_boot=ANY_BOOT,
            boot_s=40.0,
            emulated_boot_s=120.0,
        )
        return dialling_network(stated, options)

    def disk_bus(self, options: HypervOptions) -> Bus:
        """Return how VMs get the disk that their shape asks for."""
        return BUSES[options.devices]

    def require_library(self) -> None:
        """Check that pypsrp is installed."""
        require(EXTRA, PRODUCT, "pypsrp")

    def session(self, way: Mapping[str, Any]) -> HypervSession:
        """Return a login at a host."""
        return HypervSession(way)

    async def look(
        self, session: HypervSession, options: HypervOptions, able: Capabilities
    ) -> Seen:
        """See whether folder, switch and image are there."""
        server = Server(session)
        ground = await Making(server, options).look()
        facts = await facts_of(server, ground.host)
        product = facts.get("product") or "Hyper-V"
        reason = f"{options.address} is {product} {facts.get('build', '')}".strip()
        most = ground.host.number("LogicalProcessorCount") or 1
        if options.generation == 1:
            most = min(most, MOST_OF_GENERATION_1)
        versions = {"hyperv": str(facts.get("build", ""))}
        able, rights = replace(able, max_vcpus=most), await groups_of(server)
        return Seen(reason, versions, able, shown_of(facts), rights)

    async def host_presence(self, session: HypervSession, options: HypervOptions) -> Presence:
        """Return since when the host runs: one that answers for Hyper-V is up."""
        server = Server(session)
        await server.host()
        return Presence(since=await server.booted())

    def writes(self, options: HypervOptions) -> tuple[Write, ...]:
        """Return what VMs make on the host."""
        return (
            FOLDER,
            Write(
                VM,
                "New-Item of a folder tare-…, [IO.File]::WriteAllBytes of its configuration, "
                "Copy-Item of the image, New-VM, Set-VM, Set-VMProcessor, Set-VMFirmware, "
                "Add-VMNetworkAdapter, Remove-VMNetworkAdapter, Add-VMDvdDrive, Set-VMDvdDrive, "
                "New-VHD and Add-VMHardDiskDrive of the empty disk of its shape, Start-VM, Stop-VM",
                "Remove-VM, Remove-Item of the folder",
                "the folder of `folder`, else the host's own for VMs",
            ),
        )

    def boots(self, options: HypervOptions) -> str:
        """Say in which image the kernel is, which must be named."""
        return image_named(
            options.image, "Hyper-V", "say by `image` which file of the host, as `D:\\tare.iso`"
        )

    async def make(self, session: HypervSession, order: Order[HypervOptions]) -> HypervVm:
        """Make the VM in a folder of its own."""
        options, spec, server = order.options, order.spec, Server(session)
        making = Making(server, options)
        ground = await making.look()
        facts = await facts_of(server, ground.host)
        await making.require_free(spec.name, ground)

        async def remove(name: str) -> bool:
            return await server.remove_named(name, ground.folder)

        # By its folder a VM is known as Tare's own, before it is marked in any other way.
        gone = order.noted(VM, remove, folder=ground.folder)
        vm = await making.make(spec, ground, order.image, order.disk)
        wanted = wanted_of(options, spec, ground.switch)
        return HypervVm(server, vm, spec.name, wanted, facts, options.devices, gone)
