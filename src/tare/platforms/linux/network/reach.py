"""Whether packets get from one host to another, and how long they may be."""

from __future__ import annotations

from collections.abc import Sequence

from tare.platforms.linux.network.joint import Bridge

_REACH_S = 60.0
DISCARD = 9
"""A UDP port that nobody serves (the discard protocol's, RFC 863)."""


async def largest_packet(here: Bridge, address: str, port: int, sizes: Sequence[int]) -> int:
    """Return the largest of the sizes, in bytes, that gets from a host to an address; 0: none.

    Nobody need serve there: the other kernel says that the UDP port is closed.
    """
    words = [str(here.context.host_agent), "reach", f"{address}:{port}", *map(str, sizes)]
    answer = await here.context.host.run(words, timeout_s=_REACH_S)
    return int(answer.stdout) if answer.ok else 0
