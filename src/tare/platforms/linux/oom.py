"""Whether the host's kernel ended a process because memory ran out, which passes."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

from tare.errors import TareError

if TYPE_CHECKING:
    from tare.hosts import Host

ASK_S = 10.0
VMSTAT = "/proc/vmstat"
_KILLS = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)
_KILLED = re.compile(r"[Oo]ut of memory: Killed process (\d+)")
"""The kernel's words since Linux 5.2 (mm/oom_kill.c), with an id of the first namespace."""


async def kills_so_far(host: Host) -> int | None:
    """Return how often the kernel ended a process because memory ran out; None if it is not known.

    From ``oom_kill`` in ``/proc/vmstat`` (Linux 4.13 and newer).
    """
    with suppress(OSError, TareError):
        if found := _KILLS.search((await host.read(VMSTAT)).decode(errors="replace")):
            return int(found[1])
    return None


async def taken_for_memory(host: Host, pid: int, before: int | None) -> bool:
    """Return whether a process that got SIGKILL got it because memory ran out.

    Args:
        host: Where it ran.
        pid: Its id.
        before: What :func:`kills_so_far` returned when it was started.
    """
    now = await kills_so_far(host)
    if before is None or now is None or now <= before:
        return False
    log = ""
    with suppress(TareError, OSError):
        completed = await host.run(["dmesg"], timeout_s=ASK_S)
        log = completed.stdout.decode(errors="replace") if completed.ok else ""
    named = killed_in(log)
    # A log that names nobody (not readable, or of another namespace) leaves what was counted.
    return pid in named or not named


def killed_in(log: str) -> frozenset[int]:
    """Return the processes that a kernel's log says were ended for memory."""
    return frozenset(map(int, _KILLED.findall(log)))
