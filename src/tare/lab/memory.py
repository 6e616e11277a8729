"""The memory of this computer that labs need."""

from __future__ import annotations

from tare.errors import InputError
from tare.lab.options import MIB

SPARE = 256 * MIB
"""Bytes that QEMU needs in addition to the memory of the computer that it emulates."""


def require_memory(meminfo: str, wanted: int, labs: int = 1) -> None:
    """Check that the memory suffices for a number of labs at once.

    Args:
        meminfo: The text of /proc/meminfo (proc(5)).
        wanted: The memory of each lab in bytes.
        labs: The number of labs that are up at once.

    Raises:
        InputError: There is less memory; the hint says what to do.
    """
    each, has = wanted + SPARE, available(meminfo)
    if has >= labs * each:
        return
    if labs == 1:
        raise InputError(
            f"the lab wants {wanted // MIB} MiB of memory, and {has // MIB} MiB are available here",
            "end something, or ask for less: --memory 2GiB",
        )
    fewer = max(1, has // each)
    raise InputError(
        f"{labs} labs want {labs * each // MIB} MiB of memory, and {has // MIB} MiB are available "
        "here",
        f"write --cluster local:{fewer}, or less `memory` in the study's `lab`",
    )


def available(meminfo: str) -> int:
    """Return the bytes available without swapping; 2^62 if the kernel does not list them."""
    for line in meminfo.splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return 1 << 62
