"""The platform ``proxmox``, and the rights that an account needs at Proxmox VE."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tare.errors import InputError
from tare.platforms.contract import (
    ANY_BOOT,
    Capabilities,
    Presence,
    Statement,
    Variant,
    Write,
)
from tare.platforms.linux.writes import FOLDER
from tare.platforms.proxmox.builder import ProxmoxVmResource, UploadResource, VmBuilder
from tare.platforms.proxmox.network import ProxmoxNetworkResource, lacking_network
from tare.platforms.proxmox.node import ONLINE, Node, only_node, vms_of
from tare.platforms.proxmox.options import KNOBS, ProxmoxOptions
from tare.platforms.proxmox.session import ProxmoxSession
from tare.platforms.proxmox.vm import (
    ProxmoxVm,
    affinity,
    own_bus,
)
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
from tare.platforms.vendors.session import RequestRefused

MIN_MEMORY = 256 << 20
NOT_ROOT = (
    "no pinning: Proxmox lets only root@pam, by password, set `affinity`, and no token "
    "(`tare help proxmox`)"
)
NO_STORAGE = "name a storage for it by `disks`"
MISSING_KNOBS = {
    "reservation": "Proxmox has no reservation of CPU time",
    "policy": "Proxmox does not support scheduling policies",
    "fifo": "Proxmox does not support scheduling policies",
    "nice": "Proxmox has `cpuunits` instead",
    "slice": "Proxmox leaves time slices to the kernel",
}


class Proxmox(VendorPlatform[ProxmoxOptions, ProxmoxSession]):
    """Proxmox VE: VMs on a node, made and removed over its API."""

    name = "proxmox"
    product = "Proxmox VE"
    known_as = dict.fromkeys(("pve", "proxmox-ve"), "")
    options = ProxmoxOptions
    variants = (Variant("", {"address": ANY}),)
    undoers = undoers_at(ProxmoxSession, ProxmoxVmResource, UploadResource, ProxmoxNetworkResource)
    session_type = ProxmoxSession
    example = "{platform: proxmox, address: pve.example}"

    def describe(self, options: ProxmoxOptions) -> str:
        """Return a phrase such as ``Proxmox VE, paravirtual devices``."""
        parts = ["Proxmox VE", f"{options.devices} devices"]
        if options.devices == "emulated":
            parts.append(f"{options.nic} and {options.bus}")
        parts += [] if options.kvm else ["without KVM"]
        if words := options.scheduling.words():
            parts.append(words)
        return ", ".join(parts)

    def stated(self, options: ProxmoxOptions) -> Statement:
        """Return Proxmox's features; nothing is tried."""
        bus = own_bus(options)
        stated = Statement(
            capabilities=Capabilities(
                pinning=True,
                max_vcpus=0,
                min_memory=MIN_MEMORY,
                devices=frozenset({"paravirtual", "emulated"}),
                notes=(
                    *NOTES,
                    SWAP_UNKNOWN,
                    "`affinity` confines the whole QEMU process: the vCPUs of one VM share its "
                    "CPUs",
                    "only root@pam with a password may pin; with a token, pinned scenarios are "
                    "skipped",
                    "the node reports a VM's CPU time only as averages over minutes",
                ),
                knobs=KNOBS,
                missing_knobs=MISSING_KNOBS,
                disk=frozenset({bus.name} if bus else ()),
                no_disk="" if bus else NO_STORAGE,
                toolbox=frozenset({LIVE}),
                limits_cards=True,
            ),
            elsewhere=True,
            kernel="the live image's",
            channel=CHANNEL,
            needs=(
                "Proxmox VE 8 or newer, with an account whose rights `tare help proxmox` lists",
                "proxmoxer (pip install 'hypertare[proxmox]')",
                "a live image in one of its storages",
            ),
            untested="Tested only against a simulator that answers and refuses as Proxmox does, "
            "never on a node.",
            emulated=not options.kvm,
            confirmed="simulator",
            host_boot=ANY_BOOT,
            boot_s=30.0,
            emulated_boot_s=120.0,
        )
        return isolating_network(stated, options)

    def disk_bus(self, options: ProxmoxOptions) -> Bus | None:
        """Return how the disk that a shape asks for is attached to VMs."""
        return own_bus(options)

    def session(self, connection: Mapping[str, Any]) -> ProxmoxSession:
        """Return a session with a server."""
        return ProxmoxSession(connection)

    async def look(
        self, session: ProxmoxSession, options: ProxmoxOptions, able: Capabilities
    ) -> ServerFindings:
        """Check the node, the storages and the account's rights."""
        node = await only_node(session, options.node, options.pool)
        await _require_rights(session, options, node)
        await _require_storage(node, options)
        facts = await node.facts()
        able = replace(able, max_vcpus=int(facts["cpus"]))
        if not session.is_root:
            able = replace(able, pinning=False, notes=(*able.notes, NOT_ROOT))
        able = without_isolated(able, options, await lacking_network(session))
        versions = {"proxmox-ve": str(facts["build"]), "linux": str(facts.get("kernel", ""))}
        reason = f"{session.name} is Proxmox VE {facts['build']}"
        rights = (ROOT,) if session.is_root else used(needed(options, node.name))
        shown, carrier = as_words(facts), await node.carrier()
        return ServerFindings(reason, versions, able, shown, rights, carrier)

    async def host_presence(self, session: ProxmoxSession, options: ProxmoxOptions) -> Presence:
        """Return the node's state; the other nodes of its cluster report it even if it is off."""
        node = await only_node(session, options.node, options.pool)
        if (state := await node.state()) != ONLINE:
            return Presence(absent=f"{node.name} is {state}")
        return Presence(since=await node.booted())

    def writes(self, options: ProxmoxOptions) -> tuple[Write, ...]:
        """Return what Tare creates at the node; `tare help proxmox` lists the rights for it."""
        kept = f"storage {options.storage}"
        return (
            FOLDER,
            Write(
                UploadResource.kind,
                "POST /nodes/NODE/storage/STORAGE/upload of an image tare-….iso",
                "DELETE /nodes/NODE/storage/STORAGE/content/VOLUME",
                kept,
            ),
            Write(
                ProxmoxVmResource.kind,
                "POST /nodes/NODE/qemu (a VM tare-…, with the empty disk of its shape), "
                "…/status/start, …/status/stop",
                "DELETE /nodes/NODE/qemu/VMID with its disks",
                f"pool {options.pool or '(none)'}, storage {options.disks or options.storage}",
            ),
            Write(
                ProxmoxNetworkResource.kind,
                "POST /cluster/sdn/zones (simple), POST /cluster/sdn/vnets (alias tare-…), "
                "PUT /cluster/sdn; for workloads over a network",
                "DELETE /cluster/sdn/vnets/VNET and zones/ZONE, PUT /cluster/sdn",
                "the cluster's software-defined network",
            ),
        )

    def network_resources(
        self, session: ProxmoxSession, options: ProxmoxOptions, name: str, rate: float | None = None
    ) -> tuple[ProxmoxNetworkResource, ...]:
        """Return a simple zone with a VNet."""
        return (ProxmoxNetworkResource(session, {**options.connection(), "name": name}),)

    def boots(self, options: ProxmoxOptions) -> str:
        """Return the origin of the kernel: the image, which the arm must name."""
        return image_named(
            options.image,
            "Proxmox",
            "name one by `image`, as Proxmox names it: local:iso/tare-live.iso",
        )

    async def make(self, session: ProxmoxSession, request: VmRequest[ProxmoxOptions]) -> ProxmoxVm:
        """Upload the configuration, and create the VM."""
        options, spec = request.options, request.spec
        node = await only_node(session, options.node, options.pool)
        facts = await node.facts()
        if spec.cpus:
            if not session.is_root:
                raise RequestRefused(NOT_ROOT)
            instead = "plan again: the node has fewer CPUs than when it was planned"
            require_cpus(affinity(spec), int(facts["cpus"]), session.name, instead)
        builder = VmBuilder(session, node, request)
        await builder.build()
        return ProxmoxVm(node, builder.number, spec, builder.wanted, facts)


