"""Guests that libvirt runs."""

from __future__ import annotations

import uuid as uuids
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from tare.errors import InputError, MachineFault, TareError
from tare.hosts.contract import Host
from tare.hosts.ledger.ledger import Entry
from tare.hosts.ledger.undoing import require_own
from tare.images.ship import copy_to_host
from tare.platforms.contract import (
    ANY_BOOT,
    KVM_BOOT,
    Capabilities,
    Carrier,
    Context,
    GuestKernels,
    HostAccess,
    Machine,
    MachineSpec,
    NetworkWays,
    Platform,
    Prepared,
    Resource,
    Shape,
    Statement,
    Variant,
    Verdict,
    Write,
    created,
    remove_resource,
    undo_resource,
)
from tare.platforms.libvirt.connection import Connection, forwarded_uri, load
from tare.platforms.libvirt.domain import Files, domain_xml
from tare.platforms.libvirt.machine import LibvirtMachine
from tare.platforms.libvirt.options import KNOBS, LibvirtOptions
from tare.platforms.linux.backed_disk import VOLUME, backed_disk, backing_writes, volume_of
from tare.platforms.linux.booting import image_for, prepared_by
from tare.platforms.linux.cgroups import cgroup_mounts
from tare.platforms.linux.cpu_groups import version_of
from tare.platforms.linux.disk import LABEL
from tare.platforms.linux.process_machine import owned_directory
from tare.platforms.linux.scheduling import Scheduled, linux_knobs
from tare.platforms.linux.writes import FOLDER, NETWORK, SETTINGS
from tare.platforms.qemu.argument_safety import passed_on
from tare.platforms.qemu.command import kernel_arguments
from tare.platforms.qemu.halt_polling import hold_polling
from tare.platforms.qemu.huge_pages import require_whole_pages
from tare.platforms.qemu.platform import Qemu
from tare.platforms.qemu.threads import emulator_cpus, own_thread_cpus
from tare.platforms.qemu.unmet_settings import lacking_places, lacking_switches
from tare.study.planning.host_cpus import HostCpus

WITHHELD = (
    "a cell is withheld if libvirt reports that the domain was paused (checked once per second), "
    "snapshotted, saved, dumped, backed up, migrated, ballooned or run by another QEMU, or if more "
    "of its QEMU was swapped out"
)
MISSING_KNOBS = {
    "nice": "libvirt gives each domain a control group, in which nice has no effect on others; "
    "use weight",
    "slice": "libvirt does not set the kernel's time slice",
    "reservation": "libvirt has shares (weight), and no reservation",
}
SESSION = "/session"
MAX_VCPUS = 255
MIN_MEMORY = 96 << 20
COPY_S = 300.0
VDSM = "/etc/vdsm/vdsm.conf"
"""A file that exists only on hosts of oVirt."""
# The toolbox is large and only read, so it is linked. Libvirt gives the others to QEMU's user, so
# they are copied.
_COPY = 'cp --reflink=auto "$1" "$2" && chmod a+r "$2"'
_LINK = '{ ln "$1" "$2" 2>/dev/null || cp --reflink=auto "$1" "$2"; } && chmod a+r "$2"'


@asynccontextmanager
async def connected(host: Host, uri: str) -> AsyncIterator[Connection]:
    """Hold a connection to a host's libvirt; raises InputError if it cannot be opened."""
    load()
    async with forwarded_uri(host, uri) as way:
        connection = Connection(way, uri if host.local else f"{uri} of {host.name}")
        await connection.open()
        try:
            yield connection
        finally:
            await connection.close()


