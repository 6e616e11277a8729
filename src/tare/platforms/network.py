"""The network of a batch, as platforms connect their machines to it."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from tare.hosts.contract import Host

Way = Literal[
    "tap", "macvtap", "sriov", "vif", "user", "veth", "bridge", "loopback", "given", "isolated"
]

MTU = 1500
"""The MTU of every network on one host: that of Ethernet (IEEE 802.3)."""

SERVED = (5201, 7100, 8080)
"""The ports on which workloads listen in a machine; user-mode networks forward only these."""

SHARED = (
    "the network that the machine has: the path includes all that is between the two computers, "
    "and Tare keeps nobody else off it"
)
"""The note that records carry for a network that Tare did not make."""

PCI_ADDRESS = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
"""The form of a PCI function's address in sysfs: domain, bus, device and function, such as
``0000:03:00.0``."""

VARIABLE = "TARE_NET"
"""The environment variable that gives an agent that runs as a process of the host its network."""


class VirtualFunction(Protocol):
    """A virtual function of a network card (SR-IOV)."""

    @property
    def address(self) -> str:
        """Its PCI address."""
        ...

    @property
    def driver(self) -> str:
        """The driver to which it was bound before; empty: none."""
        ...

    @property
    def group(self) -> str:
        """The number of its IOMMU group."""
        ...


@dataclass(frozen=True)
class Link:
    """The connection of one machine to a network.

    Args:
        way: The kind of connection.
        address: The machine's own address.
        prefix: The length of its network's prefix.
        interface: The name of the tap, of the machine's network namespace, of the host's own
            interface, or of the isolated network on a hypervisor; empty otherwise.
        peer: The address under which the machine reaches the peer; empty: it cannot.
        forwards: Maps a port of the machine to the port at 127.0.0.1 where the peer reaches it;
            empty: the peer uses the machine's own address.
        mtu: The MTU of the network, in bytes.
        within: The network namespace that contains the interface; empty: the host's own.
        device: The character device of a macvtap; empty otherwise.
        function: The virtual function that the machine gets; None otherwise.
        rate: The hypervisor's speed limit for the machine's card, in bits per second; None: no
            limit.
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
    function: VirtualFunction | None = None
    rate: float | None = None

    @property
    def mac(self) -> str:
        """The MAC address of the machine's interface, unique on this network.

        It starts with the prefix of QEMU's own default. The last three bytes of the IPv4 address,
        which machines of one network do not share, follow.
        """
        parts = ipaddress.IPv4Address(self.address).packed
        return "52:54:00:" + ":".join(f"{part:02x}" for part in parts[1:])

    @property
    def word(self) -> str:
        """The text that the agent gets, such as ``10.1.2.3/24,mtu=1500``."""
        mtu = "" if self.way == "loopback" else f",mtu={self.mtu}"
        return f"{self.address}/{self.prefix}{mtu}"

    @property
    def facts(self) -> dict[str, Any]:
        """The facts that are recorded in addition to way and address."""
        if self.rate is not None:
            return {"link": limited_facts(self.rate)}
        if self.way != "given":
            return {}
        return {"peer": self.peer, "mtu": self.mtu, "note": SHARED}

    @property
    def advice(self) -> str:
        """What to check if nothing reaches the machine; empty: Tare made the whole path."""
        if self.way != "given":
            return ""
        ports = ", ".join(map(str, SERVED))
        return f"let TCP and UDP to the ports {ports} of {self.address} through from {self.peer}"

    @property
    def variable(self) -> dict[str, str]:
        """The environment variable with :attr:`word`, for an agent that is a process."""
        return {VARIABLE: self.word}

    def reach(self, port: int) -> tuple[str, int]:
        """Return the address and port under which the peer reaches a port of the machine."""
        if self.forwards:
            return "127.0.0.1", self.forwards[port]
        return self.address, port


def limited_facts(rate: float) -> dict[str, Any]:
    """Return the record of a link whose speed the hypervisor limits to ``rate`` bits per second."""
    return {"bits_per_s": rate, "by": "hypervisor"}


class MachineNetwork(Protocol):
    """The network of a batch, as the machines of one host join it.

    A platform calls the method for its machine's network way, once for each machine. It removes
    nothing: everything is removed with the batch. The methods raise
    :class:`~tare.errors.MachineFault` if the host refuses.
    """

    @property
    def links(self) -> Mapping[str, Link]:
        """The link of each machine of the network, whatever its host, by its name."""
        ...

    async def tap(self, machine: str, queues: int = 1, user: int | None = None) -> Link:
        """Make a tap with ``queues`` pairs of queues, for a process of the user id ``user``."""
        ...

    async def macvtap(self, machine: str) -> Link:
        """Make a macvtap."""
        ...

    async def function(self, host: Host, machine: str, wanted: str | None) -> Link:
        """Choose a virtual function, of the card or function ``wanted``; None: any."""
        ...

    async def vif(self, machine: str) -> Link:
        """Return the link of a Xen domain, whose interface :meth:`join` connects later."""
        ...

    async def join(self, interface: str, machine: str = "") -> None:
        """Connect an interface of the host that the hypervisor made."""
        ...

    async def namespace(self, machine: str) -> Link:
        """Make a network namespace with an interface, for a container or a process."""
        ...

    async def here(self, machine: str) -> Link:
        """Return the link of a machine that runs on the host itself, with the host's address."""
        ...

    def user(self, machine: str) -> Link:
        """Return a link through QEMU's user-mode network."""
        ...

    def given(self, machine: str, address: str, peer: str, mtu: int) -> Link:
        """Return the link over the machine's existing network."""
        ...

    async def isolated(self, machine: str) -> Link:
        """Return the link, with an address, over the batch's isolated network on the hypervisor."""
        ...
