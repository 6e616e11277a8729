"""Isolated networks between machines and a peer, made for one batch and then removed.

A bridge without any way out connects the machines of a host with a peer, which has a network
namespace of its own, so that whatever runs on the host itself (the bare arm) reaches it through
the kernel's network stack too, and not over the loopback. Where the machines are on several hosts,
each host has a bridge, and the bridges are joined. See `tare help network`.
"""

from tare.platforms.linux.network.batch_network import (
    SpanningNetwork,
    owned_network,
    spanning_network,
)
from tare.platforms.linux.network.host_network import Isolated, Network, namespace_prefix
from tare.platforms.linux.network.offered import (
    ALONE,
    UNMADE,
    chosen_way,
    offered_network,
    with_network,
)
from tare.platforms.linux.network.subnets import Addresses, choose_subnet, free_subnet, networks_in
from tare.platforms.linux.network.switches import lacking_switch
from tare.platforms.linux.network.tracking import Tracked, warnings
from tare.platforms.network import MTU, SERVED, VARIABLE, Link

__all__ = [
    "ALONE",
    "MTU",
    "SERVED",
    "UNMADE",
    "VARIABLE",
    "Addresses",
    "Isolated",
    "Link",
    "Network",
    "SpanningNetwork",
    "Tracked",
    "choose_subnet",
    "chosen_way",
    "free_subnet",
    "lacking_switch",
    "namespace_prefix",
    "networks_in",
    "offered_network",
    "owned_network",
    "spanning_network",
    "warnings",
    "with_network",
]