class DomainResource(Resource):
    """A domain that belongs to Tare.

    Args:
        connection: An open connection to its libvirt.
        uri: The connection's URI on the host.
        name: Its name.
        uuid: Its UUID.
        xml: The XML that defines it.
    """

    kind = "libvirt-domain"

    def __init__(
        self, connection: Connection, uri: str, name: str, uuid: str, xml: str = ""
    ) -> None:
        self._connection = connection
        self._uri = uri
        self._name = name
        self._uuid = uuid
        self._xml = xml

    @property
    def details(self) -> Mapping[str, Any]:
        """The connection's URI, and the domain's name and UUID, for the ledger."""
        return {"uri": self._uri, "name": self._name, "id": self._uuid}

    @property
    def words(self) -> str:
        """The domain's name as a phrase for messages."""
        return f"the domain {self._name}"

    @property
    def ends_with_boot(self) -> bool:
        """Whether a reboot removes it; always False, because libvirt keeps its definition."""
        return False

    async def create(self) -> None:
        """Define the domain; raises MachineFault with libvirt's message."""
        await self._connection.define(self._xml)

    async def exists(self) -> bool:
        """Check whether libvirt has the domain, running or not."""
        return await self._connection.has(self._uuid, self._name)

    async def remove(self) -> None:
        """Destroy and undefine the domain; raises MachineFault with libvirt's message."""
        await self._connection.remove(self._uuid)


async def undo_domain(host: Host, entry: Entry) -> str:
    """Destroy and undefine a domain; see :data:`tare.hosts.ledger.undoing.Undo`."""
    uri, name, uuid = (str(entry.details[key]) for key in ("uri", "name", "id"))
    require_own(name)
    async with connected(host, uri) as connection:
        domain = DomainResource(connection, uri, name, uuid)
        return domain.removed if await remove_resource(domain) else ""


