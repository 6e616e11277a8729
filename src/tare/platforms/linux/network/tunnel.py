"""Bridges joined by Tare itself, where their hosts do not reach each other.

On each host the agent carries a tap's frames to its standard output and from its standard input;
here they are copied from each to all others. Tare has a stream to each host anyway, so this works
wherever Tare does. It shows behaviour, and no speed: each frame goes through this process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial

from tare.errors import MachineFault
from tare.hosts import OwnedProcess, start_owned
from tare.platforms.linux.network.joint import Bridge, JoinedBridges
from tare.platforms.linux.network.parts import Parts
from tare.platforms.network import MTU

_LENGTH = 2
"""Bytes that say a frame's length, the low one first."""
_PIECE = 1 << 16
_END_S = 2.0


async def join_by_tunnel(
    bridges: Sequence[Bridge], held: AsyncExitStack, lost: asyncio.Future[MachineFault]
) -> JoinedBridges:
    """Join the bridges of several hosts through this process.

    Args:
        bridges: One of each host.
        held: Removes what was made.
        lost: Set when the tunnel breaks.

    Raises:
        MachineFault: A host has no taps.
    """
    ends = [await _end(bridge, held) for bridge in bridges]
    for number, bridge in enumerate(bridges):
        others = [end for end in ends if end is not ends[number]]
        copying = asyncio.create_task(_copy(bridge.host, ends[number], others, lost))
        held.push_async_callback(_cancel, copying)
    return JoinedBridges("tunnel", MTU)


async def _end(bridge: Bridge, held: AsyncExitStack) -> OwnedProcess:
    context = bridge.context
    name = f"{bridge.name[:-1]}t"
    parts = Parts(context, held)
    await parts.tap(name, MTU)
    await parts.ip("link", "set", name, "master", bridge.name, "up")
    argv = [str(context.host_agent), "tap", name]
    process = await start_owned(context.host, context.ledger, argv)
    held.push_async_callback(partial(_close, process))
    return process


async def _close(process: OwnedProcess) -> None:
    process.stdin.close()
    await process.end(_END_S)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


async def _copy(
    host: str,
    source: OwnedProcess,
    others: Sequence[OwnedProcess],
    lost: asyncio.Future[MachineFault],
) -> None:
    """Copy what comes from one end to the others, in whole frames: they have other senders too."""
    reason = "has ended"
    held = bytearray()
    try:
        while piece := await source.stdout.read(_PIECE):
            held += piece
            if whole := length_of_whole_frames(held):
                frames = bytes(held[:whole])
                del held[:whole]
                for other in others:
                    other.stdin.write(frames)
                for other in others:
                    await other.stdin.drain()
    except OSError as error:
        reason = f"broke: {error}"
    if not lost.done():
        lost.set_result(MachineFault(f"the network's tunnel to {host} {reason}", transient=True))


def length_of_whole_frames(held: bytes | bytearray) -> int:
    """Return how many of the bytes, from the first on, are whole frames with their lengths."""
    whole = 0
    while len(held) >= whole + _LENGTH:
        end = whole + _LENGTH + int.from_bytes(held[whole : whole + _LENGTH], "little")
        if end > len(held):
            break
        whole = end
    return whole
