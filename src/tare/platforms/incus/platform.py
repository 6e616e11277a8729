"""The platform of Incus and LXD."""

from __future__ import annotations

import json
import platform as machines
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar

from tare.errors import InputError, MachineFault, TareError
from tare.hosts.contract import Host
from tare.platforms.contract import (
    ANY_BOOT,
    KVM_BOOT,
    NO_HYPERVISOR,
    Capabilities,
    Context,
    HostAccess,
    Presence,
    Statement,
    Variant,
    Verdict,
    Write,
)
from tare.platforms.incus.instance import (
    BUS,
    CALLBACK,
    OWN_VOLUME,
    VOLUME,
    IncusInstance,
    container,
    limits_of,
    pins_of,
    project_of,
    virtual_machine,
)
from tare.platforms.incus.options import KNOBS, IncusOptions
from tare.platforms.incus.parcels import container_image
from tare.platforms.incus.server import DRIVERS, IMAGES, LOCK_S, VOLUMES, Facts, Server
from tare.platforms.incus.session import IncusSession, logged_in
from tare.platforms.linux.writes import FOLDER
from tare.platforms.qemu.huge_pages import pages_needed, partial_pages, reserving, shortage
from tare.platforms.vendors.isolated_network import isolating_network, without_isolated
from tare.platforms.vendors.offer import (
    CHANNEL,
    LIVE,
    NOTES,
    NOTES_WITHOUT,
    SWAP_UNKNOWN,
)
from tare.platforms.vendors.own_disk import Bus
from tare.platforms.vendors.platform import (
    ServerFindings,
    VendorPlatform,
    VmRequest,
    image_named,
    require_cpus,
)
from tare.platforms.vendors.resource import ServerResource, undo_at
from tare.platforms.vendors.session import RequestRefused

PROJECT, NETWORK = "incus-project", "incus-network"
RESTRICTED = "the certificate is restricted to projects, and a network is created outside of them"
MIN_MEMORY = {"vm": 384 << 20, "container": 32 << 20}
UNPRIVILEGED = (
    "nothing in a container without the host's root may have real-time priority; "
    "`privileged: true` makes one with it"
)
MISSING_KNOBS = {
    "reservation": "Incus and LXD have no reservation of CPU time",
    "policy": "Incus and LXD do not support scheduling policies",
    "fifo": "Incus and LXD do not support scheduling policies",
    "nice": "Incus and LXD have `limits.cpu.allowance` instead",
    "slice": "Incus and LXD leave time slices to the kernel",
}
EMULATED = "the processor is emulated in software"
TRIED_CONTAINERS = (
    "containers were tested with LXD 5.0.2 of Debian 12 and with Incus 6.0.4 of Debian 13, on a "
    "`dir` pool: by the socket, also over SSH, and over HTTPS"
)
TRIED_VMS = (
    "VMs were tested with LXD 5.0.2 of Debian 12 and with Incus 6.0.4 of Debian 13, by the socket, "
    "on a computer with a stand-in for vhost_vsock, which both require"
)
TRIED_NETWORK = {
    "container": "the agent's exchanges over an isolated network were measured with LXD 5.0.2 of "
    "Debian 12; iperf3, nginx and HAProxy need a toolbox, which containers lack",
    "vm": "two emulated VMs of LXD 5.0.2 of Debian 12 exchanged packets over an isolated network; "
    "no load was measured over one yet",
}
OF_VMS = "Incus and LXD weigh and cap containers only"

HARMLESS = ("limits.", "boot.", "migration.", "agent.")
"""Prefixes of an instance's keys that give it no access beyond its share of the server."""
REACHING = "may run programs, load modules or lift limits on the server's host"


class ProjectResource(ServerResource[IncusSession]):
    """A project that belongs to Tare, with the instance of one machine."""

    kind = PROJECT
    removal_s = LOCK_S

    @property
    def words(self) -> str:
        """The instance and its project, as a phrase for messages."""
        return f"{self.name} and its project {project_of(self.name)}"

    async def exists(self) -> bool:
        """Check whether the project is there, and was made for this machine."""
        return await Server(self.session).has_project(project_of(self.name), self.name)

    async def remove(self) -> None:
        """Remove the project with all that is in it."""
        await Server(self.session).remove_project(project_of(self.name))

    def passes(self, fault: MachineFault) -> bool:
        """Check whether the server refused; that may pass, because the server may be busy."""
        return isinstance(fault, RequestRefused)


