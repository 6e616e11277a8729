"""What the machines of one host join a network with."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

from tare.errors import MachineFault
from tare.hosts import Host
from tare.platforms.linux.network.functions import next_taken
from tare.platforms.linux.network.joint import Bridge, JoinedBridges
from tare.platforms.linux.network.parts import Parts
from tare.platforms.linux.network.reach import DISCARD
from tare.platforms.linux.network.shaping import link_facts
from tare.platforms.linux.network.subnets import Addresses
from tare.platforms.linux.network.switches import OUTSIDE, NetworkSwitch
from tare.platforms.linux.network.tracking import Tracked, tracked
from tare.platforms.network import MTU, SERVED, Link, Way, limited_facts
from tare.study.model.platform_options import GIVEN, ISOLATED, Switching

_REACH_S = 60.0


@dataclass(frozen=True)
class BuiltNetwork:
    """A network that is there.

    Args:
        bridges: The bridge of each host, by the host's name.
        addresses: The address of each machine and of the peer.
        joint: What joins the bridges.
        peer: The peer's address.
        switches: What machines are plugged into, by the host's name.
        outside: What the peer is plugged into: the same, or another beyond a link.
        cable: The interface of the peer's host at which the link ends; empty: there is none.
    """

    bridges: Mapping[str, Bridge]
    addresses: Addresses
    joint: JoinedBridges
    peer: str
    switches: Mapping[str, NetworkSwitch]
    outside: NetworkSwitch
    cable: str = ""


@dataclass(frozen=True)
class Isolated:
    """An isolated network at a hypervisor.

    Args:
        name: Its name there.
        addresses: The address of each machine and of the peer.
    """

    name: str
    addresses: Addresses


@dataclass(frozen=True)
class Common:
    """What the hosts of one network share.

    Args:
        token: What the names of its parts begin with.
        rooted: Whether there are bridges.
        peer_on: The host that the peer is on.
        lay: Makes the network when it is first needed, and returns it.
        switching: The switch that was asked for.
        link: The speed of the link to the peers in bits per second; None: as fast as it goes.
        links: The link of each machine, by its name.
        numbers: The number of the next machine that gets an address.
        reserved: PCI addresses of the virtual functions that its machines have.
        choosing: Held while functions are chosen.
        isolated: The isolated network at the machines' hypervisor; None: there is none.
        interfaces: The name that each machine itself reports for its interface, as far as it does.
    """

    token: str
    rooted: bool
    peer_on: str
    lay: Callable[[], Awaitable[BuiltNetwork]]
    switching: Switching = field(default_factory=Switching)
    link: float | None = None
    links: dict[str, Link] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=count)
    reserved: set[str] = field(default_factory=set)
    choosing: asyncio.Lock = field(default_factory=asyncio.Lock)
    isolated: Isolated | None = None
    interfaces: dict[str, str] = field(default_factory=dict)


class Network:
    """A batch's network as the machines of one host join it.

    It comes to be as machines are connected; see :func:`owned_network` and
    :func:`spanning_network`.

    Args:
        host: The host's name.
        parts: Makes interfaces there.
        common: What it shares with the network's other hosts.
    """

    def __init__(self, host: str, parts: Parts, common: Common) -> None:
        self._name = host
        self._parts = parts
        self._common = common
        self._laid: BuiltNetwork | None = None
        self._joined = False
        self._outside: dict[str, tuple[str, list[str]]] = {}

    @property
    def rooted(self) -> bool:
        """Whether there is a bridge; otherwise only QEMU's user mode and the loopback."""
        return self._common.rooted

    @property
    def links(self) -> Mapping[str, Link]:
        """The link of each machine of the network, whatever its host, by its name."""
        return self._common.links

    def interface_of(self, machine: str) -> str:
        """Return the name of the interface that a machine itself has on this network.

        Raises:
            KeyError: It is not on the network.
        """
        way = self._common.links[machine].way
        if way == "bridge":
            # What runs on the host has no other: its counters are of its packets alone.
            return self._common.links[machine].interface
        if way in (GIVEN, ISOLATED):
            # It may be one of several, whose names depend on the product's order of devices.
            return self._common.interfaces.get(machine, "eth0")
        return "lo" if way == "loopback" else "eth0"

    @property
    def around_peer(self) -> list[str]:
        """What comes before a command so that it runs where the peer is; empty: on the host.

        Raises:
            ValueError: The network's peer is on another host.
        """
        if self._common.peer_on != self._name:
            raise ValueError(f"the peer is on {self._common.peer_on}, not on {self._name}")
        if self._laid is None:
            return []
        return namespace_prefix(f"{self._common.token}-peer")

    @property
    def peer_variable(self) -> Mapping[str, str]:
        """Variables that name the network to the peer's agent; empty if the peer is on the host."""
        if self._laid is None:
            return {}
        return Link("veth", self._laid.peer, 24, mtu=self._laid.joint.mtu).variable

    async def acquaint(self, host: Host, agent: Path, one: Link, machine: str) -> None:
        """Let what is in a namespace, the peer and a machine learn where each other are.

        So no ARP request is sent during a measurement. A missing answer is not reported here: it
        shows when the address is needed.
        """
        for address in filter(None, (one.peer, self._common.links[machine].address)):
            words = [str(agent), "reach", f"{address}:{DISCARD}", str(64)]
            await host.run([*namespace_prefix(one.interface), *words], timeout_s=_REACH_S)

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the machines of this host are plugged into, for a run's record."""
        laid, link = self._laid, self._common.link
        if laid is None:
            return {"link": limited_facts(link)} if self._common.isolated and link else {}
        return {
            **laid.switches[self._name].facts,
            **({} if link is None else {"link": link_facts(link)}),
        }

    async def tracked(self) -> Tracked | None:
        """Return what the switch tracks now; None where it tracks nothing. Raises MachineFault."""
        laid = self._laid
        if laid is None or not self._common.switching.conntrack:
            return None
        return await tracked(laid.switches[self._name].parts)

    async def tap(self, machine: str, queues: int = 1, user: int | None = None) -> Link:
        """Make a tap with so many pairs of queues for a machine that ``user`` runs.

        Raises:
            MachineFault: It cannot be made.
        """
        laid, number = await self._next()
        name = f"{self._common.token}{number:02d}"
        switch, address = laid.switches[self._name], laid.addresses.machine(number)
        await switch.parts.tap(name, laid.joint.mtu, queues, user)
        await switch.attach(name, address)
        return self._keep(machine, laid, "tap", address, name, switch.parts.within)

    async def macvtap(self, machine: str) -> Link:
        """Make a macvtap on an interface that is plugged in, for a machine; raises MachineFault."""
        laid, number = await self._next()
        switch, address = laid.switches[self._name], laid.addresses.machine(number)
        port, mtu = f"{self._common.token}{number:02d}", laid.joint.mtu
        lower, name = f"{port}l", f"{port}v"
        # The lower end stays in the host's namespace, where QEMU finds the macvtap by its number.
        there = ("netns", switch.parts.within) if switch.parts.within else ()
        await self._parts.interface(lower, mtu, "veth", "peer", "name", port, *there)
        await switch.parts.quiet(port)
        await switch.parts.ip("link", "set", port, "mtu", str(mtu))
        await switch.attach(port, address)
        await self._parts.ip("link", "set", lower, "up")
        link = self._keep(machine, laid, "macvtap", address, name)
        device = await self._parts.macvtap(name, lower, link.mac)
        self._common.links[machine] = link = replace(link, device=device)
        return link

    async def function(self, host: Host, machine: str, wanted: str | None) -> Link:
        """Choose a virtual function for a machine, and let the host route to it by another one.

        Args:
            host: This network's host.
            machine: The machine's name.
            wanted: The card or function, by its interface or PCI address; None: any.

        Raises:
            MachineFault: There are no two free functions, or none can be moved.
        """
        laid, number = await self._next()
        switch, address = laid.switches[self._name], laid.addresses.machine(number)
        async with self._common.choosing:
            pair = await next_taken(host, wanted, self._common.reserved)
            self._common.reserved.update((pair.own.address, pair.port.address))
        await self._parts.lend(pair.port.interface, switch.parts.within)
        await switch.attach(pair.port.interface, address)
        link = self._keep(machine, laid, "sriov", address, pair.port.interface)
        self._common.links[machine] = link = replace(link, function=pair.own)
        return link

    async def vif(self, machine: str) -> Link:
        """Return the link of a domain of Xen, whose interfaces :meth:`join` the switch later."""
        laid, number = await self._next()
        return self._keep(machine, laid, "vif", laid.addresses.machine(number))

    async def join(self, interface: str, machine: str = "") -> None:
        """Plug an interface of the host's in, with which it goes.

        Args:
            interface: Its name.
            machine: Whose packets it carries; empty: nobody's as yet.

        Raises:
            MachineFault: It cannot be plugged in.
        """
        laid = await self._lay()
        switch = laid.switches[self._name]
        await self._parts.quiet(interface)
        if switch.parts.within:
            await self._parts.ip("link", "set", interface, "netns", switch.parts.within)
        await switch.parts.ip("link", "set", interface, "mtu", str(laid.joint.mtu))
        await switch.attach(interface, self._common.links[machine].address if machine else "")

    async def namespace(self, machine: str) -> Link:
        """Make a network namespace on the switch for a container; raises MachineFault."""
        laid, number = await self._next()
        address = laid.addresses.machine(number)
        end = f"{self._common.token}{number:02d}"
        name = await self._outlet(laid.switches[self._name], laid, number, address, end)
        return self._keep(machine, laid, "veth", address, name)

    async def outside(self, machine: str) -> Link:
        """Make a network namespace where the peer is, for one more; raises MachineFault."""
        laid, number = await self._next()
        address = laid.addresses.machine(number)
        # Its name distinguishes it, in reports, from what carries a machine's own packets.
        end = f"{self._common.token}{number:02d}o"
        name = await self._outlet(laid.outside, laid, number, address, end)
        self._outside[machine] = (end, [address])
        await self._parts.settings(name, OUTSIDE)
        await self._beyond_link(laid, address)
        return self._keep(machine, laid, "veth", address, name)

    async def addresses(self, machine: str, count: int) -> tuple[str, ...]:
        """Return so many addresses of what is outside, which gets those that it lacks.

        A machine has one address, whatever ``count`` is.

        Raises:
            MachineFault: The network has no address left.
        """
        first = self._common.links[machine]
        if count == 1 or machine not in self._outside:
            return (first.address,)
        end, given = self._outside[machine]
        while len(given) < count:
            laid, number = await self._next()
            address = laid.addresses.machine(number)
            named = (f"{address}/{first.prefix}", "dev", "eth0")
            await self._parts.ip("-n", first.interface, "addr", "add", *named)
            await laid.outside.behind(end, address)
            await self._beyond_link(laid, address)
            given.append(address)
        return tuple(given[:count])

    async def here(self, machine: str) -> Link:
        """Return the link of what runs on the host itself: the host's own address."""
        if not self.rooted:
            link = Link("loopback", "127.0.0.1", 8, "", "127.0.0.1")
            self._common.links[machine] = link
            return link
        laid = await self._lay()
        own, switch = laid.bridges[self._name], laid.switches[self._name]
        if switch.parts.within and not self._joined:
            self._joined = True
            far, mtu = f"{own.name[:-1]}i", str(laid.joint.mtu)
            inside = ("peer", "name", far, "mtu", mtu, "netns", switch.parts.within)
            await self._parts.interface(own.name, laid.joint.mtu, "veth", *inside)
            await self._parts.ip("addr", "add", f"{own.address}/24", "dev", own.name)
            await self._parts.ip("link", "set", own.name, "up")
            await switch.attach(far, own.address)
        return self._keep(machine, laid, "bridge", own.address, own.name)

    def user(self, machine: str) -> Link:
        """Return a user-mode link: QEMU's own network stack, with the served ports forwarded."""
        # QEMU's own network, where the guest gets this address (qemu-options.hx, -netdev user).
        link = Link("user", "10.0.2.15", 24, forwards=free_ports(SERVED), mtu=MTU)
        self._common.links[machine] = link
        return link

    def given(self, machine: str, address: str, peer: str, mtu: int) -> Link:
        """Return the link of a machine over the network that it has already; nothing is made.

        Args:
            machine: Its name.
            address: Its own address, under which the peer reaches it.
            peer: The address under which it reaches the peer.
            mtu: The longest packet of its interface, in bytes.
        """
        link = Link("given", address, 32, peer=peer, mtu=mtu)
        self._common.links[machine] = link
        return link

    async def isolated(self, machine: str) -> Link:
        """Return the link of a machine on the batch's isolated network at a hypervisor.

        Its ``interface`` is the network's name there. A link's speed limits each machine's card.

        Raises:
            MachineFault: The subnet has no address left.
        """
        isolated = self._common.isolated
        if isolated is None:
            raise MachineFault(f"{machine}: this batch has no isolated network")
        address = isolated.addresses.machine(next(self._common.numbers))
        link = Link("isolated", address, 24, isolated.name, rate=self._common.link)
        self._common.links[machine] = link
        return link

    async def _outlet(
        self, switch: NetworkSwitch, laid: BuiltNetwork, number: int, address: str, end: str
    ) -> str:
        """Make a namespace that is plugged into a switch by ``end``, and return its name."""
        name = f"{self._common.token}-{number:02d}"
        await switch.parts.outlet(name, end, laid.joint.mtu, address)
        await switch.attach(end, address)
        return name

    async def _beyond_link(self, laid: BuiltNetwork, address: str) -> None:
        """Tell the machines' switch that an address is beyond the link, where there is one."""
        if laid.cable:
            await laid.switches[self._name].behind(laid.cable, address)

    def _keep(
        self,
        machine: str,
        laid: BuiltNetwork,
        way: Way,
        address: str,
        interface: str = "",
        within: str = "",
    ) -> Link:
        link = Link(way, address, 24, interface, laid.peer, mtu=laid.joint.mtu, within=within)
        self._common.links[machine] = link
        return link

    async def _lay(self) -> BuiltNetwork:
        self._laid = await self._common.lay()
        return self._laid

    async def _next(self) -> tuple[BuiltNetwork, int]:
        return await self._lay(), next(self._common.numbers)


def namespace_prefix(name: str) -> list[str]:
    """Return what comes before a command that is to run in a network namespace.

    With a ``/sys`` of its own, in which the agent sees the interfaces that are there.
    """
    return ["ip", "netns", "exec", name]


def free_ports(ports: Sequence[int]) -> dict[int, int]:
    """Return a port at 127.0.0.1 that is free now, for TCP, for each of ``ports``."""
    held: list[socket.socket] = []
    try:
        for _ in ports:
            one = socket.socket()
            held.append(one)
            one.bind(("127.0.0.1", 0))
        return {port: one.getsockname()[1] for port, one in zip(ports, held, strict=True)}
    finally:
        for one in held:
            one.close()
