"""Texts of a plan that reports search for; this module loads no model."""

from collections.abc import Mapping, Sequence
from typing import Any

from tare.units import shape_words

ONE_KERNEL = "every guest boots the distribution's general kernel"
"""Start of the note of a plan whose arms cannot all boot a real-time kernel."""

HOST_KERNEL = "guests boot the host's own kernel"
"""Start of the note of a plan whose guests run the same kernel as the bare machine."""

GENERAL_KERNEL = "guests boot the distribution's general kernel, not the host's own"
"""Start of the note that explains why guests do not run the host's kernel."""

BY_RELEASE = "by `release`"
"""Start of a note on arms that name a release of the distribution."""

ITSELF = "on the machine that it is compared with"
"""Start of the mark of an arm that is compared with itself."""

BEYOND_MEMORY = "what is cached of files is not limited"
"""Start of the note of a plan whose page cache is not limited on all machines."""


def other_shape_note(
    arm: str, shape: Mapping[str, Any], baseline: str, theirs: Mapping[str, Any]
) -> str:
    """Return the note that an arm and its baseline have different shapes, with the consequence.

    Args:
        arm: The arm.
        shape: Its shape, as stored.
        baseline: The arm that it is compared with.
        theirs: The baseline's shape.
    """
    return (
        f"{arm} has {shape_words(shape)}, its baseline {baseline} {shape_words(theirs)}: the "
        "effects of the platform and of the machine's size cannot be separated"
    )


def live_toolbox_notes(toolboxes: Mapping[str, str]) -> tuple[str, ...]:
    """Return one note for each toolbox that live images must include instead of the default one.

    Args:
        toolboxes: The toolbox by arm.
    """
    kinds = dict.fromkeys(kind for kind in toolboxes.values() if kind != "base")
    return tuple(
        f"the live image of {', '.join(arm for arm in toolboxes if toolboxes[arm] == kind)} must "
        f"include the toolbox `{kind}`: tare image live --toolbox {kind}"
        for kind in kinds
    )


def one_kernel_note(fragile: Sequence[str], live: Sequence[str]) -> str:
    """Return why no guest boots the real-time kernel that the study's workloads would get.

    Args:
        fragile: Arms whose machines do not run on it reliably.
        live: Arms whose machines boot the live image, which has a general kernel.
    """
    reasons = []
    if fragile:
        reasons.append(f"which {', '.join(fragile)} may not survive")
    if live:
        reasons.append(f"which the live image of {', '.join(live)} does not have")
    instead = "; make that image with `tare image live --kernel rt`, and write `kernel: rt`"
    return (
        f"{ONE_KERNEL}, not the real-time one, {' and '.join(reasons)}; so all run the same one"
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
