"""A copy of this computer's QEMU with two corrections, in which labs run.

**VMRUN delivers an injected interrupt once, and not twice.** QEMU emulates VMRUN in
``helper_vmrun`` (target/i386/tcg/system/svm_helper.c, in 7.2 target/i386/tcg/sysemu). For an event
of the type INTR, it stores the vector in ``cs->exception_index`` and then delivers the interrupt
itself, but does not clear the index. If something asks the CPU to leave its loop before the next
#VMEXIT and no interrupt is pending (``cpu_handle_interrupt`` in accel/tcg/cpu-exec.c), the loop
takes the index for an exception that is still to be delivered. The vector then arrives a second
time, whatever IF and GIF say: in the guest, or behind #VMEXIT in the hypervisor while it still has
the guest's registers. Versions 7.2, 10.0 and 11.1 have the fault. Nothing reads the stored index
before the next event but a log line, so the copy has a NOP in place of that one store.

**Emulated CPUs that share a thread take turns of 1 ms, and not of 100 ms.** With one thread for all
CPUs, QEMU changes to the next one when the current one halts, when a timer interrupts, and after
``TCG_KICK_PERIOD`` (accel/tcg/tcg-accel-ops-rr.h) at the latest. An interrupt that one CPU sends to
another waits that long. The copy has a shorter period in the two instructions that set this timer.
They are in the accelerator's module, or in the program where it has no modules.

The instructions are found by those around them. What does not match in exactly one place, for
example a QEMU in which the fault is fixed, is used unchanged. `tare help emulator-faults` has the
counts with and without each correction.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare.errors import InputError
from tare.hosts import Host
from tare.images import cache as store

_STORE = rb"\x89[\x80-\x83\x85-\x8b\x8d-\x93\x95-\x9b\x9d-\xa3\xa5-\xab\xad-\xb3\xb5-\xbb\xbd-\xbf]"
"""MOV to memory of a 32-bit register: base register (no SIB byte) and 32-bit displacement."""
_INJECTED = re.compile(
    # cs->exception_index = vector; before the CPU's registers in memory, so the offset is negative.
    rb"(?P<store>" + _STORE + rb"..\xff\xff)"
    # env->exception_is_int = 0
    rb"\xc7[\x80-\x83\x85-\x87](?P<is_int>.{4})\0\0\0\0"
    # env->exception_next_eip = -1
    rb"\x48\xc7[\x80-\x83\x85-\x87](?P<next_eip>.{4})\xff\xff\xff\xff"
    # Is CPU_LOG_TB_IN_ASM logged?
    rb"\xf6\x05.{4}\x02\x0f\x85.{4}"
    # do_interrupt_x86_hardirq(env, vector, 1)
    rb"\xba\x01\0\0\0\x48\x89[\xc7\xcf\xd7\xdf\xe7\xef\xf7\xff]\xe8",
    re.DOTALL,
)
"""The case INTR as GCC compiled it for Debian 12 and its backports. Source: AMD64 Architecture
Programmer's Manual, volume 3, MOV and CALL; QEMU's source as above. In ``CPUX86State``,
``exception_next_eip`` follows ``exception_is_int``."""
_NOP = bytes.fromhex("660f1f440000")
"""A NOP of six bytes (Intel 64 and IA-32 Architectures Software Developer's Manual, NOP)."""
TURN_NS = 1_000_000
"""Nanoseconds after which the next CPU of a thread has its turn, at the latest."""
_OWN_TURN_NS = 100_000_000
_CLOCK = rb"\xbf\x01\0\0\0\xe8.{4}\x48\x8b\x3d(?P<timer>.{4})"
"""``qemu_clock_get_ns(QEMU_CLOCK_VIRTUAL)``, and the timer as the first argument of timer_mod()."""
_PERIOD = rb"\x48\x8d\xb0(?P<period>" + re.escape(struct.pack("<i", _OWN_TURN_NS)) + rb")"
"""``+ TCG_KICK_PERIOD`` as its second argument."""
_TURN_ENDS = re.compile(_CLOCK + _PERIOD + rb"\xe8", re.DOTALL)
"""``rr_kick_thread``, which calls timer_mod()."""
_TURNS_BEGIN = re.compile(_CLOCK + rb"\x48\x83\xc4." + _PERIOD + rb"\xe9", re.DOTALL)
"""``rr_start_kick_timer``, which jumps to timer_mod() as its last step."""
_ACCELERATOR = "accel-tcg-x86_64.so"
_FORMAT = 2
_ASK_S = 30.0
_SIBLINGS = ("share", "lib", "lib64", "libexec")
"""Folders in which QEMU looks for firmware and modules, relative to its own program's folder."""
_MODULES = ("lib/*/qemu", "lib/qemu", "lib64/qemu")
"""Where distributions keep QEMU's modules, relative to the same folder."""


@dataclass(frozen=True)
class CorrectedQemu:
    """The corrected copy of a QEMU.

    Args:
        program: The copy's program.
        short_turns: Whether emulated CPUs that share a thread take turns of :data:`TURN_NS`.
    """

    program: Path
    short_turns: bool


def corrected(program: bytes) -> bytes | None:
    """Return a QEMU's program without the faulty store; None if it is not found exactly once.

    Args:
        program: The content of ``qemu-system-x86_64``.
    """
    found = [each for each in _INJECTED.finditer(program) if _adjacent(each)]
    if len(found) != 1:
        return None
    begin, end = found[0].span("store")
    return program[:begin] + _NOP + program[end:]


def with_short_turns(binary: bytes) -> bytes | None:
    """Return a program or module with short turns; None if their timer is not found exactly once.

    Args:
        binary: The content of ``qemu-system-x86_64``, or of its accelerator's module.
    """
    ends = {_timer(each): each for each in _TURN_ENDS.finditer(binary)}
    pairs = [
        (ends[timer], each)
        for each in _TURNS_BEGIN.finditer(binary)
        if (timer := _timer(each)) in ends
    ]
    if len(pairs) != 1:
        return None
    changed = bytearray(binary)
    for each in pairs[0]:
        changed[slice(*each.span("period"))] = struct.pack("<i", TURN_NS)
    return bytes(changed)


def _timer(found: re.Match[bytes]) -> int:
    """Return the file offset of the timer that an instruction addresses relative to itself."""
    (offset,) = struct.unpack("<i", found["timer"])
    return int(found.end("timer") + offset)


def _adjacent(found: re.Match[bytes]) -> bool:
    (is_int,), (next_eip,) = (struct.unpack("<i", found[name]) for name in ("is_int", "next_eip"))
    return bool(next_eip - is_int == 4)


async def corrected_qemu(host: Host, program: Path, cache: Path) -> CorrectedQemu | None:
    """Return the corrected copy of a QEMU in the cache, which is made if it is not there.

    Args:
        host: This computer.
        program: The installed program.
        cache: Directory to keep things in.

    Returns:
        The copy; None if this QEMU needs none, is not known well enough, or no copy of it runs here
        (for example because the cache is on a file system mounted noexec).

    Raises:
        InputError: The cache cannot be written.
    """
    original = await asyncio.to_thread(program.resolve)
    digest = await asyncio.to_thread(store.file_digest, original)
    folder = cache / "qemus" / store.key_of({"format": _FORMAT, "original": digest})
    copy = folder / original.parent.name / original.name
    facts = await _facts_of(original, folder, cache)
    if not facts["corrected"]:
        return None
    try:
        answer = await host.run([str(copy), "--version"], timeout_s=_ASK_S)
    except InputError:
        return None
    return CorrectedQemu(copy, bool(facts["short_turns"])) if answer.ok else None


async def _facts_of(original: Path, folder: Path, cache: Path) -> Mapping[str, Any]:
    if (facts := await asyncio.to_thread(store.load, folder)) is not None:
        return facts
    async with store.exclusive(cache) as draft:
        # Another process may have been first to publish its copy.
        if (facts := await asyncio.to_thread(store.load, folder)) is not None:
            return facts
        return await asyncio.to_thread(_publish, original, draft / "kept", folder)


def _publish(original: Path, draft: Path, folder: Path) -> dict[str, bool]:
    """Put the copy into the cache, or the note that there is none."""
    content = corrected(original.read_bytes())
    programs = draft / original.parent.name
    programs.mkdir(parents=True)
    facts = {"corrected": content is not None, "short_turns": False}
    if content is not None:
        prefix = original.parent.parent
        modules = [each for place in _MODULES for each in prefix.glob(f"{place}/{_ACCELERATOR}")]
        turns = with_short_turns(modules[0].read_bytes() if modules else content)
        facts["short_turns"] = turns is not None
        if turns is not None and modules:
            _copy_modules(modules[0], turns, draft / modules[0].parent.relative_to(prefix))
        copy = programs / original.name
        copy.write_bytes(content if modules or turns is None else turns)
        shutil.copymode(original, copy)
        for name in _SIBLINGS:
            if (sibling := prefix / name).is_dir() and not (draft / name).exists():
                (draft / name).symlink_to(sibling)
    store.publish(draft, folder, facts)
    return facts


def _copy_modules(accelerator: Path, content: bytes, folder: Path) -> None:
    """Fill a folder with links to QEMU's modules, and with another content of one of them."""
    folder.mkdir(parents=True)
    for path in accelerator.parent.iterdir():
        if path.name != accelerator.name:
            (folder / path.name).symlink_to(path)
    (folder / accelerator.name).write_bytes(content)