class IncusNetworkResource(ServerResource[IncusSession]):
    """A bridge of the server without addresses, for the machines of one batch."""

    kind = NETWORK
    busy = ("in use", "currently in use")

    @property
    def words(self) -> str:
        """The network's name as a phrase for messages."""
        return f"the network {self.name}"

    async def create(self) -> None:
        """Create the network."""
        await Server(self.session).make_network(self.name)

    async def exists(self) -> bool:
        """Check whether the network is there, with Tare's mark."""
        return await Server(self.session).has_network(self.name)

    async def remove(self) -> None:
        """Remove the network."""
        await Server(self.session).remove_network(self.name)


class Incus(VendorPlatform[IncusOptions, IncusSession]):
    """Incus and LXD: virtual machines and system containers, made and removed over REST."""

    name = "incus"
    product = "Incus"
    known_as: ClassVar[Mapping[str, str]] = {
        "lxd": "",
        **dict.fromkeys(("lxc", "system-container"), "type: container"),
    }
    options = IncusOptions
    variants = (
        Variant("vm", {"type": "vm"}),
        Variant("vm emulated", {"type": "vm", "accelerator": "tcg"}),
        Variant("container", {"type": "container"}),
    )
    undoers = MappingProxyType(
        {
            PROJECT: undo_at(logged_in, ProjectResource),
            NETWORK: undo_at(logged_in, IncusNetworkResource),
        }
    )
    session_type = IncusSession
    example = "{platform: incus, image: tare-live}"

    def describe(self, options: IncusOptions) -> str:
        """Return a phrase such as ``Incus or LXD container``."""
        kind = "container" if options.is_container else "virtual machine"
        extra = ", ".join(f"{key}: {value}" for key, value in options.extra_config.items())
        notes = {
            "with the host's root": options.privileged,
            "without KVM": options.accelerator == "tcg",
            "huge pages": options.hugepages,
            "without Secure Boot": not options.secure_boot,
            options.scheduling.words(): bool(options.scheduling.words()),
            f"keys that Tare does not interpret: {extra}": bool(extra),
        }
        return ", ".join((f"Incus or LXD {kind}", *(word for word, so in notes.items() if so)))

    def stated(self, options: IncusOptions) -> Statement:
        """Return the statement about instances, without testing anything on a server."""
        return _stated_container(options) if options.is_container else _stated_vm(options)

    def disk_bus(self, options: IncusOptions) -> Bus | None:
        """Return the bus of the disk that a VM's shape asks for; containers get no disk."""
        return None if options.is_container else BUS

    def session(self, connection: Mapping[str, Any]) -> IncusSession:
        """Return a session with a server that has an address."""
        return IncusSession(connection, "", str(connection["address"]))

    @asynccontextmanager
    async def logged_in(
        self, host: Host, connection: Mapping[str, Any]
    ) -> AsyncIterator[IncusSession]:
        """Hold a session open, over the host's socket if there is no address."""
        async with logged_in(host, connection) as session:
            yield session

    async def check(self, context: Context, options: IncusOptions) -> Verdict:
        """Ask the server for its facts and check them; nothing is created."""
        far = not context.host.local and not options.address
        if far and options.is_container and options.callback_address.is_loopback:
            stated = self.stated(options)
            here = options.callback_address
            reason = f"containers of {context.host.name} cannot reach {here} of this one"
            hint = "name an address of this computer by `callback`: ADDRESS:PORT"
            return Verdict(False, reason, hint, stated.emulated, {}, stated.capabilities)
        verdict = await super().check(context, options)
        if not (verdict.usable and options.hugepages):
            return verdict
        try:
            async with self.logged_in(context.host, options.connection()) as session:
                lacks = await _lacking_pages(Server(session), context.memories)
        except TareError as error:
            return replace(
                verdict, usable=False, reason=error.message, hint=error.hint, lasting=False
            )
        if lacks is None:
            return verdict
        return replace(verdict, usable=False, reason=lacks[0], hint=lacks[1])

    async def look(
        self, session: IncusSession, options: IncusOptions, able: Capabilities
    ) -> ServerFindings:
        """Read the server's facts, and find all objects that the options name."""
        server = Server(session)
        facts = await server.facts()
        await server.require(options.type, facts)
        _require_same(facts, options)
        await server.pool(options.pool)
        if options.image is not None:
            await server.image(options.image)
            await server.nic(options.network)
        driver = DRIVERS[options.type]
        versions = {
            facts.product.lower(): facts.version,
            driver: facts.drivers[driver],
            "linux": facts.kernel,
        }
        reason = f"{session.name} is {facts.product} {facts.version}"
        able, rights = replace(able, max_vcpus=await server.cpus()), await server.rights()
        restricted = any(", restricted to" in words for words in rights)
        refusal = RESTRICTED if restricted else ""
        able = without_isolated(able, options, refusal, given=not options.is_container)
        shown = {
            "product": f"{facts.product} {facts.version}",
            "kernel": facts.kernel,
            "hyper-threading": facts.hyper_threading,
            "power policy": facts.power_policy,
        }
        shown = {name: words for name, words in shown.items() if words}
        return ServerFindings(reason, versions, able, shown, rights, await server.carrier())

    async def host_presence(self, session: IncusSession, options: IncusOptions) -> Presence:
        """Report the host as up, because its server answers; the API does not report its boots."""
        return Presence()

    def writes(self, options: IncusOptions) -> tuple[Write, ...]:
        """Return the objects that instances create at the server.

        `tare help incus` lists the rights for them.
        """
        inside = "images (the agent's own)" if options.is_container else "storage-pools/…/volumes"
        return (
            FOLDER,
            Write(
                PROJECT,
                f"POST /1.0/projects (tare-…), and in it alone: {inside}, instances (tare-…), "
                "instances/…/state",
                "DELETE of all that is in that project, and of it",
                f"storage pool {options.pool or '(the only one)'}",
            ),
            Write(
                NETWORK,
                "POST /1.0/networks (a bridge tare-… without addresses), for workloads over a "
                "network",
                "DELETE /1.0/networks/tare-…",
                "the project `default`",
            ),
        )

    def network_resources(
        self, session: IncusSession, options: IncusOptions, name: str, rate: float | None = None
    ) -> tuple[IncusNetworkResource, ...]:
        """Return the resource of an isolated network: a bridge without addresses."""
        return (IncusNetworkResource(session, {**options.connection(), "name": name}),)

    def host_access(self, options: IncusOptions) -> tuple[HostAccess, ...]:
        """Return the configuration keys that may reach the server's host."""
        return tuple(
            HostAccess("extra-config", f"{key}: {value}", REACHING)
            for key, value in options.extra_config.items()
            if not key.startswith(HARMLESS)
        )

    def boots(self, options: IncusOptions) -> str:
        """Describe which kernel boots, and from which image, which must be named for VMs."""
        if options.is_container:
            return "the host's own"
        return image_named(
            options.image, "Incus and LXD", "say by `image` which, by its alias: tare-live"
        )

    async def make(self, session: IncusSession, request: VmRequest[IncusOptions]) -> IncusInstance:
        """Create a project, and in it the instance with all that it needs."""
        options, spec, server = request.options, request.spec, Server(session)
        limits_of(options, spec)
        facts = await server.facts()
        if spec.cpus:
            instead = "plan again: the host has fewer CPUs than when it was planned"
            require_cpus(pins_of(spec), await server.cpus(), session.name, instead)
        pool, project = await server.pool(options.pool), project_of(spec.name)
        settings = {
            # VMs boot an image of the server's owner, containers an image of Tare's.
            IMAGES: str(options.is_container).lower(),
            "features.profiles": "true",
            VOLUMES: "true",
        }
        build = partial(server.make_project, project, spec.name, settings)
        await request.create(ProjectResource(session, request.details, build))
        if options.is_container:
            agent = container_image(request.agent.read_bytes(), facts.architecture)
            image = await server.bring_image(project, agent)
            callback, product = request.configuration["callback"], facts.product
            wanted = container(
                options, spec, pool, image, callback, product=product, isolated=request.isolated
            )
            await server.make(project, wanted)
            configuration = {**request.configuration, "callback": CALLBACK}
            await server.bring_configuration(project, spec.name, json.dumps(configuration).encode())
        else:
            image = await server.image(str(options.image))
            nic = await server.nic(options.network)
            await server.bring_volume(project, pool, VOLUME, request.image)
            if request.disk is not None:
                await server.make_volume(project, pool, OWN_VOLUME, request.disk.size)
            own = request.disk is not None
            wanted = virtual_machine(
                options, spec, pool, image, nic, own=own, isolated=request.isolated
            )
            await server.make(project, wanted)
        return IncusInstance(server, spec, wanted, facts)


