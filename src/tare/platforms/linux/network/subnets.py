"""Subnets that clash with nothing on their hosts, and the addresses given out in one."""

from __future__ import annotations

import ipaddress
import json
import random
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tare.errors import MachineFault
from tare.hosts import Host

_ASK_S = 20.0
_SUBNETS = ipaddress.ip_network("10.0.0.0/8")
_TRIES = 1000
_FIRST = 10
"""The last part of the first machine's address, with up to four hosts."""
_LAST = 254


async def free_subnet(hosts: Sequence[Host]) -> ipaddress.IPv4Network:
    """Choose a private /24 that no address and no route of any of the hosts overlaps.

    Raises:
        MachineFault: There is none, or a host does not list its routes.
    """
    taken: list[ipaddress.IPv4Network] = []
    for host in hosts:
        for words in (["route", "show", "table", "all"], ["addr", "show"]):
            asked = await host.run(["ip", "-4", "-j", *words], timeout_s=_ASK_S)
            if not asked.ok:
                raise MachineFault(f"the host's networks cannot be seen: {asked.words()}")
            taken += networks_in(json.loads(asked.stdout or b"[]"))
    return choose_subnet(taken, random.Random(secrets.randbits(64)))


def networks_in(listed: Any) -> list[ipaddress.IPv4Network]:
    """Return the networks in the routes or addresses of ``ip -j``, except the default route."""
    found: list[ipaddress.IPv4Network] = []
    for item in listed if isinstance(listed, list) else ():
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


@dataclass(frozen=True)
class Addresses:
    """The addresses of a subnet and their owners: no two have the same.

    Args:
        subnet: A /24.
        hosts: How many hosts the network is on.
    """

    subnet: ipaddress.IPv4Network
    hosts: int = 1

    def bridge(self, host: int) -> str:
        """Return the address of a host's bridge; hosts count from 0."""
        return str(self.subnet[1 + 2 * host])

    def peer(self, host: int) -> str:
        """Return the address of a peer on a host."""
        return str(self.subnet[2 + 2 * host])

    @property
    def router(self) -> str:
        """Return the address of a router, which a network on one host may have."""
        return str(self.subnet[_FIRST - 1])

    def machine(self, number: int) -> str:
        """Return the address of a machine; they count from 0 over all hosts.

        Raises:
            MachineFault: The subnet has no more.
        """
        last = max(_FIRST, 1 + 2 * self.hosts) + number
        if last > _LAST:
            raise MachineFault(
                f"the network {self.subnet} has no address left for one more machine"
            )
        return str(self.subnet[last])
