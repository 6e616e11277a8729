"""Proxmox VE as a platform, and the rights that an account needs there."""

from __future__ import annotations

import uuid as uuids
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from tare.errors import InputError, MachineFault
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
from tare.platforms.proxmox.node import ONLINE, Node, only_node, vms_of
from tare.platforms.proxmox.options import KNOBS, ProxmoxOptions
from tare.platforms.proxmox.session import EXTRA, PRODUCT, ProxmoxSession
from tare.platforms.proxmox.vm import (
    ProxmoxVm,
    affinity,
    own_bus,
    remove_patiently,
    settings,
)
from tare.platforms.vendors.offer import CHANNEL, LIVE, NOTES, SWAP_UNTOLD, dialling_network
from tare.platforms.vendors.options import ANY
from tare.platforms.vendors.own_disk import Bus
from tare.platforms.vendors.platform import (
    Order,
    Seen,
    VendorPlatform,
    image_named,
    require_cpus,
    shown_of,
)
from tare.platforms.vendors.session import Refused, opened, require

VM, UPLOAD = "proxmox-vm", "proxmox-upload"
MIN_MEMORY = 256 << 20
TRIES = 5
NOT_ROOT = (
    "no pinning: Proxmox lets only root@pam, by password, set `affinity`, and no token "
    "(docs/owning.md)"
)
NO_STORAGE = "say by `disks` in which storage it is made"
MISSING_KNOBS = {
    "reservation": "Proxmox has no reservation of CPU time",
    "policy": "Proxmox knows no scheduling policy",
    "fifo": "Proxmox knows no scheduling policy",
    "nice": "Proxmox has `cpuunits` instead",
    "slice": "Proxmox leaves time slices to the kernel",
}


async def undo_vm(host: Host, entry: Entry) -> str:
    """Stop and remove a VM; see :data:`tare.hosts.ledger.undoing.Undo`."""
    told = entry.details
    name, number = str(told["name"]), int(told["number"])
    require_own(name)
    async with opened(ProxmoxSession(told)) as session:
        node = Node(session, str(told["node"]), vms_of(told["pool"]))
        removed = await remove_patiently(node, number, name)
    return f"Removed VM {number}, {name}." if removed else ""


async def undo_upload(host: Host, entry: Entry) -> str:
    """Remove an uploaded file; see :data:`tare.hosts.ledger.undoing.Undo`."""
    told, volume = entry.details, str(entry.details["volume"])
    require_own(volume.partition("/")[2])
    async with opened(ProxmoxSession(told)) as session:
        removed = await Node(session, str(told["node"])).discard(volume)
    return f"Removed {volume}." if removed else ""


