"""Isolated networks between machines and a peer on the host, made for one visit and then removed.

A bridge without any way out connects the machines with a peer, which has a network namespace of
its own, so that whatever runs on the host itself (the bare arm) reaches it through the kernel's
network stack too, and not over the loopback. See docs/network.md.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import random
import secrets
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tare.errors import InputError, MachineFault
from tare.hosts import Host
from tare.hosts.interfaces import remove_network_part
from tare.hosts.ledger import Entry, Ledger
from tare.platforms.base import Capabilities, Context

Way = Literal["tap", "vif", "user", "veth", "bridge", "loopback"]

MTU = 1500
"""Of every network here: that of Ethernet (IEEE 802.3)."""

SERVED = (5201, 7100, 8080)
"""The ports that workloads serve in a machine; user-mode networks forward these alone."""

VARIABLE = "TARE_NET"
"""What tells an agent that is a process which network the host made for it."""

_IP_S = 20.0
_SUBNETS = ipaddress.ip_network("10.0.0.0/8")
_TRIES = 1000
_INSTALL = "apt-get install -y iproute2"


@dataclass(frozen=True)
class Link:
    """How one machine is connected.

    Args:
        way: What carries its packets.
        address: The machine's own address.
        prefix: The length of its network's prefix.
        interface: The tap's name, or that of the machine's network namespace; empty otherwise.
        peer: The address under which the machine reaches the peer; empty: it cannot.
        forwards: Where the peer reaches a port of the machine other than at its own address:
            port to the port at 127.0.0.1.
    """

    way: Way
    address: str
    prefix: int
    interface: str = ""
    peer: str = ""
    forwards: Mapping[int, int] = field(default_factory=dict)

    @property
    def mac(self) -> str:
        """The address of the machine's interface: as no other's on this network.

        Of the range that QEMU's own default is from, with the last three parts of the IPv4 address,
        which machines of one network do not share.
        """
        parts = ipaddress.IPv4Address(self.address).packed
        return "52:54:00:" + ":".join(f"{part:02x}" for part in parts[1:])

    @property
    def word(self) -> str:
        """What the agent is told: ``10.1.2.3/24,mtu=1500``."""
        mtu = "" if self.way == "loopback" else f",mtu={MTU}"
        return f"{self.address}/{self.prefix}{mtu}"

    @property
    def variable(self) -> dict[str, str]:
        """The same for the environment of an agent that is a process."""
        return {VARIABLE: self.word}

    def reach(self, port: int) -> tuple[str, int]:
        """Return the address and port under which the peer reaches a port of the machine."""
        if self.forwards:
            return "127.0.0.1", self.forwards[port]
        return self.address, port

    def qemu(self) -> str:
        """Return what QEMU's ``-netdev`` takes."""
        if self.way == "tap":
            return f"tap,id=net,ifname={self.interface},script=no,downscript=no"
        ports = "".join(
            f",hostfwd={kind}:127.0.0.1:{here}-{self.address}:{port}"
            for port, here in self.forwards.items()
            for kind in ("tcp", "udp")
        )
        # restrict: the guest reaches nothing by itself, neither the host nor what lies behind.
        return f"user,id=net,restrict=on{ports}"


