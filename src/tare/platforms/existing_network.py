"""The existing network of a machine, if an arm asks for measurements over it.

Tare creates no bridge, no namespace and no address for it. The machine is an existing one, of an
``ssh`` arm or of a vendor's hypervisor. The peer is a process on the arm's host.
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
"""The longest IPv4 packet in bytes (RFC 791). A loopback interface reports 65,536."""
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
        """The requested network way."""
        return self.network_way or AUTO


def with_given(stated: Statement, options: GivenOptions, *, where: str, over: str) -> Statement:
    """Add to a statement the network that an arm asks for, or a note on how to ask for one.

    Args:
        stated: The platform's statement without it.
        options: The arm's options.
        where: The place where Tare makes no network, in words.
        over: The network that ``network-way: given`` measures over, in words.
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
        seen: The addresses of a connection to it, as this computer sees them.
        inside: The same addresses as the machine sees them; empty if it does not report them.

    Raises:
        MachineFault: The two sides see different addresses, or an address is not IPv4.
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
    """Check whether a text is an IPv4 address."""
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True


def longest_packet(name: str, proof: Mapping[str, Any]) -> int:
    """Return the longest packet, in bytes, of the interface in a machine's proof.

    Raises:
        MachineFault: The proof has no usable interface or no valid MTU.
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
    """Return the address from which the machine reports to have dialled; empty without one."""
    about = proof.get("network")
    address = about.get("address") if isinstance(about, Mapping) else None
    return address if isinstance(address, str) else ""


@dataclass(frozen=True)
class Joining:
    """The way in which a machine joins its existing network, after its agent's hello.

    Args:
        network: The network that it joins.
        host: The host on which the peer runs.
    """

    network: MachineNetwork
    host: Host

    async def join(
        self, name: str, seen: AddressPair, inside: AddressPair, proof: Mapping[str, Any]
    ) -> None:
        """Record how the peer and the machine reach each other.

        Args:
            name: The machine's name.
            seen: The addresses of the connection to it, as this computer sees them.
            inside: The same addresses as the machine sees them; empty if it does not report them.
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
    """Return how a machine joins its existing network; None if it is not to join one."""
    if spec.network is None or spec.way != GIVEN:
        return None
    return Joining(spec.network, host)


async def source_towards(host: Host, address: str) -> str:
    """Return the address from which a host reaches another computer.

    Args:
        host: The host.
        address: An IPv4 address of the other computer.

    Raises:
        MachineFault: The host has no route to the address, or does not report one.
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
