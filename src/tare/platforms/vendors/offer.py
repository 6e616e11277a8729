"""The features that all hypervisors with a vendor's API have in common, and their limits."""

from __future__ import annotations

from functools import partial

from tare.platforms.existing_network import with_given
from tare.platforms.statement import Capabilities, Statement

dialling_network = partial(
    with_given, where="on that host", over="the network that agents dial back over (`callback`)"
)
"""Returns a statement with the network that an arm requests; see :func:`with_given`."""
LIVE = "live"
"""The name for a toolbox that machines have because it is part of the live image that they boot."""
LIVE_MEMORY = 1 << 30
"""Bytes of memory that suffice for a machine with the toolbox `base` from a CD."""
OWN_DISK = (
    "a machine's own disk is created empty and formatted by its agent, which needs a toolbox with "
    "mkfs.ext4 and finds the disk by its size; otherwise disk workloads fail with the reason"
)
TOOLBOX = (
    "the toolbox is part of the live image (`tare image live --toolbox …`): on a CD it takes about "
    "500 MiB of the machine's memory, on a disk none; programs that it lacks fail with the reason"
)
WITHHELD = (
    "a cell is withheld if the API reports that the machine migrated, was snapshotted, backed up "
    "or restarted, or changed its memory during the cell"
)
SWAP_UNKNOWN = (
    "its API does not report memory that the host swaps out, so no cell is withheld for that"
)
CHANNEL = "TLS, dialled by the agent to `callback`"
NOTES = (TOOLBOX, OWN_DISK, WITHHELD)
"""The notes that apply to the virtual machines of every hypervisor with a vendor's API."""
NO_DISK = "machines have no disk of their own and no toolbox: workloads that need one are skipped"
NOTES_WITHOUT = (NO_DISK, WITHHELD)
"""The corresponding notes for containers, which boot no live image."""


def keeps_general(stated: Statement) -> bool:
    """Return whether all arms that are compared with such machines must use the general kernel.

    Their live image contains it, or they do not run reliably on a real-time kernel.
    """
    live = stated.capabilities.toolbox == {LIVE}
    return live or (stated.boots_image and not stated.realtime_kernel)


def least_memory(able: Capabilities, otherwise: int) -> int:
    """Return the memory in bytes that a small machine needs for all that its platform states.

    A live image on a CD keeps its toolbox, which formats a machine's own disk, in memory.

    Args:
        able: The capabilities of the platform.
        otherwise: The memory in bytes that suffices without a live image.
    """
    live = LIVE in able.toolbox and bool(able.disk)
    return max(able.min_memory, LIVE_MEMORY if live else otherwise)
