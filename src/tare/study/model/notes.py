"""What a plan says in words that reports find again; whoever looks for them loads no model."""

from collections.abc import Mapping, Sequence
from typing import Any

from tare.units import shape_words

ONE_KERNEL = "every guest boots the distribution's general kernel"
"""Begins the note of a plan whose arms cannot all boot a real-time kernel."""

HOST_KERNEL = "guests boot the host's own kernel"
"""Begins the note of a plan whose guests run the kernel that the bare machine runs too."""

GENERAL_KERNEL = "guests boot the distribution's general kernel, not the host's own"
"""Begins the note of a plan that says why they do not."""

BY_RELEASE = "by `release`"
"""Begins a note on arms that name a release of the distribution."""

ITSELF = "on the machine that it is compared with"
"""Begins the mark of an arm that is a machine compared with itself."""

BEYOND_MEMORY = "what is cached of files is not limited"
"""Begins the note of a plan whose machines are not all kept to their memory."""


def other_shape_note(
    arm: str, shape: Mapping[str, Any], baseline: str, theirs: Mapping[str, Any]
) -> str:
    """Return that an arm and its baseline have different shapes, and what that means.

    Args:
        arm: The arm.
        shape: Its shape, as stored.
        baseline: What it is compared with.
        theirs: The baseline's shape.
    """
    return (
        f"{arm} has {shape_words(shape)}, its baseline {baseline} {shape_words(theirs)}: what the "
        "arm costs and what its size does cannot be separated"
    )


def one_kernel_note(fragile: Sequence[str], live: Sequence[str]) -> str:
    """Return why no guest boots the real-time kernel that the study's workloads would have.

    Args:
        fragile: Arms whose machines do not run on it dependably.
        live: Arms whose machines boot the live image, which has a general kernel.
    """
    reasons = []
    if fragile:
        reasons.append(f"which {', '.join(fragile)} may not survive")
    if live:
        reasons.append(f"which the live image of {', '.join(live)} does not have")
    instead = "; make that image with `tare image live --kernel rt`, and write `kernel: rt`"
    return (
        f"{ONE_KERNEL}, not the real-time one, {' and '.join(reasons)}: so all are compared on one"
        + (instead if live and not fragile else "")
    )


def unpinned_note(scenario: str, arms: Sequence[str]) -> str:
    """Return which arms' machines are not bound to CPUs in a scenario that binds them.

    Args:
        scenario: The scenario.
        arms: The arms.
    """
    which = f"{', '.join(arms)} run unpinned" if len(arms) > 1 else f"{arms[0]} runs unpinned"
    return (
        f"{scenario}: {which}, because the platform cannot bind vCPUs to CPUs: its values are not "
        "those of a machine on CPUs of its own"
    )
