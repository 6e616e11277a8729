"""The user as which something runs on a Linux host."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tare.hosts.contract import Host

ASK_S = 15.0


async def uid_of(host: Host) -> int:
    """Return Tare's user id on a host; 0 is root.

    Raises:
        MachineFault, InputError: The host does not answer.
        ValueError: The host's answer is not a number.
    """
    return int((await host.run(["id", "-u"], timeout_s=ASK_S)).stdout)


async def as_tare(host: Host, why: str) -> str:
    """Describe the rights of something that runs as Tare itself.

    Args:
        host: The host.
        why: Why root is needed.
    """
    uid = await uid_of(host)
    return f"user {uid}, as Tare itself" if uid else f"root, as Tare itself: {why}"
