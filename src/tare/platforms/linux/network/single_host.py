"""A network on one host that is more than a bridge: another switch, or a link of a stated speed."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass

from tare.platforms.contract import Context
from tare.platforms.linux.network.host_network import BuiltNetwork
from tare.platforms.linux.network.joint import Bridge, JoinedBridges
from tare.platforms.linux.network.parts import Parts
from tare.platforms.linux.network.shaping import shape
from tare.platforms.linux.network.subnets import Addresses
from tare.platforms.linux.network.switches import (
    OUTSIDE,
    HostBridge,
    NetworkSwitch,
    open_switch,
    router,
)
from tare.platforms.network import MTU
from tare.study.model.platform_options import Switching


@dataclass(frozen=True)
class SingleHostPlan:
    """What is to be made.

    Args:
        context: The host and its ledger.
        held: Removes what was made.
        token: What the names of its parts begin with.
        addresses: The address of each machine and of the peer.
        switching: What machines are plugged into.
        link: The speed of the link to the peer, in bits per second; None: as fast as it goes.
    """

    context: Context
    held: AsyncExitStack
    token: str
    addresses: Addresses
    switching: Switching
    link: float | None


async def lay_alone(plan: SingleHostPlan) -> BuiltNetwork:
    """Make the network; raises MachineFault where the host lacks something of it."""
    own, peer = plan.addresses.bridge(0), plan.addresses.peer(0)
    host, token = plan.context.host.name, plan.token
    if plan.switching.kind == "bridge":
        bridge = Bridge(plan.context, f"{token}b", own)
        await Parts(plan.context, plan.held).bridge(bridge.name, MTU, own)
    else:
        # The host's own end, which is made when something on the host itself is connected.
        bridge = Bridge(plan.context, f"{token}h", own)
    switch = await _switch(plan, bridge)
    outside, cable = (switch, "") if plan.link is None else await _linked(plan, switch, plan.link)
    await plug_peer(outside, token, MTU, peer)
    if cable:
        await switch.behind(cable, peer)
    switches = {host: switch}
    return BuiltNetwork(
        {host: bridge}, plan.addresses, JoinedBridges("bridge", MTU), peer, switches, outside, cable
    )


async def plug_peer(switch: NetworkSwitch, token: str, mtu: int, address: str) -> None:
    """Make the peer's namespace, plugged into a switch; raises MachineFault."""
    name, end = f"{token}-peer", f"{token}p"
    await switch.parts.outlet(name, end, mtu, address)
    await switch.parts.settings(name, OUTSIDE)
    await switch.attach(end, address)


async def _switch(plan: SingleHostPlan, bridge: Bridge) -> NetworkSwitch:
    conntrack, namespace = plan.switching.conntrack, f"{plan.token}-switch"
    if plan.switching.kind == "routed":
        own = plan.addresses.router
        return await router(plan.context, plan.held, namespace, own, conntrack)
    if plan.switching.kind == "openvswitch":
        return await open_switch(plan.context, plan.held, namespace, conntrack)
    return HostBridge(Parts(plan.context, plan.held), bridge.name)


async def _linked(
    plan: SingleHostPlan, switch: NetworkSwitch, rate: float
) -> tuple[NetworkSwitch, str]:
    """Make a bridge for what is outside, and a cable of a stated speed between it and a switch."""
    parts = Parts(plan.context, plan.held)
    outside = HostBridge(parts, f"{plan.token}o")
    await parts.interface(outside.name, MTU, "bridge")
    await parts.ip("link", "set", outside.name, "up")
    near, far = f"{plan.token}c", f"{plan.token}d"
    where = ("netns", switch.parts.within) if switch.parts.within else ()
    await parts.interface(near, MTU, "veth", "peer", "name", far, "mtu", str(MTU), *where)
    await switch.parts.quiet(far)
    await outside.attach(near)
    await switch.attach(far)
    for there, interface in ((parts, near), (switch.parts, far)):
        await shape(there, interface, rate, MTU)
    return outside, far
