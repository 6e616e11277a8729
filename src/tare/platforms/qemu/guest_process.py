"""The process that runs a machine on its host, if that process is visible there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from tare.hosts.contract import Host
from tare.hosts.processes import start_time
from tare.hosts.trace.threads import threads_of

FIND_S = 20.0
# The id comes through standard input: on the command line, grep would find itself.
_FIND = 'id=$(cat); printf %s "$id" | grep -lsiF -f - /proc/[0-9]*/cmdline'
_VCPU = re.compile(r"CPU (\d+)/(?:KVM|TCG)")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True)
class GuestProcess:
    """A process of the host that runs a machine.

    Args:
        pid: The process id.
        began: When it began, in clock ticks since the host booted; None: unknown.
        vcpus: The thread ids of the vCPUs, in order; empty if the threads have no such names.
    """

    pid: int
    began: int | None
    vcpus: tuple[int, ...]


async def find_carrier(host: Host, uuid: str) -> GuestProcess | None:
    """Find the QEMU that runs the machine whose firmware reports a UUID.

    Args:
        host: The host that may run it.
        uuid: The UUID in lower case, with its dashes; other forms are never found.

    Returns:
        The process; None if there is none, or more than one.
    """
    if not _UUID.fullmatch(uuid):
        return None
    listed = await host.run(["sh", "-c", _FIND], input=uuid.encode(), timeout_s=FIND_S)
    found: list[int] = []
    for line in listed.stdout.decode().splitlines():
        pid = int(line.split("/")[2])
        try:
            words = (await host.read(f"/proc/{pid}/cmdline")).decode(errors="replace").split("\0")
        except OSError:
            continue
        if is_of(words, uuid):
            found.append(pid)
    if len(found) != 1:
        return None
    (pid,) = found
    return GuestProcess(
        pid, await start_time(host, pid), vcpus_among(await threads_of(host, [pid]))
    )


def is_of(words: list[str], uuid: str) -> bool:
    """Check whether a command line sets this UUID for a machine: `-uuid`, or SMBIOS's field."""
    return any(
        (first == "-uuid" and second.lower() == uuid)
        or (first == "-smbios" and f"uuid={uuid}" in second.lower().split(","))
        for first, second in pairwise(words)
    )


def vcpus_among(threads: Mapping[int, str]) -> tuple[int, ...]:
    """Return the threads that QEMU names as its vCPUs (``-name debug-threads=on``), in order."""
    numbered = [
        (int(found[1]), thread)
        for thread, name in threads.items()
        if (found := _VCPU.fullmatch(name))
    ]
    return tuple(thread for _, thread in sorted(numbered))
