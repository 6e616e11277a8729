"""Isolated networks that Tare creates at a hypervisor, and the second NIC of each machine.

Contract for drivers (subclasses of :class:`~tare.platforms.vendors.platform.VendorPlatform`):

1. **State it.** In ``stated``, call ``isolating_network(stated, options)`` in place of
   ``dialling_network(stated, options)``. ``network-way: isolated`` is then the default;
   ``network-way: given`` remains available.
2. **Refuse it with a reason.** In ``look``, where the account lacks a right or the edition lacks
   the feature, return ``without_isolated(able, options, reason)`` as the capabilities. The planner
   skips workloads that need a network and shows the reason. Nothing is created during ``look``.
3. **Create it.** Override ``network_resources(session, options, name, rate)``. It returns the
   resources
   of the network in the order of their creation, each a
   :class:`~tare.platforms.vendors.resource.ServerResource` with a ``kind`` of its own. Their
   details are ``{**options.connection(), "name": name, …}``. The network is created once for each
   batch, before its machines, and removed after them in reverse order. ``name`` is ``tare-`` and
   eight hexadecimal digits (13 characters, which fits the name of a Linux interface). If the server
   accepts no such name, derive one and keep ``name`` in a description or an alias: ``exists`` must
   return False for a network that has another one there.
4. **Remove it after a kill.** Add the resource's class to ``undoers_at(…)`` of the platform, and a
   :class:`~tare.platforms.contract.Write` to ``writes``. List refusals that end by themselves, such
   as a port that a removed machine still holds, in ``ServerResource.busy``.
5. **Attach it.** In the driver's ``make``, if ``request.isolated`` is not None, the machine gets a
   second NIC: of the model that the arm's ``devices`` asks for, with the MAC
   ``request.isolated.mac``, on the network ``request.isolated.network``, found by that name. The
   first NIC, over which the agent dials back, does not change. If the server accepts MACs of one
   range only, set ``mac_prefix`` of the platform to three bytes of that range; the fourth byte is
   at most 3f, as vSphere requires of 00:50:56. Verify the NIC before power-on, like other settings.
6. **Limit it.** A scenario with a ``link`` of some speed sets ``request.isolated.rate``. If the API
   can limit what a card sends, or what it sends and receives, set ``limits_cards`` of the
   capabilities, and apply the rate to the second NIC or to the network. Otherwise the planner skips
   such scenarios; give the reason by ``no_limits``. Every machine on the network has this limit, so
   that products that limit only what a card sends limit both directions.

Everything else is common. The agent reads ``isolated`` (MAC, address with prefix length, MTU) from
TARE-CFG. It finds the NIC by its MAC, sets address and MTU, and reports it as ``network`` in its
proof. It never asks for a DHCP address on this NIC. Tare chooses a private /24 for each batch that
overlaps no route of the computer that drives the study, and gives out the addresses in it.

No process outside the hypervisor reaches an isolated network. So where a workload needs a peer or
an origin, the batch starts a machine for each, of the arm's shape, on that network and unpinned.
Simulators that run agents as processes must give each agent an interface with that MAC, or answer
for the agent: ``proof["network"]`` needs ``error: null``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tare.platforms.network import Link
from tare.platforms.statement import Capabilities, NetworkWays, Statement
from tare.platforms.vendors.offer import dialling_network
from tare.platforms.vendors.options import VendorOptions
from tare.study.model.platform_options import GIVEN, ISOLATED

MAC_PREFIX = "52:54:00"
"""The first three bytes of QEMU's own default MAC."""
NOTE = (
    "network workloads use an isolated network that Tare creates at the hypervisor and removes; "
    "client, server and origin are machines on it"
)

SIMULATED = (
    "loads over an isolated network were measured against a simulator only, where local agents "
    "played the machines; no real host has confirmed it"
)


@dataclass(frozen=True)
class IsolatedNic:
    """The second NIC of a machine.

    Args:
        network: The name of the network, as passed to ``network_resources``.
        mac: Its MAC, in lower case with colons.
        address: Its IPv4 address with the prefix length: ``10.1.2.3/24``.
        mtu: The longest packet, in bytes.
        rate: The speed in bits per second that the hypervisor limits it to; None: no limit.
    """

    network: str
    mac: str
    address: str
    mtu: int
    rate: float | None = None

    @property
    def configuration(self) -> dict[str, Any]:
        """The part of TARE-CFG that configures this NIC, for the agent."""
        wanted = {"mac": self.mac, "address": self.address, "mtu": self.mtu}
        return {"isolated": wanted}


def isolated_nic(link: Link, prefix: str = MAC_PREFIX) -> IsolatedNic:
    """Return the NIC of a machine's link.

    Args:
        link: A link of the way ``isolated``.
        prefix: The first three bytes of the MAC.
    """
    second, third, last = (int(part) for part in link.address.split(".")[1:])
    mac = f"{prefix}:{second & 0x3F:02x}:{third:02x}:{last:02x}"
    return IsolatedNic(link.interface, mac, f"{link.address}/{link.prefix}", link.mtu, link.rate)


def isolating_network(
    stated: Statement, options: VendorOptions, tried: str = SIMULATED
) -> Statement:
    """Return a statement with an isolated network, or with the given one if the arm asks for it.

    Args:
        stated: The platform's statement without a network.
        options: The arm's options.
        tried: A note on what has confirmed loads over such a network.
    """
    if options.network_way == GIVEN:
        return dialling_network(stated, options)
    able = stated.capabilities
    able = replace(able, notes=(*able.notes, NOTE, tried))
    return replace(
        stated, capabilities=able, network=NetworkWays(unprivileged=frozenset({ISOLATED}))
    )


def without_isolated(
    able: Capabilities, options: VendorOptions, reason: str, *, given: bool = True
) -> Capabilities:
    """Return capabilities without an isolated network.

    Args:
        able: The other capabilities of the platform.
        options: The arm's options; an arm over ``given`` is not affected.
        reason: Why Tare cannot create such a network there; empty: it can.
        given: Whether such machines could use the existing network instead.
    """
    if not reason or options.network_way == GIVEN:
        return able
    why = f"Tare cannot create an isolated one there: {reason}"
    why += "; `network-way: given` uses yours" if given else ""
    return replace(able, no_network=why, notes=(*able.notes, f"no network: {why}"))