class Proxmox(VendorPlatform[ProxmoxOptions, ProxmoxSession]):
    """Proxmox VE: VMs on a node, made and removed over its API."""

    name = "proxmox"
    product = "Proxmox VE"
    known_as = dict.fromkeys(("pve", "proxmox-ve"), "")
    options = ProxmoxOptions
    variants = (Variant("", {"address": ANY}),)
    undoers = MappingProxyType({VM: undo_vm, UPLOAD: undo_upload})
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
        """Return what Proxmox offers; nothing is tried for it."""
        bus = own_bus(options)
        stated = Statement(
            capabilities=Capabilities(
                pinning=True,
                max_vcpus=0,
                min_memory=MIN_MEMORY,
                devices=frozenset({"paravirtual", "emulated"}),
                notes=(
                    *NOTES,
                    SWAP_UNTOLD,
                    "`affinity` confines the whole QEMU: the vCPUs of one VM share its CPUs",
                    "only root@pam by password may pin; with a token, pinned scenarios are skipped",
                    "what the node tells of a VM's CPU time are averages over minutes",
                ),
                knobs=KNOBS,
                missing_knobs=MISSING_KNOBS,
                disk=frozenset({bus.name} if bus else ()),
                no_disk="" if bus else NO_STORAGE,
                toolbox=frozenset({LIVE}),
            ),
            elsewhere=True,
            kernel="the live image's",
            channel=CHANNEL,
            needs=(
                "Proxmox VE 8 or newer, with an account whose rights docs/owning.md lists",
                "proxmoxer (pip install 'hypertare[proxmox]')",
                "a live image in one of its storages",
            ),
            untested="Was run against a server of Tare's own that answers and refuses as Proxmox "
            "does, never on a node.",
            emulated=not options.kvm,
            confirmed="simulator",
            host_boot=ANY_BOOT,
            boot_s=30.0,
            emulated_boot_s=120.0,
        )
        return dialling_network(stated, options)

    def disk_bus(self, options: ProxmoxOptions) -> Bus | None:
        """Return how VMs get the disk that their shape asks for."""
        return own_bus(options)

    def require_library(self) -> None:
        """Check that proxmoxer is installed."""
        require(EXTRA, PRODUCT, "requests", "proxmoxer")

    def session(self, way: Mapping[str, Any]) -> ProxmoxSession:
        """Return a login at a node."""
        return ProxmoxSession(way)

    async def look(
        self, session: ProxmoxSession, options: ProxmoxOptions, able: Capabilities
    ) -> Seen:
        """See what the node, the storages and the account's rights allow."""
        node = await only_node(session, options.node, options.pool)
        await _require_rights(session, options, node)
        await _require_storage(node, options)
        facts = await node.facts()
        able = replace(able, max_vcpus=int(facts["cpus"]))
        if not session.is_root:
            able = replace(able, pinning=False, notes=(*able.notes, NOT_ROOT))
        versions = {"proxmox-ve": str(facts["build"]), "linux": str(facts.get("kernel", ""))}
        reason = f"{session.name} is Proxmox VE {facts['build']}"
        rights = (ROOT,) if session.is_root else used(needed(options, node.name))
        return Seen(reason, versions, able, shown_of(facts), rights)

    async def host_presence(self, session: ProxmoxSession, options: ProxmoxOptions) -> Presence:
        """Return the state of the node, which the others of its cluster know while it is off."""
        node = await only_node(session, options.node, options.pool)
        if (state := await node.state()) != ONLINE:
            return Presence(absent=f"{node.name} is {state}")
        return Presence(since=await node.booted())

    def writes(self, options: ProxmoxOptions) -> tuple[Write, ...]:
        """Return what VMs make at the node; docs/owning.md has the rights for it."""
        kept = f"storage {options.storage}"
        return (
            FOLDER,
            Write(
                UPLOAD,
                "POST /nodes/NODE/storage/STORAGE/upload of an image tare-….iso",
                "DELETE /nodes/NODE/storage/STORAGE/content/VOLUME",
                kept,
            ),
            Write(
                VM,
                "POST /nodes/NODE/qemu (a VM tare-…, with the empty disk of its shape), "
                "…/status/start, …/status/stop",
                "DELETE /nodes/NODE/qemu/VMID with its disks",
                f"pool {options.pool or '(none)'}, storage {options.disks or options.storage}",
            ),
        )

    def boots(self, options: ProxmoxOptions) -> str:
        """Say in which image the kernel is, which must be named."""
        return image_named(
            options.image,
            "Proxmox",
            "say by `image` which, as Proxmox names it: local:iso/tare-live.iso",
        )

    async def make(self, session: ProxmoxSession, order: Order[ProxmoxOptions]) -> ProxmoxVm:
        """Upload the configuration, and make the VM."""
        options, spec = order.options, order.spec
        node = await only_node(session, options.node, options.pool)
        facts = await node.facts()
        if spec.cpus:
            if not session.is_root:
                raise Refused(NOT_ROOT)
            instead = "plan on the node itself: `host: {ssh: NODE}`"
            require_cpus(affinity(spec), int(facts["cpus"]), session.name, instead)
        making = _Making(node, order)
        order.undo.push_async_callback(making.discard)
        await making.upload()
        order.undo.push_async_callback(making.remove)
        number, wanted = await making.create()
        return ProxmoxVm(node, number, spec, wanted, facts, making.forget)