class Network:
    """One visit's network; made by :func:`owned_network`."""

    def __init__(self, context: Context, held: AsyncExitStack, rooted: bool) -> None:
        self.rooted = rooted
        """Whether there is a bridge; otherwise only QEMU's user mode and the loopback."""
        self.links: dict[str, Link] = {}
        """The link of each machine, by its name."""
        self._host: Host = context.host
        self._ledger: Ledger = context.ledger
        self._held = held
        self._token = f"tare-{secrets.token_hex(3)}"
        self._subnet: ipaddress.IPv4Network | None = None
        self._made = asyncio.Lock()

    @property
    def around_peer(self) -> list[str]:
        """What comes before a command so that it runs where the peer is; empty: on the host."""
        if self._subnet is None:
            return []
        return ["nsenter", f"--net=/run/netns/{self._token}-peer"]

    async def tap(self, machine: str) -> Link:
        """Make a tap on the bridge for a machine; raises MachineFault."""
        subnet = await self._bridge()
        name = f"{self._token}{len(self.links):02d}"
        await self._own("link", name)
        await self._ip("tuntap", "add", "dev", name, "mode", "tap")
        await self._ip("link", "set", name, "mtu", str(MTU), "master", f"{self._token}b", "up")
        return self._keep(machine, Link("tap", self._next(subnet), 24, name, str(subnet[2])))

    async def vif(self, machine: str) -> Link:
        """Return the link of a domain of Xen, whose interfaces :meth:`join` the bridge later."""
        subnet = await self._bridge()
        return self._keep(machine, Link("vif", self._next(subnet), 24, "", str(subnet[2])))

    async def join(self, interface: str) -> None:
        """Put an interface of the host's on the bridge, with which it goes; raises MachineFault."""
        await self._quiet(interface)
        await self._ip("link", "set", interface, "mtu", str(MTU), "master", f"{self._token}b", "up")

    async def namespace(self, machine: str) -> Link:
        """Make a network namespace on the bridge for a container; raises MachineFault."""
        subnet = await self._bridge()
        number = f"{len(self.links):02d}"
        address = self._next(subnet)
        await self._namespace(f"{self._token}-{number}", f"{self._token}{number}", address)
        name = f"{self._token}-{number}"
        return self._keep(machine, Link("veth", address, 24, name, str(subnet[2])))

    async def here(self, machine: str) -> Link:
        """Return the link of what runs on the host itself: the bridge's own address."""
        if not self.rooted:
            return self._keep(machine, Link("loopback", "127.0.0.1", 8, "", "127.0.0.1"))
        subnet = await self._bridge()
        return self._keep(machine, Link("bridge", str(subnet[1]), 24, "", str(subnet[2])))

    def user(self, machine: str) -> Link:
        """Return a user-mode link: QEMU's own network stack, with the served ports forwarded."""
        # QEMU's own network, where the guest gets this address (qemu-options.hx, -netdev user).
        link = Link("user", "10.0.2.15", 24, forwards=_free_ports(SERVED))
        return self._keep(machine, link)

    def _keep(self, machine: str, link: Link) -> Link:
        self.links[machine] = link
        return link

    def _next(self, subnet: ipaddress.IPv4Network) -> str:
        return str(subnet[10 + len(self.links)])

    async def _bridge(self) -> ipaddress.IPv4Network:
        async with self._made:
            if self._subnet is None:
                subnet = await free_subnet(self._host)
                bridge = f"{self._token}b"
                await self._own("link", bridge)
                await self._ip("link", "add", bridge, "mtu", str(MTU), "type", "bridge")
                await self._quiet(bridge)
                await self._ip("addr", "add", f"{subnet[1]}/24", "dev", bridge)
                await self._ip("link", "set", bridge, "up")
                await self._namespace(f"{self._token}-peer", f"{self._token}p", str(subnet[2]))
                self._subnet = subnet
            return self._subnet

    async def _namespace(self, name: str, end: str, address: str) -> None:
        """Make a namespace with one interface, whose other end is on the bridge."""
        await self._own("netns", name)
        await self._ip("netns", "add", name)
        await self._own("link", end)
        inside = ("peer", "name", "eth0", "mtu", str(MTU), "netns", name)
        await self._ip("link", "add", end, "mtu", str(MTU), "type", "veth", *inside)
        await self._quiet(end)
        await self._ip("link", "set", end, "master", f"{self._token}b", "up")
        await self._ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
        for interface in ("lo", "eth0"):
            await self._ip("-n", name, "link", "set", interface, "up")

    async def _quiet(self, interface: str) -> None:
        # IPv6 would announce itself and look for neighbours while something is measured.
        path = f"/proc/sys/net/ipv6/conf/{interface}/disable_ipv6"
        if await self._host.exists(path):
            await self._host.write(path, b"1")

    async def _own(self, kind: Literal["link", "netns"], name: str) -> None:
        entry = self._ledger.record(kind, name=name)
        self._held.push_async_callback(self._remove, entry)

    async def _remove(self, entry: Entry) -> None:
        await remove_network_part(self._host, entry.kind, str(entry.details["name"]))
        self._ledger.done(entry)

    async def _ip(self, *words: str) -> None:
        done = await self._host.run(["ip", *words], timeout_s=_IP_S)
        if not done.ok:
            raise MachineFault(f"no network can be made: `ip {' '.join(words)}`: {done.words()}")


@asynccontextmanager
async def owned_network(context: Context, rooted: bool) -> AsyncIterator[Network]:
    """Hold a network, which comes to be as machines are connected to it, and remove it all.

    Args:
        context: The host and the ledger.
        rooted: Whether a bridge can be made there; see :func:`offered_network`.
    """
    async with AsyncExitStack() as held:
        yield Network(context, held, rooted)