class Libvirt(Platform[LibvirtOptions]):
    """Guests that libvirt runs: domains of type `qemu` or `kvm`, made by its API."""

    name = "libvirt"
    known_as = dict.fromkeys(("virsh", "virt-manager", "libvirtd"), "")
    options = LibvirtOptions
    variants = tuple(Variant(name, {"accelerator": name}) for name in ("tcg", "kvm"))
    undoers = MappingProxyType({DomainResource.kind: undo_domain, VOLUME: undo_resource(volume_of)})

    def describe(self, options: LibvirtOptions) -> str:
        """Return a phrase such as ``libvirt domain of type qemu, paravirtual devices``."""
        kind = f"libvirt domain of type {options.domain_type}"
        return ", ".join((kind, f"{options.devices} devices", *options.words()))

    def stated(self, options: LibvirtOptions) -> Statement:
        """Return the statement about domains, without testing anything on this host."""
        kvm = options.accelerator == "kvm"
        return Statement(
            runs_as="libvirt starts it: a user and a security driver of its own",
            capabilities=Capabilities(
                pinning=True,
                max_vcpus=MAX_VCPUS,
                min_memory=MIN_MEMORY,
                devices=frozenset({"paravirtual", "emulated"}),
                notes=(
                    "weight, cap and policy are set by libvirt (`cputune`): shares and quota of "
                    "the whole domain, and the policy of its vCPUs",
                    WITHHELD,
                    *(() if kvm else ("the processor is emulated in software",)),
                ),
                knobs=KNOBS,
                missing_knobs=MISSING_KNOBS,
                disk=frozenset({options.bus}),
                toolbox=frozenset({"disk"}),
            ),
            kernel="the guest image's",
            channel="virtio-serial port; with emulated devices a second serial port",
            needs=(
                "libvirt's daemon and its QEMU driver (packages libvirt-daemon-system, "
                "qemu-system-x86)",
                "libvirt's Python library (pip install 'hypertare[libvirt]')",
                "root",
                *(("a /dev/kvm under which a guest boots",) if kvm else ()),
            ),
            untested="Under KVM tested only in the lab, with libvirt 9.0.0 of Debian 12."
            if kvm
            else "",
            confirmed="lab" if kvm else "hardware",
            emulated=not kvm,
            host_boot=KVM_BOOT if kvm else ANY_BOOT,
            boots_image=True,
            network=NetworkWays(rooted=frozenset({"tap"}), device="/dev/net/tun"),
            boot_s=4.0,
            emulated_boot_s=20.0,
        )

    def writes(self, options: LibvirtOptions) -> tuple[Write, ...]:
        """Return the objects that domains create on their host."""
        kept = backing_writes(options.disk_format, options.disk_volume_group)
        made = Write(
            DomainResource.kind,
            "virDomainDefineXML, virDomainCreateWithFlags, virDomainResume of a domain tare-…",
            "virDomainDestroy, virDomainUndefine",
            options.uri,
        )
        return (FOLDER, made, SETTINGS, *kept, *NETWORK)

    def host_access(self, options: LibvirtOptions) -> tuple[HostAccess, ...]:
        """Return the QEMU arguments that reach the host."""
        return passed_on(options.extra_args)

    async def check(self, context: Context, options: LibvirtOptions) -> Verdict:
        """Ask libvirt for its capabilities here; with KVM, QEMU itself boots a guest once."""
        versions: dict[str, str] = {}
        able = self.stated(options).capabilities

        def refused(reason: str, hint: str, *, sure: bool = True) -> Verdict:
            return Verdict(False, reason, hint, self.emulated(options), versions, able, sure)

        if await context.host.exists(VDSM):
            reason = "libvirt of this host belongs to oVirt's vdsm, which undoes what others do"
            return refused(reason, "make its guests by its engine: `platform: ovirt`")
        try:
            async with connected(context.host, options.uri) as connection:
                versions |= await connection.versions()
                await connection.capabilities(options.machine, options.domain_type)
                carrier = carrier_of(context.host, await connection.host_cpus())
            able = await scheduled_here(context, options, able)
        except TareError as error:
            return refused(error.message, error.hint, sure=isinstance(error, InputError))
        if problem := lacking_places(context.host, options):
            return refused(*problem)
        if options.accelerator == "kvm":
            tried = await Qemu().check(context, options.like_qemu)
            return replace(tried, versions=versions, capabilities=able, carrier=carrier)
        try:
            if problem := await lacking_switches(context.host, options.like_qemu, context.memories):
                return refused(*problem)
        except TareError as error:
            return refused(error.message, error.hint, sure=isinstance(error, InputError))
        reason = f"libvirt {versions['libvirt']} runs domains of type {options.domain_type}"
        return Verdict(True, reason, "", True, versions, able, carrier=carrier)

    async def guest_kernels(self, context: Context, options: LibvirtOptions) -> GuestKernels:
        """Find out whether the host's own kernel boots as a guest, using QEMU itself."""
        return await Qemu().guest_kernels(context, options.like_qemu)

    async def prepare(
        self, context: Context, options: LibvirtOptions, shape: Shape, realtime: bool
    ) -> Prepared:
        """Find the image in the cache, or build it.

        See :meth:`tare.platforms.qemu.platform.Qemu.prepare`.
        """
        await require_whole_pages(context.host, options.like_qemu, shape)
        kernel = context.kernel or ("rt" if realtime else "generic")
        image = await image_for(context, kernel, options.like_qemu.needs, shape)
        files = {"kernel": image.boot_kernel, "initramfs": image.initramfs}
        # Copied now, so that machines that start at the same time do not wait for the copy.
        for file in files.values():
            await copy_to_host(context.host, file)
        return prepared_by(image, **files)

    async def start(
        self, context: Context, options: LibvirtOptions, prepared: Prepared, spec: MachineSpec
    ) -> Machine:
        """Define and start a domain; its vCPUs are pinned before their first instruction."""
        host, uuid = context.host, str(uuids.uuid4())
        async with AsyncExitStack() as held:
            await held.enter_async_context(owned_directory(host, context.ledger, spec.workdir))
            # Libvirt runs QEMU as another user, who must be able to enter this folder.
            await _ran(host, ["chmod", "711", str(spec.workdir)])
            polling = await hold_polling(held, host, context.ledger, spec.name, options.halt_poll)
            kind, group = options.disk_format, options.disk_volume_group
            disk = await held.enter_async_context(backed_disk(context, spec, kind, group))
            files = await _files(host, prepared, spec, None if disk is None else disk.file)
            link = None if spec.network is None else await spec.network.tap(spec.name)
            words = [*kernel_arguments(options.like_qemu, counted=context.counted)]
            words += [f"tare.scratch={LABEL}"] if disk is not None else []
            words += [f"tare.net={link.word}"] if link is not None else []
            cpus, vcpus = spec.cpus, range(spec.shape.vcpus)
            pins = [cpus[number % len(cpus)] for number in vcpus] if cpus else []
            online, kept = host.topology().online, host.topology().housekeeping
            others = emulator_cpus(options.emulator_cpus, cpus, online, housekeeping=kept)
            thread = others
            if options.iothread_cpus is not None:
                chosen = options.iothread_cpus
                thread = own_thread_cpus(chosen, cpus, host.topology(), "iothread-cpus")
            wanted = options.scheduling_of(spec.role)
            scheduled = Scheduled(context, spec.name, wanted)
            await scheduled.hold(held, realtime=False, group=False)
            version = version_of(await cgroup_mounts(host))
            tuning = options.cpu_tuning(spec.role, version)
            xml = domain_xml(
                options,
                spec.name,
                uuid,
                spec.shape,
                files,
                append=words,
                pins=pins,
                within=spec.within,
                emulator=others,
                disk_thread=thread if options.iothread else (),
                link=link,
                tuning=tuning,
                scheduling=wanted,
            )
            connection = await held.enter_async_context(connected(host, options.uri))
            domain = DomainResource(connection, options.uri, spec.name, uuid, xml)
            await held.enter_async_context(created(context.ledger, domain))
            machine = LibvirtMachine(
                context,
                options,
                spec.name,
                uuid,
                connection,
                disk,
                spec.shape,
                tuning,
                scheduled,
                polling,
                held.pop_all(),
            )
        try:
            await machine.bring_up(files, pins, others, thread if options.iothread else ())
        except BaseException as error:
            await machine.stop()
            if isinstance(error, OSError):
                raise MachineFault(f"{spec.name}: QEMU cannot be steered: {error}") from error
            if isinstance(error, MachineFault) and spec.name not in error.message:
                raise MachineFault(f"{spec.name}: {error.message}", error.hint) from error
            raise
        return machine


