"""A network of Tare's own in a pool: without a PIF, so that it connects VMs of one host only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tare.platforms.vendors.resource import ServerResource
from tare.platforms.xenserver.pool import OWNER, Pool
from tare.platforms.xenserver.session import XenSession

MTU = "1500"


class XenNetworkResource(ServerResource[XenSession]):
    """A network without a PIF, which has no way out of its host.

    The pool creates its bridge when the first VIF is plugged in, and removes it with the last one.
    """

    kind = "xenserver-network"
    # A VIF of a VM that was just switched off is still attached for a moment.
    busy = ("NETWORK_CONTAINS_VIF",)

    @property
    def words(self) -> str:
        """What it is, with its name."""
        return f"the network {self.name}"

    async def create(self) -> None:
        """Create it; raises if the account's role does not allow that."""
        await create_network(Pool(self.session), self.name)

    async def exists(self) -> bool:
        """Return whether the network is there."""
        return bool(await Pool(self.session).own("network", self.name))

    async def remove(self) -> None:
        """Remove it; refused while a VIF is attached."""
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
        device: Its place among the VM's cards, from 0.
        mac: Its address; empty: the pool chooses one.
        rate: The most that it sends, in bits per second; None: no limit.
    """
    # In KiB per second.
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
