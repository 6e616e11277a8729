"""The QEMU that emulates a lab, and what of it the lab works around.

The faults are told in docs/lab.md. Each is worked around in labs with Xen up to the version with
which a lab was seen to do without: a newer one is not taken to be sound for being newer.
"""

from __future__ import annotations

from dataclasses import dataclass

NO_AVX = "-avx"
"""In QEMU's words for a processor. QEMU 7.2 forgets at times that a HVM guest turned AVX on, and
glibc's memcpy dies of an invalid opcode at its first ``vmovdqu``."""
EAGER_FPU = "spec-ctrl=eager-fpu"
"""In Xen's words. QEMU lets some instructions through without the trap by which Xen otherwise
notices that a guest wants its floating-point registers back: it then works with another's."""
SOUND_FROM: dict[str, tuple[int, int] | None] = {NO_AVX: None, EAGER_FPU: None}
"""By workaround the first version that was seen to do without it; None: none was. Tried without
``eager-fpu`` was 10.0.2, and needs it; whether AVX is sound there is not known."""

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
    """

    version: str = ""
    filters: bool = False

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