async def _require_rights(session: ProxmoxSession, options: ProxmoxOptions, node: Node) -> None:
    wanted = needed(options, node.name)

    def ask(path: str) -> Callable[[Any], Any]:
        return lambda api: api.access.permissions.get(path=path)

    found = {path: (await session.call(ask(path))).get(path, {}) for path in wanted}
    if lacking := missing(wanted, found):
        raise InputError(
            f"the account lacks rights at {session.name}: {', '.join(lacking)}",
            "give it the role of `tare help proxmox`; a token with separated privileges needs "
            "its own",
        )


async def _require_storage(node: Node, options: ProxmoxOptions) -> None:
    listed = await node.ask(lambda there: there.storage.get())
    content = {str(each["storage"]): str(each.get("content", "")) for each in listed}
    takes = {options.storage: "iso", **({options.disks: "images"} if options.disks else {})}
    for storage, kind in takes.items():
        if storage not in content:
            raise InputError(
                f"{node.name} has no storage {storage}", f"name one of: {', '.join(content)}"
            )
        if kind not in content[storage].split(","):
            raise InputError(
                f"the storage {storage} does not accept `{kind}`",
                f"name one that does, or: pvesm set {storage} --content {content[storage]},{kind}",
            )
    if options.image is None:
        return
    kept = options.image.partition(":")[0]
    volumes = await node.ask(lambda there: there.storage(kept).content.get())
    if all(each.get("volid") != options.image for each in volumes):
        raise InputError(
            f"{options.image} is not there", "upload the live image, or correct `image`"
        )


