"""The network that a machine has already, where an arm asks to be measured over it.

Tare makes nothing for it: no bridge, no namespace, no address. The machine is the one that an arm
of ``ssh`` or of a maker's hypervisor has anyway, and the peer is a process of the arm's host.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from tare.errors import InputError, MachineFault
from tare.hosts.address_pair import UNKNOWN, AddressPair
from tare.hosts.programs import install_command_for
from tare.platforms.statement import NetworkWays, Statement
from tare.programs import IP
from tare.study.model.platform_options import AUTO, GIVEN, PlatformOptions

if TYPE_CHECKING:
    from tare.hosts.contract import Host
    from tare.platforms.machine import MachineSpec
    from tare.platforms.network import MachineNetwork

ASK = "`network-way: given`"
LONGEST = 65_535
"""Bytes: no packet of IPv4 is longer (RFC 791), and a loopback says 65,536."""
WITHOUT = "leave `network-way` out; what needs a network is skipped then"
_ASK_S = 20.0


class GivenOptions(PlatformOptions):
    """Options of machines that have a network, so that Tare makes none."""

    network_way: Literal["given"] | None = Field(
        default=None,
        description="`given`: network workloads use the existing network between the machine and "
        "the arm's host (`tare help network`). Tare creates and isolates nothing there. Default: "
        "network workloads are skipped.",
    )

    @property
    def wanted_network(self) -> str:
        """The way to a network asked for."""
        return self.network_way or AUTO


def with_given(stated: Statement, options: GivenOptions, *, where: str, over: str) -> Statement:
    """Return a statement with the network that an arm asks for, or with what it can ask for.

    Args:
        stated: What the platform states else.
        options: The arm's options.
        where: Where Tare makes no network, in words.
        over: Over what the machine is measured when that is asked for, in words.
    """
    able = stated.capabilities
    if options.network_way == GIVEN:
        note = f"workloads over the network go over {over}: Tare isolates nothing there"
        able = replace(able, notes=(*able.notes, note))
        ways = NetworkWays(unprivileged=frozenset({GIVEN}))
        return replace(stated, capabilities=able, network=ways)
    why = f"Tare makes none {where}; {ASK} measures over {over}"
    note = f"workloads over the network are skipped: {why}"
    able = replace(able, no_network=why, notes=(*able.notes, note))
    return replace(stated, capabilities=able)


def require_direct(name: str, seen: AddressPair, inside: AddressPair) -> None:
    """Check that nothing between this computer and a machine translates addresses.

    Args:
        name: The machine's name.
        seen: The addresses of a connection to it, as seen here.
        inside: The same as the machine sees them; empty where it does not report them.

    Raises:
        MachineFault: An end has another address on the other side, or no IPv4 address.
    """
    if seen == UNKNOWN:
        raise MachineFault(
            f"{name} is reached through another computer, where nothing can be measured",
            f"let it be reached directly; or {WITHOUT}",
        )
    for address in (seen.there, seen.here):
        if not is_ipv4(address):
            raise MachineFault(
                f"{name}: {address} is not an IPv4 address, and workloads use IPv4 only", WITHOUT
            )
    problem = ""
    if inside.there and inside.there != seen.there:
        problem = f"its own address is {inside.there}, and here it is seen as {seen.there}"
    elif inside.here and inside.here != seen.here:
        problem = (
            f"this computer's own address is {seen.here}, and there it is seen as {inside.here}"
        )
    if problem:
        raise MachineFault(
            f"{name}: {problem}: something between translates addresses (NAT), and over that "
            "nothing is measured",
            f"give the machine a network without it, such as a bridge; or {WITHOUT}",
        )


def is_ipv4(text: str) -> bool:
    """Return whether a text is an IPv4 address."""
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True


def longest_packet(name: str, proof: Mapping[str, Any]) -> int:
    """Return the longest packet, in bytes, of the interface in a machine's proof.

    Raises:
        MachineFault: The proof has no interface, or lacks the address that was looked for.
    """
    about = proof.get("network")
    if not isinstance(about, Mapping):
        raise MachineFault(
            f"{name}: its agent does not report its network",
            "it is older than this Tare: make the live image again (`tare image live`), and a bare "
            "machine's medium (`tare image medium`)",
        )
    if about.get("error"):
        raise MachineFault(f"{name}: its network cannot be used: {about['error']}", WITHOUT)
    mtu = about.get("mtu")
    if not isinstance(mtu, int) or isinstance(mtu, bool) or mtu <= 0:
        raise MachineFault(f"{name}: its agent does not report the MTU of its network")
    return min(mtu, LONGEST)


def own_address(proof: Mapping[str, Any]) -> str:
    """Return the address that a machine reports to have dialled from; empty: it reports none."""
    about = proof.get("network")
    address = about.get("address") if isinstance(about, Mapping) else None
    return address if isinstance(address, str) else ""


@dataclass(frozen=True)
class Joining:
    """How a machine joins the network that it has, after its agent's hello.

    Args:
        network: The network that it joins.
        host: Where the peer is.
    """

    network: MachineNetwork
    host: Host

    async def join(
        self, name: str, seen: AddressPair, inside: AddressPair, proof: Mapping[str, Any]
    ) -> None:
        """Record how the peer and the machine reach each other.

        Args:
            name: The machine's name.
            seen: The addresses of the connection to it, as seen here.
            inside: The same as the machine sees them; empty where it does not report them.
            proof: Its agent's proof.

        Raises:
            MachineFault: Something between them translates addresses, or the agent does not report
                the interface.
        """
        require_direct(name, seen, inside)
        mtu = longest_packet(name, proof)
        here = seen.here if self.host.local else await source_towards(self.host, seen.there)
        self.network.given(name, seen.there, here, mtu)


def joining(host: Host, spec: MachineSpec) -> Joining | None:
    """Return how a machine is to join the network that it has; None: it is not to."""
    if spec.network is None or spec.way != GIVEN:
        return None
    return Joining(spec.network, host)


async def source_towards(host: Host, address: str) -> str:
    """Return the address by which a host speaks with another computer.

    Args:
        host: The host.
        address: An IPv4 address of the other computer.

    Raises:
        MachineFault: It has no route there, or does not report it.
    """
    try:
        route = await host.run(["ip", "-4", "-o", "route", "get", address], timeout_s=_ASK_S)
    except InputError as error:
        raise MachineFault(error.message, await install_command_for(host, IP)) from error
    words = route.stdout.decode(errors="replace").split()
    source = words[words.index("src") + 1] if "src" in words[:-1] else ""
    if not route.ok or not is_ipv4(source):
        raise MachineFault(f"{host.name} has no way to {address}: {route.words()}")
    return source
