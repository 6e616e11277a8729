"""An isolated network that Tare creates in a pool: without a PIF, it connects one host's VMs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tare.platforms.vendors.resource import ServerResource
from tare.platforms.xenserver.pool import OWNER, Pool
from tare.platforms.xenserver.session import XenSession

MTU = "1500"


class XenNetworkResource(ServerResource[XenSession]):
    """A network without a PIF, which has no way out of its host.

    The pool creates its bridge when the first VIF is plugged in, and removes it with the last VIF.
    """

    kind = "xenserver-network"
    # A VIF of a VM that was just switched off remains attached for a moment.
    busy = ("NETWORK_CONTAINS_VIF",)

    @property
    def words(self) -> str:
        """A phrase that names the network."""
        return f"the network {self.name}"

    async def create(self) -> None:
        """Create the network; raises if the account's role does not allow that."""
        await create_network(Pool(self.session), self.name)

    async def exists(self) -> bool:
        """Return whether the network exists."""
        return bool(await Pool(self.session).own("network", self.name))

    async def remove(self) -> None:
        """Remove the network; refused while a VIF is attached."""
        pool = Pool(self.session)
        for network in await pool.own("network", self.name):
            await pool.remove_network(network)


async def create_network(pool: Pool, name: str) -> str:
    """Create a network without a PIF, marked as Tare's, and return its reference."""
    record = {
        "name_label": name,
        "name_description": "an isolated network of Tare's, removed when it was measured",
        "MTU": MTU,
        "other_config": {OWNER: name},
        "bridge": "",
        "managed": True,
        "tags": [],
    }
    return str(await pool.ask(lambda api: api.network.create(record)))


def vif_record(
    vm: str, network: str, device: str, mac: str = "", rate: float | None = None
) -> Mapping[str, Any]:
    """Return the record for ``VIF.create``.

    Args:
        vm: The VM's reference.
        network: The network's reference.
        device: The card's position among the VM's cards, from 0.
        mac: The card's MAC address; empty: the pool chooses one.
        rate: The limit of what it sends, in bits per second; None: no limit.
    """
    # The unit is KiB per second.
    limit = {} if rate is None else {"kbps": str(round(rate / 8 / 1024))}
    return {
        "device": device,
        "network": network,
        "VM": vm,
        "MAC": mac,
        "MTU": MTU,
        "other_config": {},
        "qos_algorithm_type": "ratelimit" if limit else "",
        "qos_algorithm_params": limit,
    }
