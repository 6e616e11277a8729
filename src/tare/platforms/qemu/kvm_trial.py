"""Find out whether KVM really runs guests on a host, by booting one.

On some computers ``/dev/kvm`` opens and creates virtual machines, but no stock kernel boots: it
spins. :mod:`tare.platforms.qemu.kvm_memory` stores the result.
"""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from tare.errors import InputError, MachineFault, TareError, heard
from tare.hosts import Completed, Host
from tare.platforms.qemu.command import PROGRAM, without_name

Depth = Literal["real", "virtual", "emulated"]
"""The kind of host: hardware, a guest of a hypervisor, or emulated in software (QEMU's TCG)."""

BOOT_DEADLINES_S: Mapping[Depth, tuple[float, ...]] = MappingProxyType(
    {"real": (8.0,), "virtual": (12.0,), "emulated": (60.0, 120.0, 120.0)}
)
"""How long each trial guest may take, in seconds, one after the other until one boots.

A guest that KVM really runs boots in less than 2 s, or a few seconds more if the host is itself a
guest. On an emulated processor each exit costs thousands of emulated instructions, and booting
takes 7 to 20 s. About one such guest in 25 crashes or spins for ever, though the next one boots
(`tare help emulator-faults`)."""

TOUCH_S: Mapping[Depth, float] = MappingProxyType(
    {"real": 20.0, "virtual": 20.0, "emulated": 120.0}
)
"""How long QEMU may take to start and end on a busy host, in seconds."""

WITHOUT_KVM = (
    "use a host on hardware, or one whose hypervisor offers nested virtualization in full; "
    "`accelerator: tcg` needs no KVM"
)
"""What to do if KVM is there but runs no guest."""

Around = Callable[[Sequence[str], Sequence[Path]], list[str]]
"""The type of :meth:`tare.platforms.qemu.confinement.Confinement.around`."""

_TCG = "TCGTCGTCGTCG"

_GREETING = b'{"execute":"qmp_capabilities"}\n{"execute":"quit"}\n'


@dataclass(frozen=True)
class TrialResult:
    """The result of a trial of KVM on a host.

    Args:
        usable: Whether a guest booted.
        reason: The finding in one sentence.
        todo: What to do; empty if nothing.
        sure: Whether asking again would give the same answer.
        words: The message of QEMU or of the guest's console; empty if there is none.
        speaker: Where ``words`` come from.
    """

    usable: bool
    reason: str
    todo: str = ""
    sure: bool = True
    words: str = ""
    speaker: str = "QEMU"

    @property
    def hint(self) -> str:
        """What to do, followed by the quoted message."""
        return heard(self.todo, self.speaker, self.words)


async def kvm_device(host: Host, depth: Depth = "real", program: str = PROGRAM) -> TrialResult:
    """Find out whether KVM creates a virtual machine, without booting one."""
    if not await host.exists("/dev/kvm"):
        return await _no_device(host)
    argv = [program, "-machine", "none", "-accel", "kvm", "-nodefaults", "-no-user-config"]
    argv += ["-display", "none", "-S", "-qmp", "stdio"]
    try:
        made = await host.run(argv, input=_GREETING, timeout_s=TOUCH_S[depth])
    except (MachineFault, InputError) as error:
        return TrialResult(False, f"/dev/kvm is there, but QEMU cannot use it: {error.message}")
    if made.ok:
        return TrialResult(True, "/dev/kvm opens and creates a virtual machine")
    words = _complaint(made)
    if "Permission denied" in words:
        return TrialResult(
            False,
            "/dev/kvm may not be opened by this user",
            "usermod -aG kvm $USER, then log in again",
        )
    return TrialResult(
        False,
        "/dev/kvm opens, but no virtual machine can be created",
        "end other hypervisors that use the processor, and look at: dmesg | grep -i kvm",
        words=words,
    )


async def _no_device(host: Host) -> TrialResult:
    with contextlib.suppress(OSError):
        flags = (await host.read("/proc/cpuinfo")).split()
        for flag, module in ((b"vmx", "kvm_intel"), (b"svm", "kvm_amd")):
            if flag in flags:
                return TrialResult(False, "there is no /dev/kvm", f"modprobe {module}")
    return TrialResult(
        False,
        "there is no /dev/kvm: the processor offers no virtualization here",
        "turn virtualization on in the firmware, or nested virtualization in the hypervisor below",
    )


def _as_given(argv: Sequence[str], files: Sequence[Path]) -> list[str]:
    return list(argv)


async def taken(
    host: Host, argv: Sequence[str], depth: Depth = "real", around: Around = _as_given
) -> TrialResult:
    """Find out whether this QEMU accepts some options, without running a guest.

    Args:
        host: The host that has QEMU.
        argv: A command that reads requests from standard input; see ``qemu_command.trial``.
        depth: The kind of host.
        around: Returns the command that starts it with limited rights.
    """
    tried = await host.run(around(argv, ()), input=_GREETING, timeout_s=TOUCH_S[depth])
    if not tried.ok:
        return _refused(argv, _complaint(tried))
    # QEMU continues without a missing feature. The arm would then not match its name.
    missing = [line for line in _lines(tried) if "doesn't support requested feature" in line]
    asked = {word.partition("=")[0] for word in argv[argv.index("-cpu") + 1].split(",")[1:]}
    for line in missing:
        for flag in sorted(one.lstrip("+") for one in asked):
            if f".{flag} " in f"{line} ":
                return TrialResult(
                    False,
                    f"this host has no {flag} for guests, which is asked for",
                    "leave it out, or use a host that has it",
                    words=line,
                )
    return TrialResult(True, "QEMU accepts these options")


def _refused(argv: Sequence[str], words: str) -> TrialResult:
    for phrase, reason, todo in _REFUSALS:
        if phrase in words:
            return TrialResult(False, reason, todo, words=words)
    # For the user to try by hand, without the arguments that make QEMU wait for its monitor.
    tried = shlex.join([argv[0], *argv[argv.index("-machine") :]])
    return TrialResult(
        False, "QEMU does not start with these options", f"try them: {tried}", words=words
    )


_REFUSALS = (
    (
        "failed to set MSR",
        "KVM cannot run guests here: it refuses to set up their processor",
        WITHOUT_KVM,
    ),
    (
        "mlockall",
        "QEMU may not lock its memory here",
        "allow it: ulimit -l unlimited; or leave `mlock` out",
    ),
)
"""Phrases in QEMU's errors, each with the reason and what to do."""


def _complaint(ended: Completed) -> str:
    return "; ".join(_lines(ended)[:3]) or f"it ended with {ended.returncode}"


def _lines(ended: Completed) -> list[str]:
    lines = ended.stderr.decode(errors="replace").strip().splitlines()
    return [without_name(line) for line in lines]


async def depth_of(host: Host, agent: Path) -> Depth:
    """Return the kind of host, as CPUID shows it to the agent there; ``virtual`` if that fails."""
    try:
        proof = await host.run([str(agent), "proof"], timeout_s=TOUCH_S["emulated"])
        seen = json.loads(proof.stdout)["hypervisor"]
        if _TCG in seen["signatures"]:
            return "emulated"
        return "virtual" if seen["announced"] else "real"
    except (TareError, ValueError, KeyError, TypeError):
        return "virtual"
