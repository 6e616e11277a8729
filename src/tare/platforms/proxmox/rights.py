"""The rights that an account needs at Proxmox, and which of them it lacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tare.platforms.proxmox.node import vms_of
from tare.platforms.proxmox.options import ProxmoxOptions

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