async def free_subnet(host: Host) -> ipaddress.IPv4Network:
    """Choose a private /24 that no address and no route of the host overlaps.

    Raises:
        MachineFault: There is none, or the host does not tell its routes.
    """
    taken: list[ipaddress.IPv4Network] = []
    for words in (["route", "show", "table", "all"], ["addr", "show"]):
        asked = await host.run(["ip", "-4", "-j", *words], timeout_s=_IP_S)
        if not asked.ok:
            raise MachineFault(f"the host's networks cannot be seen: {asked.words()}")
        taken += networks_in(json.loads(asked.stdout or b"[]"))
    return choose_subnet(taken, random.Random(secrets.randbits(64)))


def networks_in(told: Any) -> list[ipaddress.IPv4Network]:
    """Return the networks in what ``ip -j`` told of routes or addresses, but the default route."""
    found: list[ipaddress.IPv4Network] = []
    for item in told if isinstance(told, list) else ():
        if not isinstance(item, dict):
            continue
        texts = [item.get("dst")]
        addresses = item.get("addr_info")
        for address in addresses if isinstance(addresses, list) else ():
            if isinstance(address, dict):
                texts.append(f"{address.get('local')}/{address.get('prefixlen')}")
        for text in texts:
            try:
                network = ipaddress.ip_network(str(text), strict=False)
            except ValueError:
                continue
            if isinstance(network, ipaddress.IPv4Network) and network.prefixlen > 0:
                found.append(network)
    return found


def choose_subnet(
    taken: Sequence[ipaddress.IPv4Network], order: random.Random
) -> ipaddress.IPv4Network:
    """Return a /24 of 10.0.0.0/8 that overlaps none of ``taken``; raises MachineFault."""
    for _ in range(_TRIES):
        base = int(_SUBNETS.network_address) + (order.randrange(1, 1 << 16) << 8)
        subnet = ipaddress.IPv4Network((base, 24))
        if not any(subnet.overlaps(other) for other in taken):
            return subnet
    raise MachineFault("no private network is free: the host's routes take all of 10.0.0.0/8")


def _free_ports(ports: Sequence[int]) -> dict[int, int]:
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


async def offered_network(context: Context, platform: str) -> tuple[frozenset[Way], str]:
    """Find out how machines of a platform can be connected here.

    Returns:
        The ways, and the reason where there is none that needs root.
    """
    if platform not in ("bare", "oci", "qemu", "xen"):
        return frozenset(), f"Tare makes no networks for machines of {platform} yet"
    host = context.host
    unprivileged: dict[str, frozenset[Way]] = {
        "bare": frozenset({"loopback"}),
        "oci": frozenset(),
        "qemu": frozenset({"user"}),
        "xen": frozenset(),
    }
    try:
        version = await host.run(["ip", "-V"], timeout_s=_IP_S)
        who = await host.run(["id", "-u"], timeout_s=_IP_S)
    except (InputError, MachineFault) as error:
        return unprivileged[platform], f"no bridge can be made: {error.message}; {_INSTALL}"
    if not version.ok:
        return unprivileged[platform], f"no bridge can be made without ip: {_INSTALL}"
    if who.stdout.strip() != b"0":
        return unprivileged[platform], "bridges and taps need root"
    if platform == "qemu" and not await host.exists("/dev/net/tun"):
        return unprivileged[platform], "taps need /dev/net/tun: modprobe tun"
    rooted: dict[str, frozenset[Way]] = {
        "bare": frozenset({"bridge", "loopback"}),
        "oci": frozenset({"veth"}),
        "qemu": frozenset({"tap", "user"}),
        "xen": frozenset({"vif"}),
    }
    return rooted[platform], ""


def with_network(capabilities: Capabilities, offered: frozenset[Way], reason: str) -> Capabilities:
    """Return capabilities with what was found out about networks."""
    notes = (*capabilities.notes, *((reason,) if reason else ()))
    return replace(capabilities, network=frozenset(offered), notes=notes)


def chosen_way(options: Any, offered: frozenset[str]) -> str:
    """Return the way that an arm's machines are connected, out of those on offer.

    Args:
        options: The arm's options; ``network`` is ``auto`` where a platform has no choice.
        offered: The platform's capability.

    Raises:
        InputError: The way that the arm asks for is not on offer, or none is.
    """
    wanted = getattr(options, "network", "auto")
    order = ("tap", "vif", "bridge", "veth", "user", "loopback")
    if wanted != "auto":
        if wanted in offered:
            return str(wanted)
        raise InputError(
            f"`network: {wanted}` is not on offer here",
            "write `network: auto`, or run as root",
        )
    for way in order:
        if way in offered:
            return way
    raise InputError("there is no way to connect its machines to a network here", "run as root")
