"""What the machines of one host join a network with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count

from tare.platforms.linux.network.joint import Bridge, Joint
from tare.platforms.linux.network.link import MTU, SERVED, Link, Way, free_ports
from tare.platforms.linux.network.parts import Parts
from tare.platforms.linux.network.subnets import Addresses


@dataclass(frozen=True)
class Laid:
    """A network that is there.

    Args:
        bridges: The bridge of each host, by the host's name.
        addresses: Who has which address.
        joint: What joins the bridges.
        peer: The peer's address.
    """

    bridges: Mapping[str, Bridge]
    addresses: Addresses
    joint: Joint
    peer: str


@dataclass(frozen=True)
class Common:
    """What the hosts of one network share.

    Args:
        token: What the names of its parts begin with.
        rooted: Whether there are bridges.
        peer_on: The host that the peer is on.
        lay: Makes the network when it is first needed, and returns it.
        links: The link of each machine, by its name.
        numbers: The number of the next machine that gets an address.
    """

    token: str
    rooted: bool
    peer_on: str
    lay: Callable[[], Awaitable[Laid]]
    links: dict[str, Link] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=count)


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
        self._laid: Laid | None = None

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
            # What runs on the host has no other: the bridge's counters are of its packets alone.
            return self._laid.bridges[self._name].name if self._laid else ""
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
        return ["nsenter", f"--net=/run/netns/{self._common.token}-peer"]

    async def tap(self, machine: str, queues: int = 1, user: int | None = None) -> Link:
        """Make a tap with so many pairs of queues for a machine that ``user`` runs.

        Raises:
            MachineFault: It cannot be made.
        """
        laid, number = await self._next()
        name = f"{self._common.token}{number:02d}"
        bridge = laid.bridges[self._name].name
        await self._parts.tap(name, laid.joint.mtu, bridge, queues, user)
        return self._keep(machine, laid, "tap", laid.addresses.machine(number), name)

    async def vif(self, machine: str) -> Link:
        """Return the link of a domain of Xen, whose interfaces :meth:`join` the bridge later."""
        laid, number = await self._next()
        return self._keep(machine, laid, "vif", laid.addresses.machine(number))

    async def join(self, interface: str) -> None:
        """Put an interface of the host's on the bridge, with which it goes; raises MachineFault."""
        laid = await self._lay()
        await self._parts.quiet(interface)
        onto = ("master", laid.bridges[self._name].name)
        await self._parts.ip("link", "set", interface, "mtu", str(laid.joint.mtu), *onto, "up")

    async def namespace(self, machine: str) -> Link:
        """Make a network namespace on the bridge for a container; raises MachineFault."""
        laid, number = await self._next()
        token, address = self._common.token, laid.addresses.machine(number)
        name, end = f"{token}-{number:02d}", f"{token}{number:02d}"
        bridge = laid.bridges[self._name].name
        await self._parts.namespace(name, end, laid.joint.mtu, bridge, address)
        return self._keep(machine, laid, "veth", address, name)

    async def here(self, machine: str) -> Link:
        """Return the link of what runs on the host itself: the bridge's own address."""
        if not self.rooted:
            link = Link("loopback", "127.0.0.1", 8, "", "127.0.0.1")
            self._common.links[machine] = link
            return link
        laid = await self._lay()
        return self._keep(machine, laid, "bridge", laid.bridges[self._name].address)

    def user(self, machine: str) -> Link:
        """Return a user-mode link: QEMU's own network stack, with the served ports forwarded."""
        # QEMU's own network, where the guest gets this address (qemu-options.hx, -netdev user).
        link = Link("user", "10.0.2.15", 24, forwards=free_ports(SERVED), mtu=MTU)
        self._common.links[machine] = link
        return link

    def _keep(self, machine: str, laid: Laid, way: Way, address: str, interface: str = "") -> Link:
        link = Link(way, address, 24, interface, laid.peer, mtu=laid.joint.mtu)
        self._common.links[machine] = link
        return link

    async def _lay(self) -> Laid:
        self._laid = await self._common.lay()
        return self._laid

    async def _next(self) -> tuple[Laid, int]:
        return await self._lay(), next(self._common.numbers)
