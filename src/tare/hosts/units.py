"""The units in which a host's kernel counts."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tare.hosts.contract import Host

_PAGE_SIZE, _TICKS = 6, 17
"""AT_PAGESZ and AT_CLKTCK of the auxiliary vector, getauxval(3)."""
_USUAL = {_PAGE_SIZE: 4096, _TICKS: 100}


@dataclass(frozen=True)
class KernelUnits:
    """How long a clock tick of ``/proc`` is, and how large a page.

    Args:
        ticks_per_s: Clock ticks in a second (``USER_HZ``).
        page_bytes: Bytes in a page.
    """

    ticks_per_s: int
    page_bytes: int


async def kernel_units(host: Host) -> KernelUnits:
    """Return a host's units; those of nearly all computers where it does not tell.

    Read from the auxiliary vector of whatever process reads files there, so that no program of
    the host is needed (proc(5), ``/proc/PID/auxv``).
    """
    told = dict(_USUAL)
    try:
        vector = await host.read("/proc/self/auxv")
    except OSError:
        vector = b""
    for kind, value in struct.iter_unpack("<QQ", vector[: len(vector) // 16 * 16]):
        if kind in told and value:
            told[kind] = value
    return KernelUnits(told[_TICKS], told[_PAGE_SIZE])