ON_VMS = (
    *("VM.Allocate", "VM.Audit", "VM.PowerMgmt", "VM.Config.CDROM", "VM.Config.CPU"),
    *("VM.Config.Disk", "VM.Config.HWType", "VM.Config.Memory", "VM.Config.Network"),
    "VM.Config.Options",
)
ON_UPLOADS = ("Datastore.AllocateTemplate", "Datastore.Allocate", "Datastore.Audit")
ON_DISKS = ("Datastore.AllocateSpace", "Datastore.Audit")
ROOT = "root of the node, by password: every right"


def needed(options: ProxmoxOptions, node: str) -> Mapping[str, tuple[str, ...]]:
    """Return the rights that an arm needs, by the path on which they are needed.

    See PVE/API2/Qemu.pm (`check_vm_modify_config_perm`, `create_vm`), PVE/API2/Storage/Status.pm
    (`upload`) and Content.pm (`delete`).
    """
    wanted = {
        vms_of(options.pool): ON_VMS,
        f"/storage/{options.storage}": ON_UPLOADS,
        f"/sdn/zones/localnetwork/{options.bridge}": ("SDN.Use",),
        f"/nodes/{node}": ("Sys.Audit",),
    }
    if options.image is not None:
        kept = f"/storage/{options.image.partition(':')[0]}"
        wanted.setdefault(kept, ("Datastore.Audit",))
    if options.disks is not None:
        path = f"/storage/{options.disks}"
        wanted[path] = tuple(dict.fromkeys((*wanted.get(path, ()), *ON_DISKS)))
    return wanted


def used(wanted: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the rights that are used, as ``RIGHT, … on PATH``, without names in paths.

    Args:
        wanted: The rights by path; the account has all of them.
    """
    return tuple(f"{', '.join(rights)} on {_kind(path)}" for path, rights in wanted.items())


def _kind(path: str) -> str:
    """Return a path without names, such as ``/pool/…`` for ``/pool/mine``."""
    kind = path.split("/")[1]
    return path if path == f"/{kind}" else f"/{kind}/…"


def missing(
    wanted: Mapping[str, tuple[str, ...]], found: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """Return the missing rights, as ``RIGHT on PATH``.

    Args:
        wanted: The needed rights by path.
        found: The answer of ``/access/permissions`` for each of these paths.
    """
    return [
        f"{right} on {path}"
        for path, rights in wanted.items()
        for right in rights
        if right not in found.get(path, {})
    ]
