"""A batch's network as a whole: made over one or more hosts when first needed, and removed."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from tare.errors import MachineFault
from tare.platforms.contract import Context
from tare.platforms.linux.network.host_network import BuiltNetwork, Common, Isolated, Network
from tare.platforms.linux.network.joining import join
from tare.platforms.linux.network.joint import Bridge
from tare.platforms.linux.network.parts import Parts
from tare.platforms.linux.network.single_host import SingleHostPlan, lay_alone, plug_peer
from tare.platforms.linux.network.subnets import Addresses, free_subnet
from tare.platforms.linux.network.switches import HostBridge
from tare.platforms.network import MTU, Link
from tare.study.model.platform_options import Switching

_ASK_S = 20.0


class SpanningNetwork:
    """One network over one or more hosts; made by :func:`spanning_network`.

    Args:
        contexts: Each host with its ledger.
        held: Removes what was made.
        rooted: Whether bridges can be made on all hosts.
        peer_on: The host that the peer is on.
        switching: The switch that machines are plugged into.
        link: The speed of the link between them and the peer, in bits per second; None: none.
        isolated: The isolated network at the machines' hypervisor; None: none.
    """

    def __init__(
        self,
        contexts: Sequence[Context],
        held: AsyncExitStack,
        rooted: bool,
        peer_on: str,
        switching: Switching,
        link: float | None,
        isolated: Isolated | None = None,
    ) -> None:
        self.lost: asyncio.Future[MachineFault] = asyncio.get_running_loop().create_future()
        """Set when what joins the hosts breaks."""
        self._contexts = contexts
        self._held = held
        token = f"tare-{secrets.token_hex(3)}"
        self._common = Common(
            token, rooted, peer_on, self._lay_once, switching, link, isolated=isolated
        )
        self._on = {
            context.host.name: Network(context.host.name, Parts(context, held), self._common)
            for context in contexts
        }
        self._laid: BuiltNetwork | None = None
        self._laying = asyncio.Lock()

    def on(self, host: str) -> Network:
        """Return what the machines on a host join with; raises KeyError for another host."""
        return self._on[host]

    @property
    def links(self) -> Mapping[str, Link]:
        """The link of each machine, by its name."""
        return self._common.links

    def record_interface(self, machine: str, name: str) -> None:
        """Record the name that a machine reports for its interface on this network."""
        self._common.interfaces[machine] = name

    @property
    def facts(self) -> Mapping[str, Any]:
        """How the hosts are joined, for a run's record; empty as long as no machine is.

        ``joined`` (``bridge``, ``vxlan`` or ``tunnel``), ``mtu`` in bytes and ``hosts``; with
        VXLAN its ``vni``, UDP ``port`` and the ``addresses`` by which each host reaches the others;
        and under ``refused`` why a better way was not taken. ``switch`` is what machines are
        plugged into, ``conntrack`` whether it tracks connections, and ``link`` how fast the way to
        the peer was made.
        """
        if self._laid is None:
            return {}
        joint = self._laid.joint
        plugged = self._on[self._common.peer_on].facts
        whole = {"joined": joint.way, "mtu": joint.mtu, "hosts": [*self._on], **joint.facts}
        return {**whole, **plugged}

    async def _lay_once(self) -> BuiltNetwork:
        async with self._laying:
            if self._laid is None:
                async with AsyncExitStack() as held:
                    self._laid = await self._lay(held)
                    self._held.push_async_exit(held.pop_all())
                    # What is made later goes earlier.
                    for switch in (*self._laid.switches.values(), self._laid.outside):
                        switch.parts.held = self._held
            return self._laid

    async def _lay(self, held: AsyncExitStack) -> BuiltNetwork:
        token, peer_on = self._common.token, self._common.peer_on
        stacks = await self._stacks()
        subnet = await free_subnet([stack[0].host for stack in stacks])
        addresses = Addresses(subnet, len(stacks))
        common, (first, *_) = self._common, (stack[0] for stack in stacks)
        if common.switching.kind != "bridge" or common.link is not None:
            plan = SingleHostPlan(first, held, token, addresses, common.switching, common.link)
            if len(self._contexts) > 1:
                raise MachineFault(
                    "`switch` and `link` are for machines that are all on one host",
                    "leave them out, or name no other hosts",
                )
            return await lay_alone(plan)
        bridges = [
            Bridge(stack[0], f"{token}b", addresses.bridge(number))
            for number, stack in enumerate(stacks)
        ]
        for bridge in bridges:
            await Parts(bridge.context, held).bridge(bridge.name, MTU, bridge.address)
        joint = await join(bridges, held, self.lost)
        if joint.mtu != MTU:
            for bridge in bridges:
                words = ("link", "set", bridge.name, "mtu", str(joint.mtu))
                await Parts(bridge.context, held).ip(*words)
        of = {
            context.host.name: (number, context)
            for number, stack in enumerate(stacks)
            for context in stack
        }
        on = {host: bridges[number] for host, (number, _) in of.items()}
        switches = {
            host: HostBridge(Parts(context, held), on[host].name)
            for host, (_, context) in of.items()
        }
        peer = addresses.peer(of[peer_on][0])
        await plug_peer(switches[peer_on], token, joint.mtu, peer)
        return BuiltNetwork(on, addresses, joint, peer, switches, switches[peer_on])

    async def _stacks(self) -> list[list[Context]]:
        """Return the hosts, those together that share a network stack: one bridge is theirs."""
        if len(self._contexts) == 1:
            return [list(self._contexts)]
        stacks: dict[tuple[str, str], list[Context]] = {}
        for context in self._contexts:
            host = context.host
            asked = await host.run(["readlink", "/proc/self/ns/net"], timeout_s=_ASK_S)
            if not asked.ok:
                raise MachineFault(f"the network stack of {host.name} is hidden: {asked.words()}")
            # Another kernel may give the same number.
            stacks.setdefault((host.boot_id() or host.name, asked.words()), []).append(context)
        return list(stacks.values())


@asynccontextmanager
async def spanning_network(
    contexts: Sequence[Context],
    rooted: bool,
    *,
    peer_on: str | None = None,
    switching: Switching | None = None,
    link: float | None = None,
    isolated: Isolated | None = None,
) -> AsyncIterator[SpanningNetwork]:
    """Hold a network over one or more hosts, which comes to be as machines join, and remove it all.

    Args:
        contexts: Each host with its ledger.
        rooted: Whether bridges can be made on all of them; see :func:`offered_network`.
        peer_on: The name of the host that the peer is on; the first otherwise.
        switching: The switch that machines are plugged into; a bridge otherwise.
        link: The speed of the link between them and the peer, in bits per second; None: none.
        isolated: The isolated network at the machines' hypervisor; None: none.

    Raises:
        MachineFault: There are several hosts, and no bridges.
    """
    if not rooted and len(contexts) > 1:
        hosts = " and ".join(context.host.name for context in contexts)
        raise MachineFault(
            f"machines on {hosts} cannot be on one network without bridges",
            "let Tare be root on each of these hosts",
        )
    async with AsyncExitStack() as held:
        on, switch = peer_on or contexts[0].host.name, switching or Switching()
        yield SpanningNetwork(contexts, held, rooted, on, switch, link, isolated)


@asynccontextmanager
async def owned_network(context: Context, rooted: bool) -> AsyncIterator[Network]:
    """Hold a network on one host; see :func:`spanning_network`.

    Args:
        context: The host and the ledger.
        rooted: Whether a bridge can be made there; see :func:`offered_network`.
    """
    async with spanning_network([context], rooted) as network:
        yield network.on(context.host.name)