class _Making:
    """What is made for one machine, noted before it is."""

    def __init__(self, node: Node, order: Order[ProxmoxOptions]) -> None:
        options = order.options
        self._node = node
        self._options = options
        self._ledger = order.ledger
        self._spec = order.spec
        self._image = order.image
        self._disk = order.disk
        self._way = {**options.way(), "node": node.name, "pool": options.pool}
        self._volume = f"{options.storage}:iso/{order.spec.name}.iso"
        self._number = 0
        self._uploaded: Entry | None = None
        self._made: Entry | None = None

    async def upload(self) -> None:
        """Upload the CD with the agent's configuration."""
        self._uploaded = self._ledger.record(UPLOAD, **self._way, volume=self._volume)
        name = self._volume.partition("/")[2]
        await self._node.upload(self._options.storage, name, self._image)

    async def create(self) -> tuple[int, Mapping[str, Any]]:
        """Make the VM; whoever was faster with a number is given way."""
        uuid = str(uuids.uuid4())
        wanted = settings(self._options, self._spec, uuid, self._volume, self._disk)
        least = 0
        for left in reversed(range(TRIES)):
            self._number = await self._node.free_id(least)
            self._made = self._ledger.record(
                VM, **self._way, number=self._number, name=self._spec.name
            )
            try:
                await self._node.create(self._number, wanted)
            except MachineFault as fault:
                if "already exists" not in fault.message or not left:
                    raise
                self._ledger.done(self._made)
                least = self._number + 1
                continue
            return self._number, wanted
        raise AssertionError("unreachable")

    async def remove(self) -> None:
        """Remove the VM, whatever became of it."""
        await remove_patiently(self._node, self._number, self._spec.name)
        if self._made is not None:
            self._ledger.done(self._made)

    async def discard(self) -> None:
        """Remove the CD."""
        await self._node.discard(self._volume)
        if self._uploaded is not None:
            self._ledger.done(self._uploaded)

    async def forget(self) -> None:
        """Once the VM is removed: note that, and remove the CD."""
        if self._made is not None:
            self._ledger.done(self._made)
        await self.discard()


async def _require_rights(session: ProxmoxSession, options: ProxmoxOptions, node: Node) -> None:
    wanted = needed(options, node.name)

    def ask(path: str) -> Callable[[Any], Any]:
        return lambda api: api.access.permissions.get(path=path)

    found = {path: (await session.call(ask(path))).get(path, {}) for path in wanted}
    if lacking := missing(wanted, found):
        raise InputError(
            f"the account lacks rights at {session.name}: {', '.join(lacking)}",
            "give it the role of docs/owning.md; a token with separated privileges needs its own",
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
                f"the storage {storage} does not take `{kind}`",
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
    """Return which rights an arm needs, by the path that they are needed on.

    PVE/API2/Qemu.pm (`check_vm_modify_config_perm`, `create_vm`), PVE/API2/Storage/Status.pm
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
    """Return the rights that are there and used, as ``RIGHT, … on PATH``, without names.

    Args:
        wanted: By path, none of them missing.
    """
    return tuple(f"{', '.join(rights)} on {_kind(path)}" for path, rights in wanted.items())


def _kind(path: str) -> str:
    """Return a path without the names of what is meant: ``/pool/mine`` as ``/pool/…``."""
    kind = path.split("/")[1]
    return path if path == f"/{kind}" else f"/{kind}/…"


def missing(
    wanted: Mapping[str, tuple[str, ...]], found: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """Return the rights that are not there, as ``RIGHT on PATH``.

    Args:
        wanted: By path.
        found: What ``/access/permissions`` says of each of these paths.
    """
    return [
        f"{right} on {path}"
        for path, rights in wanted.items()
        for right in rights
        if right not in found.get(path, {})
    ]