async def _lacking_pages(server: Server, memories: Sequence[int]) -> tuple[str, str] | None:
    """Return which huge pages the server's host lacks, and what to do; None if it has enough.

    Args:
        server: The server.
        memories: Memory in bytes of each machine that runs at the same time; empty: unknown.
    """
    pages = await server.huge_pages()
    if pages is None:
        return f"the host of {server.name} has no huge pages", "use a kernel with CONFIG_HUGETLBFS"
    for memory in memories:
        if refusal := partial_pages(memory, pages.size):
            return refusal
    needed = pages_needed(memories, pages.size)
    if pages.free >= needed:
        return None
    reason = shortage(needed, pages.free, pages.size, memories, f" on the host of {server.name}")
    return reason, reserving(pages.total + needed - pages.free, pages.size)


def _require_same(facts: Facts, options: IncusOptions) -> None:
    """Check that this computer's agent can run in the server's containers; raises InputError."""
    if options.is_container and facts.architecture != machines.machine():
        raise InputError(
            f"the server's processor is {facts.architecture}, and the agent here is for "
            f"{machines.machine()}",
            "run Tare on a computer like the server's host",
        )


def _stated_container(options: IncusOptions) -> Statement:
    stated = Statement(
        capabilities=Capabilities(
            pinning=True,
            max_vcpus=0,
            min_memory=MIN_MEMORY["container"],
            notes=(
                *NOTES_WITHOUT,
                "the server assigns CPUs to a container that is not pinned, one for each vCPU",
                TRIED_CONTAINERS,
            ),
            knobs=KNOBS,
            missing_knobs=MISSING_KNOBS,
            no_realtime="" if options.privileged else UNPRIVILEGED,
        ),
        elsewhere=bool(options.address),
        kernel="the host's own",
        channel="TLS, dialled by the agent to a proxy of the server's, which carries it to "
        "`callback`",
        needs=("Incus, or LXD 5.0 or newer, with a storage pool", "who may use its socket"),
        confirmed="hardware",
        host_boot=ANY_BOOT if options.address else NO_HYPERVISOR,
        boot_s=2.0,
        runs_as="its own product starts it; inside, root of a user namespace unless `privileged`",
    )
    return isolating_network(stated, options, TRIED_NETWORK["container"])


