"""The units of a host's kernel: clock ticks and pages."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tare.hosts.contract import Host

_PAGE_SIZE, _TICKS = 6, 17
"""The keys AT_PAGESZ and AT_CLKTCK of the auxiliary vector, getauxval(3)."""
_USUAL = {_PAGE_SIZE: 4096, _TICKS: 100}


@dataclass(frozen=True)
class KernelUnits:
    """The length of a clock tick of ``/proc``, and the size of a page.

    Args:
        ticks_per_s: The number of clock ticks in a second (``USER_HZ``).
        page_bytes: The number of bytes in a page.
    """

    ticks_per_s: int
    page_bytes: int


async def kernel_units(host: Host) -> KernelUnits:
    """Return a host's units; the usual values if the host does not report them.

    They are read from the auxiliary vector of the process that reads files on the host, so that no
    program of the host is needed (proc(5), ``/proc/PID/auxv``).
    """
    units = dict(_USUAL)
    try:
        vector = await host.read("/proc/self/auxv")
    except OSError:
        vector = b""
    for kind, value in struct.iter_unpack("<QQ", vector[: len(vector) // 16 * 16]):
        if kind in units and value:
            units[kind] = value
    return KernelUnits(units[_TICKS], units[_PAGE_SIZE])
