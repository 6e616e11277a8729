"""An isolated network at Proxmox VE: a zone of the type `simple`, and a VNet in it (SDN).

A simple zone has a bridge on each node, without a port and without an address. Proxmox limits the
names of zones and VNets to eight letters and digits (PVE/Network/SDN/Zones/Plugin.pm). So both are
called ``t`` and seven digits of the network's name, which is the VNet's alias.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from tare.errors import TareError
from tare.platforms.proxmox.node import Node
from tare.platforms.proxmox.session import ProxmoxSession
from tare.platforms.vendors.resource import ServerResource
from tare.platforms.vendors.session import NoSuchObject

ZONES = "/sdn/zones"
ALLOCATE, USE = "SDN.Allocate", "SDN.Use"
RIGHTS: Mapping[str, tuple[str, ...]] = {"/sdn": (ALLOCATE,), ZONES: (ALLOCATE, USE)}
"""The rights for creating a zone, using its VNet, and applying both (PVE/API2/Network/SDN.pm)."""


def vnet_of(name: str) -> str:
    """Return the name that a network's zone and VNet have in Proxmox."""
    return "t" + name.removeprefix("tare-")[:7]


class ProxmoxNetworkResource(ServerResource[ProxmoxSession]):
    """A simple zone with one VNet, whose alias is the network's name."""

    kind = "proxmox-network"
    busy = ("lock", "is used by", "still")
    removal_s = 60.0

    @property
    def words(self) -> str:
        """A phrase that names the VNet and the network."""
        return f"the VNet {self._vnet} of the network {self.name}"

    @property
    def _vnet(self) -> str:
        return vnet_of(self.name)

    async def create(self) -> None:
        """Create zone and VNet, and make every node apply them."""
        vnet = self._vnet
        await self._ask(lambda sdn: sdn.zones.post(zone=vnet, type="simple"))
        await self._ask(lambda sdn: sdn.vnets.post(vnet=vnet, zone=vnet, alias=self.name))
        await self._apply()

    async def exists(self) -> bool:
        """Return whether the VNet with this alias exists, or a zone of that name without a VNet."""
        vnets = await self._ask(lambda sdn: sdn.vnets.get())
        zones = await self._ask(lambda sdn: sdn.zones.get())
        mine = [each for each in vnets if each.get("zone") == self._vnet]
        if mine:
            return all(str(each.get("alias", "")) == self.name for each in mine)
        return any(each.get("zone") == self._vnet for each in zones)

    async def remove(self) -> None:
        """Remove VNet and zone, and make every node apply the removal."""
        with contextlib.suppress(NoSuchObject):
            await self._ask(lambda sdn: sdn.vnets(self._vnet).delete())
        with contextlib.suppress(NoSuchObject):
            await self._ask(lambda sdn: sdn.zones(self._vnet).delete())
        await self._apply()

    async def _ask(self, look: Callable[[Any], Any]) -> Any:
        return await self.session.call(lambda api: look(api.cluster.sdn))

    async def _apply(self) -> None:
        task = str(await self._ask(lambda sdn: sdn.put()) or "")
        if task:
            # UPID:NODE:…: the task runs on the node that was asked.
            node = Node(self.session, task.split(":")[1])
            await node.ended(task, f"apply {self.words}")


async def lacking_network(session: ProxmoxSession) -> str:
    """Return why the account cannot create a network; empty if it can create one.

    Args:
        session: An open session.
    """
    if session.is_root:
        return ""
    for path, rights in RIGHTS.items():

        def ask(api: Any, path: str = path) -> Any:
            return api.access.permissions.get(path=path)

        try:
            found = (await session.call(ask)).get(path, {})
        except TareError as error:
            return error.message
        if lacking := [right for right in rights if right not in found]:
            return f"the account lacks the right {lacking[0]} on {path} of {session.name}"
    return ""
