"""What every hypervisor offers whose guests are made over its API, and what none of them does."""

from __future__ import annotations

from functools import partial

from tare.platforms.existing_network import with_given
from tare.platforms.statement import Capabilities, Statement

dialling_network = partial(
    with_given, where="on that host", over="the network that agents dial back over (`callback`)"
)
"""Returns a statement with the network that an arm asks for; see :func:`with_given`."""
LIVE = "live"
"""How machines that boot the live image get the toolbox: it is in that image."""
LIVE_MEMORY = 1 << 30
"""Bytes of memory with which a machine takes the toolbox `base` from a CD, and has some left."""
OWN_DISK = (
    "a machine's own disk is made empty, and formatted by its agent: the only empty one of that "
    "size, by a toolbox's mkfs.ext4; otherwise disk workloads fail with the reason"
)
TOOLBOX = (
    "the toolbox is the live image's own (`tare image live --toolbox …`): from a CD it takes "
    "about 500 MiB of the machine's memory, from a disk none; what it lacks fails with the reason"
)
WITHHELD = (
    "cells are withheld during which, as its API tells, the machine migrated, was snapshotted or "
    "backed up, started anew, or had its memory changed"
)
SWAP_UNTOLD = (
    "what its host swaps out of a machine its API does not tell: no cell is withheld for it"
)
DIALS = "the agent dials back to `callback` over TLS, with a key of its own on a CD (TARE-CFG)"
CHANNEL = "TLS, dialled by the agent to `callback`"
NOTES = (TOOLBOX, OWN_DISK, WITHHELD)
"""What is said alike of virtual machines of every hypervisor that is reached by its API."""
NO_DISK = "machines have no disk of their own and no toolbox: workloads that need one are skipped"
NO_NETWORK = (
    "a container has no network of its own, as the server's proxy carries the agent's "
    "conversation; VMs have one (`type: vm`)"
)
NOTES_WITHOUT = (f"workloads over the network are skipped: {NO_NETWORK}", NO_DISK, WITHHELD)
"""The same of containers, which boot no live image."""


def keeps_general(stated: Statement) -> bool:
    """Return whether machines keep all that are compared with them to the general kernel.

    Their live image has that one, or they do not run dependably on a real-time kernel.
    """
    live = stated.capabilities.toolbox == {LIVE}
    return live or (stated.boots_image and not stated.realtime_kernel)


def least_memory(able: Capabilities, otherwise: int) -> int:
    """Return the bytes of memory with which a small machine has all that its platform states.

    The toolbox of a live image, which formats a machine's own disk, is in memory where the image is
    a CD.

    Args:
        able: What the platform can do.
        otherwise: What suffices where there is nothing like that.
    """
    live = LIVE in able.toolbox and bool(able.disk)
    return max(able.min_memory, LIVE_MEMORY if live else otherwise)
