"""An isolated network of the engine: a logical network of its OVN provider, in one cluster.

The engine creates a vNIC profile of the network's name with it. A network that a user keeps for
Tare (`isolated-profile`) needs no right to create one.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

from tare.errors import InputError, TareError
from tare.platforms.ovirt.builder import VmBuilder
from tare.platforms.ovirt.engine import MARK, Engine
from tare.platforms.ovirt.options import OvirtOptions
from tare.platforms.ovirt.session import OvirtSession
from tare.platforms.vendors.resource import ServerResource
from tare.platforms.vendors.session import Missing

NO_PROVIDER = "the engine has no OVN network provider, which engine-setup installs"
INSTEAD = "or name a vNIC profile of a network that you keep for Tare by `isolated-profile`"


class OvirtNetworkResource(ServerResource[OvirtSession]):
    """A logical network of the OVN provider, with Tare's mark as its comment."""

    kind = "ovirt-network"
    busy = ("in use", "is being used", "locked")

    @property
    def words(self) -> str:
        """What it is, with its name."""
        return f"the network {self.name}"

    async def exists(self) -> bool:
        """Return whether it is there, with Tare's mark."""
        return bool(await self._own_networks())

    async def remove(self) -> None:
        """Remove it; its vNIC profile goes with it."""
        for network in await self._own_networks():
            remove = partial(_remove_network, network.id)
            with contextlib.suppress(Missing):
                await Engine(self.session).ask(remove)

    async def _own_networks(self) -> list[Any]:
        found = await Engine(self.session).ask(
            lambda api: api.networks_service().list(search=f"name={self.name}")
        )
        return [
            each for each in found if each.name == self.name and each.comment == MARK + self.name
        ]


def _remove_network(network: str, api: Any) -> None:
    api.networks_service().network_service(network).remove()


async def add_network(engine: Engine, builder: VmBuilder, name: str) -> None:
    """Create a network of the OVN provider, and attach it to the cluster of an arm.

    Args:
        engine: The engine.
        builder: Finds the cluster.
        name: The network's name.

    Raises:
        TareError: The engine refuses, or has no such provider.
    """
    types = engine.types
    cluster, provider = (await builder.locate()).cluster, await ovn_provider(engine)
    if provider is None:
        raise InputError(NO_PROVIDER, INSTEAD)
    wanted = types.Network(
        name=name,
        comment=MARK + name,
        data_center=types.DataCenter(id=cluster.data_center.id),
        external_provider=types.OpenStackNetworkProvider(id=provider.id),
    )
    added = await engine.ask(lambda api: api.networks_service().add(wanted))
    member = types.Network(id=added.id, required=False)

    def attach(api: Any) -> None:
        api.clusters_service().cluster_service(cluster.id).networks_service().add(member)

    await engine.ask(attach)


async def ovn_provider(engine: Engine) -> Any:
    """Return the engine's OVN provider; None: it has none."""
    found = await engine.ask(lambda api: list(api.openstack_network_providers_service().list()))
    return next(iter(found), None)


async def lacking_network(engine: Engine, options: OvirtOptions) -> str:
    """Return why no isolated network can be used; empty if one can.

    Whether the account may create networks shows only when it does.
    """
    if options.isolated_profile is not None:
        return ""
    try:
        found = await ovn_provider(engine)
    except TareError as error:
        return f"{error.message}; {INSTEAD}"
    return "" if found is not None else f"{NO_PROVIDER}; {INSTEAD}"
