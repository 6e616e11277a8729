"""How bridges are joined to one network: the best way that is seen to work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from itertools import permutations

from tare.errors import InputError, MachineFault
from tare.platforms.linux.network.joint import Bridge, Joint
from tare.platforms.linux.network.reach import DISCARD, largest_packet
from tare.platforms.linux.network.tunnel import join_by_tunnel
from tare.platforms.linux.network.vxlan import join_by_vxlan
from tare.platforms.network import MTU

Join = Callable[[Sequence[Bridge], AsyncExitStack], Awaitable[Joint]]


async def join(
    bridges: Sequence[Bridge], held: AsyncExitStack, lost: asyncio.Future[MachineFault]
) -> Joint:
    """Join the bridges of several hosts, by VXLAN, else by a tunnel of Tare's own.

    Each way is tried, and taken only if packets of full size get from each host to each other.

    Args:
        bridges: One of each network stack.
        held: Removes what was made.
        lost: Set when what joins them breaks.

    Raises:
        MachineFault: No way works; it says why of each.
    """
    if len(bridges) == 1:
        return Joint("bridge", MTU)
    ways: dict[str, Join] = {
        "vxlan": join_by_vxlan,
        "tunnel": partial(join_by_tunnel, lost=lost),
    }
    refused: dict[str, MachineFault | InputError] = {}
    for name, way in ways.items():
        async with AsyncExitStack() as attempt:
            try:
                joint = await way(bridges, attempt)
                await _prove(bridges, joint.mtu)
            except (MachineFault, InputError) as error:
                refused[name] = error
                continue
            held.push_async_exit(attempt.pop_all())
            why = {name: str(error) for name, error in refused.items()}
            return replace(joint, facts={**joint.facts, "refused": why})
    reasons = "; ".join(f"{name}: {error}" for name, error in refused.items())
    hosts = " and ".join(bridge.host for bridge in bridges)
    raise MachineFault(
        f"no network can be made over {hosts}: {reasons}",
        transient=any(isinstance(e, MachineFault) and e.transient for e in refused.values()),
    )


async def _prove(bridges: Sequence[Bridge], mtu: int) -> None:
    """See that packets of full size get from each host to each other; raises MachineFault."""
    for here, there in permutations(bridges, 2):
        if await largest_packet(here, there.address, DISCARD, [mtu]) != mtu:
            raise MachineFault(
                f"packets of {mtu} bytes do not get from {here.host} to {there.host} and are not "
                f"answered; a firewall there may drop what comes to {there.name}"
            )