def carrier_of(host: Host, cpus: HostCpus) -> Carrier | None:
    """Return the host as libvirt reports it, if domains have other CPUs than Tare; else None.

    Domains are libvirt's children, so they are not confined to the CPUs of this process.

    Args:
        host: The arm's host.
        cpus: The CPUs that libvirt reports.
    """
    own = host.topology()
    if not cpus.online or cpus.online == own.online:
        return None
    isolated = own.isolated & set(cpus.online)
    return Carrier(
        f"libvirt of {host.name}",
        replace(cpus, isolated=isolated),
        sum(cpus.memory.values()),
        sockets=len(set(cpus.packages.values())),
        is_host=True,
    )


async def scheduled_here(
    context: Context, options: LibvirtOptions, able: Capabilities
) -> Capabilities:
    """Return capabilities with the knobs that the host's kernel lets libvirt set."""
    if urlsplit(options.uri).path == SESSION:
        lacking = dict.fromkeys(KNOBS, "libvirt's session daemon has no rights to schedule")
        return replace(able, knobs=frozenset(), missing_knobs={**lacking, **MISSING_KNOBS})
    offered, lacking = await linux_knobs(context)
    return replace(able, knobs=offered & KNOBS, missing_knobs={**lacking, **MISSING_KNOBS})


async def _files(host: Host, prepared: Prepared, spec: MachineSpec, disk: Path | None) -> Files:
    """Put a domain's files where libvirt's QEMU has access to them."""
    wanted = {name: Path(prepared.extra[name]) for name in ("kernel", "initramfs")}
    if spec.toolbox is not None:
        wanted["toolbox"] = spec.toolbox.image
    there: dict[str, Path] = {}
    for name, file in wanted.items():
        there[name], brought = spec.workdir / name, await copy_to_host(host, file)
        script = _LINK if name == "toolbox" else _COPY
        await _ran(host, ["sh", "-c", script, "sh", str(brought), str(there[name])])
    return Files(
        kernel=there["kernel"],
        initramfs=there["initramfs"],
        agent=spec.workdir / "agent.sock",
        console=spec.workdir / "console.sock",
        disk=disk,
        toolbox=there.get("toolbox"),
    )


async def _ran(host: Host, argv: list[str]) -> None:
    done = await host.run(argv, timeout_s=COPY_S)
    if not done.ok:
        raise MachineFault(done.words(), "check the disk's free space")
