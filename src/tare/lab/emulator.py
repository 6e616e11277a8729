"""The QEMU that emulates a lab, and the faults of QEMU that the lab works around.

`tare help lab` describes the faults. In labs with Xen, each is worked around up to the first
version that was tried without the workaround and was sound: a newer version alone proves nothing.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from tare.hosts import Host
from tare.lab.corrected_qemu import corrected_qemu
from tare.lab.options import LabOptions
from tare.platforms.qemu.command import PROGRAM, SANDBOX

NO_AVX = "-avx"
"""In QEMU's words for a processor. QEMU 7.2 forgets at times that a HVM guest turned AVX on, and
glibc's memcpy dies of an invalid opcode at its first ``vmovdqu``."""
EAGER_FPU = "spec-ctrl=eager-fpu"
"""In Xen's words. QEMU lets some instructions through without the trap by which Xen otherwise
notices that a guest wants its floating-point registers back: it then works with another's."""
SOUND_FROM: dict[str, tuple[int, int] | None] = {NO_AVX: None, EAGER_FPU: None}
"""By workaround the first version that was seen to do without it; None: none was. Tried without
``eager-fpu`` was 10.0.2, and needs it; whether AVX is sound there is not known."""

_ASK_S = 30.0

RUNS_AS = (
    "their QEMU is Tare's own user here, and filters its system calls where it was built for that: "
    "a study chooses what it boots"
)
"""For `tare doctor`."""


@dataclass(frozen=True)
class Emulator:
    """The QEMU that emulates a lab.

    Args:
        version: As it says it, such as ``7.2.22``; empty: unknown, and taken for an old one.
        filters: Whether it was built with what filters its own system calls (seccomp(2)).
        program: The file that is run, or its name on the PATH.
        corrected: Whether that is Tare's copy, in which VMRUN delivers an interrupt once.
    """

    version: str = ""
    filters: bool = False
    program: str = PROGRAM
    corrected: bool = False

    @property
    def description(self) -> str:
        """What a run's record calls it, such as ``7.2.22, VMRUN corrected``."""
        return f"{self.version}, VMRUN corrected" if self.corrected else self.version

    @property
    def workarounds(self) -> tuple[str, ...]:
        """What a lab with Xen does because of this QEMU."""
        return tuple(
            each for each, sound in SOUND_FROM.items() if sound is None or self._numbers < sound
        )

    @property
    def _numbers(self) -> tuple[int, ...]:
        numbers = []
        for part in self.version.split(".")[:2]:
            # A release candidate, 10.0~rc1, is not taken for what it leads to.
            if not part.isdecimal():
                return ()
            numbers.append(int(part))
        return tuple(numbers)


def emulator_in(said: str, *, filters: bool = False) -> Emulator:
    """Return the QEMU that answers ``--version`` so.

    Args:
        said: Its answer.
        filters: Whether it takes ``-sandbox`` beside that.
    """
    first = said.partition("\n")[0]
    return Emulator(first.removeprefix("QEMU emulator version ").partition(" ")[0], filters)


async def emulator_of(here: Host, options: LabOptions, cache: Path) -> Emulator:
    """Return the QEMU that emulates a lab: the user's own, or the installed one, corrected.

    Args:
        here: This computer.
        options: What the lab is to be.
        cache: Directory for the corrected copy.

    Raises:
        InputError: The cache cannot be written.
    """
    program = options.qemu or PROGRAM
    answer = await here.run([program, "--version"], timeout_s=_ASK_S)
    # One of a user's own may have been built without.
    filtered = await here.run([program, "-sandbox", SANDBOX, "--version"], timeout_s=_ASK_S)
    found = emulator_in(answer.stdout.decode(errors="replace"), filters=filtered.ok)
    found = replace(found, program=program)
    installed = None if options.qemu else shutil.which(PROGRAM)
    copy = await corrected_qemu(here, Path(installed), cache) if installed else None
    return replace(found, program=str(copy), corrected=True) if copy else found
