"""How one machine is connected to a network, and what it is told of that."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tare.platforms.linux.network.functions import Function

Way = Literal["tap", "macvtap", "sriov", "vif", "user", "veth", "bridge", "loopback", "given"]

MTU = 1500
"""Of every network on one host: that of Ethernet (IEEE 802.3)."""

SERVED = (5201, 7100, 8080)
"""The ports that workloads serve in a machine; user-mode networks forward these alone."""

SHARED = (
    "the network that the machine has: the path includes all that is between the two computers, "
    "and Tare keeps nobody else off it"
)
"""What a record says of a network that Tare did not make."""

TAP_DESCRIPTOR = 9
"""By which QEMU gets a macvtap, whose device it may not open itself; shells know no greater one."""

VARIABLE = "TARE_NET"
"""What tells an agent that is a process which network the host made for it."""


@dataclass(frozen=True)
class Link:
    """How one machine is connected.

    Args:
        way: What carries its packets.
        address: The machine's own address.
        prefix: The length of its network's prefix.
        interface: The tap's name, that of the machine's network namespace, or of the host's own
            interface; empty otherwise.
        peer: The address under which the machine reaches the peer; empty: it cannot.
        forwards: Where the peer reaches a port of the machine other than at its own address:
            port to the port at 127.0.0.1.
        mtu: The longest packet of the network, in bytes.
        within: The network namespace that the interface is in; empty: the host's own.
        device: The character device of a macvtap; empty otherwise.
        function: The virtual function that the machine gets; None otherwise.
    """

    way: Way
    address: str
    prefix: int
    interface: str = ""
    peer: str = ""
    forwards: Mapping[int, int] = field(default_factory=dict)
    mtu: int = MTU
    within: str = ""
    device: str = ""
    function: Function | None = None

    @property
    def around(self) -> list[str]:
        """What comes before a command that is to find the interface."""
        if self.device:
            opened = f'exec {TAP_DESCRIPTOR}<>"$1"; shift; exec "$@"'
            return ["sh", "-c", opened, "sh", self.device]
        return ["nsenter", f"--net=/run/netns/{self.within}"] if self.within else []

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
        mtu = "" if self.way == "loopback" else f",mtu={self.mtu}"
        return f"{self.address}/{self.prefix}{mtu}"

    @property
    def facts(self) -> dict[str, Any]:
        """What a record says of it beside way and address, where no network of Tare's does."""
        if self.way != "given":
            return {}
        return {"peer": self.peer, "mtu": self.mtu, "note": SHARED}

    @property
    def advice(self) -> str:
        """What to see to where nothing gets to the machine; empty: Tare made all of the way."""
        if self.way != "given":
            return ""
        ports = ", ".join(map(str, SERVED))
        return f"let TCP and UDP to the ports {ports} of {self.address} through from {self.peer}"

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
        if self.way == "macvtap":
            return f"tap,id=net,fd={TAP_DESCRIPTOR}"
        if self.way == "tap":
            return f"tap,id=net,ifname={self.interface},script=no,downscript=no"
        ports = "".join(
            f",hostfwd={kind}:127.0.0.1:{here}-{self.address}:{port}"
            for port, here in self.forwards.items()
            for kind in ("tcp", "udp")
        )
        # restrict: the guest reaches nothing by itself, neither the host nor what lies behind.
        return f"user,id=net,restrict=on{ports}"


def in_namespace(name: str) -> list[str]:
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
