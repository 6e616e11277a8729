"""Identify a running machine, so that no machine is compared with itself."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tare.hosts.contract import Host

MACHINE_ID = "/etc/machine-id"
ASK_S = 30.0
SAME = "same boot id, same machine id"
"""The facts by which a machine was recognised."""


async def running_machine(host: Host) -> str:
    """Return a digest that only this machine has until its next boot; empty if unknown.

    A container has its host's boot id, but its own machine id, or at least its own PID namespace. A
    cloned VM has another's machine id, but its own boot id (random(4), machine-id(5),
    namespaces(7)).

    Args:
        host: A connection to the machine.
    """
    boot = host.boot_id()
    if not boot:
        return ""
    try:
        own = (await host.read(MACHINE_ID)).decode(errors="replace").strip()
    except OSError:
        own = ""
    if not own:
        found = await host.run(["readlink", "/proc/self/ns/pid"], timeout_s=ASK_S)
        own = found.stdout.decode(errors="replace").strip()
    if not own:
        return ""
    return hashlib.sha256(f"{boot} {own}".encode()).hexdigest()[:16]
