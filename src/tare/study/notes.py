"""What a plan says in words that reports find again; whoever looks for them loads no model."""

from collections.abc import Sequence

ONE_KERNEL = "every guest boots the distribution's general kernel"
"""Begins the note of a plan whose arms cannot all boot a real-time kernel."""

BY_RELEASE = "by `release`"
"""Begins a note on arms that name a release of the distribution."""

BEYOND_MEMORY = "what is cached of files is not limited"
"""Begins the note of a plan whose machines are not all kept to their memory."""


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
    return (
        f"{ONE_KERNEL}, not the real-time one, {' and '.join(reasons)}: so all are compared on one"
    )
