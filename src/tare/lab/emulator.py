"""The QEMU that emulates a lab, and the faults of QEMU that the lab works around.

`tare help emulator-faults` describes the faults. Labs with Xen use each workaround below the first
version that was tested without it and had no failure. A version that was not tested gets the
workaround.

Each NUMA node of an emulated computer is a socket too, as on most computers with several.
Source: QEMU's manual, ``-numa node`` and ``-object memory-backend-ram``.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from tare.hosts import Host
from tare.lab.corrected_qemu import TURN_NS, corrected_qemu
from tare.lab.options import LabOptions
from tare.platforms.qemu.command import PROGRAM, SANDBOX
from tare.study.model.lab_nodes import cpus_by_node

NO_AVX = "-avx"
"""A part of QEMU's ``-cpu``. QEMU 7.2 sometimes forgets that a HVM guest turned AVX on, and glibc's
memcpy dies of an invalid opcode at its first ``vmovdqu``."""
EAGER_FPU = "spec-ctrl=eager-fpu"
"""An argument of Xen. QEMU does not raise the trap of some instructions by which Xen notices that
a guest needs its floating-point registers back. The guest then works with another guest's."""
SOUND_FROM: dict[str, tuple[int, int] | None] = {NO_AVX: None, EAGER_FPU: None}
"""For each workaround the first version that was tested without it and had no failure; None if
there is none. 10.0.2 needs ``eager-fpu``; whether it handles AVX correctly is not known."""
THREADS_SOUND_FROM = (10, 0)
"""The first version with VMRUN corrected in whose labs no guest fell with a thread for each CPU."""

_ASK_S = 30.0

RUNS_AS = (
    "their QEMU is Tare's own user here, and filters its system calls where it was built for that: "
    "a study chooses what it boots"
)
"""A note that `tare doctor` shows."""


@dataclass(frozen=True)
class Emulator:
    """The QEMU that emulates a lab.

    Args:
        version: Its version, such as ``7.2.22``; empty if unknown, which counts as old.
        filters: Whether it can filter its own system calls (seccomp(2)).
        program: Its file, or its name on the PATH.
        corrected: Whether that is Tare's copy, in which VMRUN delivers an interrupt once.
        short_turns: Whether CPUs that share a thread take short turns in that copy.
    """

    version: str = ""
    filters: bool = False
    program: str = PROGRAM
    corrected: bool = False
    short_turns: bool = False

    @property
    def threads(self) -> Literal["single", "multi"]:
        """How a lab with a hypervisor runs its CPUs, in QEMU's words: one thread for all, or each.

        `tare help emulator-faults` has the counts. With a thread for each, guests of KVM fall in
        QEMU 7.2. With one thread, most fall if VMRUN is not corrected, and CPUs wait 100 ms if
        turns are long.
        """
        if self._numbers >= THREADS_SOUND_FROM or not (self.corrected and self.short_turns):
            return "multi"
        return "single"

    @property
    def description(self) -> str:
        """Its name in a run's record, such as ``7.2.22, VMRUN corrected, turns of 1 ms``."""
        facts = [self.version]
        facts += ["VMRUN corrected"] if self.corrected else []
        facts += [f"turns of {TURN_NS / 1e6:g} ms"] if self.threads == "single" else []
        return ", ".join(facts)

    @property
    def workarounds(self) -> tuple[str, ...]:
        """The workarounds that a lab with Xen needs in this QEMU."""
        return tuple(
            each for each, sound in SOUND_FROM.items() if sound is None or self._numbers < sound
        )

    @property
    def _numbers(self) -> tuple[int, ...]:
        numbers = []
        for part in self.version.split(".")[:2]:
            # A release candidate such as 10.0~rc1 does not count as the release.
            if not part.isdecimal():
                return ()
            numbers.append(int(part))
        return tuple(numbers)


def emulator_in(answer: str, *, filters: bool = False) -> Emulator:
    """Return the QEMU that gives an answer to ``--version``.

    Args:
        answer: The answer.
        filters: Whether it also accepts ``-sandbox``.
    """
    first = answer.partition("\n")[0]
    return Emulator(first.removeprefix("QEMU emulator version ").partition(" ")[0], filters)


async def emulator_of(here: Host, options: LabOptions, cache: Path) -> Emulator:
    """Return the QEMU that emulates a lab: the user's own, or the installed one, corrected.

    Args:
        here: This computer.
        options: The lab's options.
        cache: Directory for the corrected copy.

    Raises:
        InputError: The cache cannot be written.
    """
    program = options.qemu or PROGRAM
    answer = await here.run([program, "--version"], timeout_s=_ASK_S)
    # A user's own QEMU may have been built without seccomp.
    filtered = await here.run([program, "-sandbox", SANDBOX, "--version"], timeout_s=_ASK_S)
    found = emulator_in(answer.stdout.decode(errors="replace"), filters=filtered.ok)
    found = replace(found, program=program)
    installed = None if options.qemu else shutil.which(PROGRAM)
    copy = await corrected_qemu(here, Path(installed), cache) if installed else None
    if copy is None:
        return found
    return replace(found, program=str(copy.program), corrected=True, short_turns=copy.short_turns)


def topology_arguments(cpus: int, nodes: int) -> tuple[str, ...]:
    """Return the option that lays the CPUs out in sockets."""
    return ("-smp", f"{cpus},sockets={nodes},cores={cpus // nodes},threads=1")


def node_arguments(cpus: int, memory: int, nodes: int) -> tuple[str, ...]:
    """Return the options that distribute CPUs and memory over the nodes; none for one node.

    Args:
        cpus: Number of CPUs, a multiple of ``nodes``.
        memory: Bytes of memory, in whole MiB; the last node gets the remainder.
        nodes: Number of nodes.
    """
    if nodes == 1:
        return ()
    whole = memory >> 20
    sizes = [whole // nodes] * nodes
    sizes[-1] += whole % nodes
    words: list[str] = []
    for node, (own, size) in enumerate(zip(cpus_by_node(cpus, nodes), sizes, strict=True)):
        words += ["-object", f"memory-backend-ram,id=node{node},size={size}M"]
        words += ["-numa", f"node,nodeid={node},cpus={own[0]}-{own[-1]},memdev=node{node}"]
    return tuple(words)
