"""Bridges joined to one network: the best way that is seen to work.

VXLAN (RFC 7348) goes between addresses that the hosts have anyway; a tunnel of Tare's own is the
second choice.
"""

from __future__ import annotations

import asyncio
import json
import random
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from itertools import permutations

from tare.errors import InputError, MachineFault
from tare.hosts.ledger.undoing import PREFIX
from tare.platforms.linux.network.joint import Bridge, JoinedBridges
from tare.platforms.linux.network.parts import Parts
from tare.platforms.linux.network.reach import DISCARD, largest_packet
from tare.platforms.linux.network.tunnel import join_by_tunnel
from tare.platforms.network import MTU

Join = Callable[[Sequence[Bridge], AsyncExitStack], Awaitable[JoinedBridges]]
OVERHEAD = 50
"""Bytes around each packet: Ethernet 14, VXLAN 8, UDP 8, IPv4 20 (RFC 7348, section 5)."""
_SIZES = (MTU + OVERHEAD, MTU, 1492, 1460, 1450, 1400, 1280)
"""The packets that networks between hosts may let through."""
_PORTS = range(61_000, 65_536)
"""Above those that Linux gives to connections (ip_local_port_range)."""
_EVERYONE = "00:00:00:00:00:00"
"""The entry for frames to all, and to whom nobody knows, bridge(8)."""
_ASK_S = 20.0


async def join(
    bridges: Sequence[Bridge], held: AsyncExitStack, lost: asyncio.Future[MachineFault]
) -> JoinedBridges:
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
        return JoinedBridges("bridge", MTU)
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


async def join_by_vxlan(bridges: Sequence[Bridge], held: AsyncExitStack) -> JoinedBridges:
    """Join the bridges of several hosts, each with each.

    Args:
        bridges: One of each host.
        held: Removes what was made.

    Raises:
        MachineFault: A host has no VXLAN, or reaches none of another's addresses.
    """
    order = random.Random(secrets.randbits(64))
    port, vni = order.choice(_PORTS), order.randrange(1, 1 << 24)
    addresses: dict[str, dict[str, str]] = {bridge.host: {} for bridge in bridges}
    mtu = MTU
    for here, there in permutations(bridges, 2):
        address, size = await _way(here, there, port)
        addresses[here.host][there.host] = address
        mtu = min(mtu, size - OVERHEAD)
    # Nothing on the way may fragment packets (section 4.3), so one that is too large is reported.
    kind = ("vxlan", "id", str(vni), "dstport", str(port), "df", "set")
    for bridge in bridges:
        parts = Parts(bridge.context, held)
        name = f"{bridge.name[:-1]}v"
        await parts.interface(name, mtu, *kind)
        for to in addresses[bridge.host].values():
            await parts.run("bridge", "fdb", "append", _EVERYONE, "dev", name, "dst", to)
        await parts.ip("link", "set", name, "master", bridge.name, "up")
    return JoinedBridges("vxlan", mtu, {"vni": vni, "port": port, "addresses": addresses})


async def _way(here: Bridge, there: Bridge, port: int) -> tuple[str, int]:
    """Return an address of ``there`` that ``here`` reaches, and the largest packet that does."""
    own = await _addresses(here)
    others = [address for address in await _addresses(there) if address not in own]
    for address in others:
        size = await largest_packet(here, address, port, _SIZES)
        if size:
            return address, size
    listed = f" ({', '.join(others)})" if others else ""
    raise MachineFault(f"{here.host} reaches no address of {there.host}{listed} at UDP port {port}")


async def _addresses(bridge: Bridge) -> list[str]:
    """Return the addresses of a host that others may reach."""
    asked = await bridge.context.host.run(
        ["ip", "-4", "-j", "addr", "show", "up", "scope", "global"], timeout_s=_ASK_S
    )
    if not asked.ok:
        raise MachineFault(f"the addresses of {bridge.host} cannot be seen: {asked.words()}")
    return [
        str(address["local"])
        for interface in json.loads(asked.stdout or b"[]")
        # An interface that is filtered out is listed as an empty object.
        if interface and not str(interface["ifname"]).startswith(PREFIX)
        for address in interface["addr_info"]
    ]
