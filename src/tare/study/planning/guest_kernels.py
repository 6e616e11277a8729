"""The choice of the kernel that guests boot if the study names none: one for all compared arms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tare.study.model.notes import GENERAL_KERNEL, HOST_KERNEL

HOST = "host"
"""The name in a study for the kernel that the arm's host runs."""
REALTIME = "rt"
GENERAL = "generic"


@dataclass(frozen=True)
class GuestKernels:
    """The kernels that an arm's machines can boot if the study names none.

    Args:
        own: The version of the host's own kernel, if it booted as a guest; otherwise empty.
        no_own: The reason why it does not boot; empty if it was not tried.
        todo: Advice to make it boot, or empty.
        missing: Which of ``rt`` and ``generic`` are unavailable, each with the reason.
        remedy: Advice on the missing kernels, or empty.
    """

    own: str = ""
    no_own: str = ""
    todo: str = ""
    missing: Mapping[str, str] = field(default_factory=dict)
    remedy: str = ""


@dataclass(frozen=True)
class KernelChoice:
    """The kernel of all machines for which the study names none.

    Args:
        name: The kernel's name as a study would write it; None for each platform's default.
        note: A note for readers of the plan and of the report, or empty.
        skipped: The arms that cannot boot it, each with the reason.
    """

    name: str | None = None
    note: str = ""
    skipped: Mapping[str, str] = field(default_factory=dict)


def choose_kernel(
    arms: Mapping[str, GuestKernels], *, realtime: bool, general: bool
) -> KernelChoice:
    """Choose the kernel for the arms whose machines boot an image and name no kernel.

    The host's own kernel comes first, because the bare machine runs it as well. There are two
    exceptions: real-time workloads get a real-time kernel if there is one; and if an arm always
    boots a general kernel (the live image, Xen), the others boot that too.

    Args:
        arms: The kernels that each of these arms can boot.
        realtime: Whether a workload of the study is real-time.
        general: Whether one of the arms always boots the distribution's general kernel.
    """
    if not arms:
        return KernelChoice()
    missing = {name: why for each in arms.values() for name, why in each.missing.items()}
    if realtime and not general and REALTIME not in missing:
        return KernelChoice()
    own = {each.own for each in arms.values()}
    refusals = [each.no_own for each in arms.values() if each.no_own]
    if len(own) == 1 and "" not in own and not general:
        return KernelChoice(HOST, _host_note(own, realtime, missing))
    if GENERAL not in missing:
        return KernelChoice(
            GENERAL if realtime and not general else None, _general_note(own, refusals, general)
        )
    if not own - {""}:
        return KernelChoice(
            GENERAL, skipped={arm: _no_kernel_text(each, missing) for arm, each in arms.items()}
        )
    return KernelChoice(
        HOST,
        _host_note(own - {""}, realtime, missing),
        {arm: _no_kernel_text(each, missing) for arm, each in arms.items() if not each.own},
    )


def _host_note(own: set[str], realtime: bool, missing: Mapping[str, str]) -> str:
    note = f"{HOST_KERNEL}, Linux {', '.join(sorted(own))}, which was tried"
    if not realtime or REALTIME not in missing:
        return note
    return f"{note}; no real-time kernel: {missing[REALTIME]}"


def _general_note(own: set[str], refusals: list[str], general: bool) -> str:
    # The plan explains elsewhere why Xen's arms and the live image determine one kernel for all.
    if general:
        return ""
    if refusals:
        return f"{GENERAL_KERNEL}: {refusals[0]}"
    if len(own) > 1:
        return f"{GENERAL_KERNEL}: the hosts run different ones ({', '.join(sorted(own))})"
    return ""


def _no_kernel_text(each: GuestKernels, missing: Mapping[str, str]) -> str:
    own = f"{each.no_own} ({each.todo})" if each.todo else each.no_own
    reasons = dict.fromkeys(filter(None, (own, missing.get(GENERAL, ""))))
    remedy = f" ({each.remedy})" if each.remedy else ""
    return f"no kernel is available for its machines: {'; '.join(reasons)}{remedy}"
