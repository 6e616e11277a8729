"""Evidence that a host's kernel killed a process because memory ran out."""

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
"""The kernel's message since Linux 5.2 (mm/oom_kill.c), with the id in the first PID namespace."""
SOMETHING = "meanwhile, something on this host was killed for lack of memory"


async def kills_so_far(host: Host) -> int | None:
    """Return how often the kernel killed a process because memory ran out; None if unknown.

    Source: ``oom_kill`` in ``/proc/vmstat`` (Linux 4.13 and later), which counts the whole host.
    """
    with suppress(OSError, TareError):
        if found := _KILLS.search((await host.read(VMSTAT)).decode(errors="replace")):
            return int(found[1])
    return None


async def reason_for_kill(host: Host, pid: int, name: str, before: int | None) -> str:
    """Return a sentence that links a process's SIGKILL to a lack of memory; empty if nothing does.

    Only the kernel's log proves which process was killed. If it cannot be read or names no process,
    the host-wide count shows only that some process was killed.

    Args:
        host: The process's host.
        pid: The process id.
        name: The program's name, for the sentence.
        before: The result of :func:`kills_so_far` when the process was started.
    """
    now = await kills_so_far(host)
    if before is None or now is None or now <= before:
        return ""
    log = ""
    with suppress(TareError, OSError):
        answer = await host.run(["dmesg"], timeout_s=ASK_S)
        log = answer.stdout.decode(errors="replace") if answer.ok else ""
    killed = killed_in(log)
    if pid in killed:
        return f"the host ran out of memory, and its kernel killed {name} (OOM killer)"
    return "" if killed else f"{name} was killed by SIGKILL; {SOMETHING}"


def killed_in(log: str) -> frozenset[int]:
    """Return the processes that a kernel's log names as killed because memory ran out."""
    return frozenset(map(int, _KILLED.findall(log)))
