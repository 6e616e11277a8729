"""The toolbox in the forms that machines get: a disk, a container's root, or a tree on the host."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

from tare.errors import MachineFault
from tare.images.ship import copy_to_host
from tare.platforms.contract import Context, MachineSpec

VARIABLE = "TARE_TOOLBOX"
"""The environment variable with the tree's folder, for an agent that is a process of the host."""

_MOUNT_S = 60.0
_TOOLBOXES = ("toolbox", "toolbox-build", "toolbox-hadoop", "toolbox-analytics")
_MODULES = {**dict.fromkeys(_TOOLBOXES, "erofs"), "msr": "msr"}


def image_needs(context: Context) -> frozenset[str]:
    """Return the kernel modules for the study's needs, beyond those of a guest's devices.

    The names are those of ``images``.
    """
    return frozenset(_MODULES[need] for need in context.needs if need in _MODULES)


async def tree_environment(
    context: Context, spec: MachineSpec, held: AsyncExitStack
) -> dict[str, str]:
    """Return the variable through which an agent on the host finds the toolbox.

    See :func:`tree_at_host`.
    """
    tree = await tree_at_host(context, spec, held)
    return {} if tree is None else {VARIABLE: str(tree)}


async def tree_at_host(context: Context, spec: MachineSpec, held: AsyncExitStack) -> Path | None:
    """Return the toolbox's tree on the host.

    On this computer it is the cache's own tree, on a remote host the mounted image.

    Args:
        context: The host, and the ledger.
        spec: The machine; an image is mounted below its folder.
        held: The exit stack that unmounts the image at the end.

    Returns:
        The tree; None if the machine needs no toolbox.

    Raises:
        MachineFault: The host cannot mount the image.
    """
    host, toolbox = context.host, spec.toolbox
    if toolbox is None:
        return None
    if host.local:
        return toolbox.tree
    image = await copy_to_host(host, toolbox.image)
    place = spec.workdir / "tare-toolbox"
    entry = context.ledger.record("mount", path=str(place), type="erofs")

    async def unmount() -> None:
        done = await host.run(["umount", str(place)], timeout_s=_MOUNT_S)
        if done.ok:
            context.ledger.done(entry)

    await host.run(["mkdir", "-p", str(place)], timeout_s=_MOUNT_S)
    mounted = await host.run(
        ["mount", "-t", "erofs", "-o", "ro,loop", str(image), str(place)], timeout_s=_MOUNT_S
    )
    if not mounted.ok:
        context.ledger.done(entry)
        raise MachineFault(
            f"{host.name}: the toolbox cannot be mounted: {mounted.words()}",
            "the host needs the kernel module erofs, and root",
        )
    held.push_async_callback(unmount)
    return place