def _stated_vm(options: IncusOptions) -> Statement:
    tcg = options.accelerator == "tcg"
    stated = Statement(
        capabilities=Capabilities(
            pinning=True,
            max_vcpus=0,
            min_memory=MIN_MEMORY["vm"],
            devices=frozenset({"paravirtual"}),
            notes=(
                *NOTES,
                SWAP_UNKNOWN,
                "VMs have only virtio devices, and boot with UEFI",
                "each pinned vCPU has a host CPU of its own; pins are verified only by the "
                "server's answer",
                "servers do not report CPU time of VMs: that needs their own agent in the guest, "
                "which the live image lacks",
                *((EMULATED, TRIED_VMS) if tcg else ()),
            ),
            missing_knobs={**MISSING_KNOBS, "cap": OF_VMS, "weight": OF_VMS},
            disk=frozenset({BUS.name}),
            toolbox=frozenset({LIVE}),
            limits_cards=True,
        ),
        elsewhere=bool(options.address),
        kernel="the live image's",
        channel=CHANNEL,
        needs=(
            "Incus, or LXD 5.0 or newer, with a storage pool and a network",
            "/dev/kvm, the module vhost_vsock, QEMU and OVMF on its host",
            "an image of a VM in its project `default`, made from the live image",
        ),
        untested=""
        if tcg
        else "Under KVM tested only in the lab, with LXD 5.0.2 of Debian 12 and with the APIC in "
        "QEMU, because otherwise the lab's emulator ends (`tare help lab`). Incus 6.0.4 of Debian "
        "13 created a VM there but gave up its start (context deadline exceeded). Outside the lab "
        "it started VMs with an emulated processor.",
        emulated=tcg,
        confirmed="hardware" if tcg else "lab",
        host_boot=KVM_BOOT if not tcg and not options.address else ANY_BOOT,
        boots_image=False,
        boot_s=30.0,
        emulated_boot_s=120.0,
        runs_as="its own product starts it: QEMU as a separate user",
    )
    return isolating_network(stated, options, TRIED_NETWORK["vm"])
