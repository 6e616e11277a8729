"""An isolated network of the engine: a logical network of its OVN provider, in one cluster.

The engine creates a vNIC profile of the same name with the network. No right to create networks is
needed if the user keeps a network for Tare (`isolated-profile`). If a scenario has a link with a
limited speed, the profile gets a network quality of service. It limits each card in both
directions: the engine passes it on to libvirt on every network (LibvirtVmXmlBuilder,
``bandwidth``).
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

from tare.errors import InputError, MachineFault, TareError
from tare.platforms.ovirt.builder import VmBuilder
from tare.platforms.ovirt.cpu_profile import qualities_of, removal_of_quality
from tare.platforms.ovirt.engine import MARK, Engine
from tare.platforms.ovirt.options import OvirtOptions
from tare.platforms.ovirt.session import OvirtSession
from tare.platforms.vendors.resource import ServerResource
from tare.platforms.vendors.session import NoSuchObject

NO_PROVIDER = "the engine has no OVN network provider, which engine-setup installs"
MEGABIT = 10**6
BURST_MB = 1
"""The unit of a limit in bit/s (the engine's NetworkQosMapper), and the smallest burst in MB."""
INSTEAD = "or name a vNIC profile of a network that you keep for Tare by `isolated-profile`"


class OvirtNetworkResource(ServerResource[OvirtSession]):
    """A logical network of the OVN provider, with Tare's mark as its comment.

    If its details contain ``limited``, a quality of service of the same name limits its cards.
    """

    kind = "ovirt-network"
    busy = ("in use", "is being used", "locked")

    @property
    def words(self) -> str:
        """A phrase that names the network."""
        return f"the network {self.name}"

    async def exists(self) -> bool:
        """Return whether the network or its quality of service exists with Tare's mark."""
        return bool(await self._own_networks() or await self._qualities())

    async def remove(self) -> None:
        """Remove the network, and its vNIC profile with it; then remove its quality of service."""
        engine = Engine(self.session)
        for network in await self._own_networks():
            with contextlib.suppress(NoSuchObject):
                await engine.ask(partial(_remove_network, network.id))
        for center, quality in await self._qualities():
            with contextlib.suppress(NoSuchObject):
                await engine.ask(removal_of_quality(center, quality))

    async def _own_networks(self) -> list[Any]:
        found = await Engine(self.session).ask(
            lambda api: api.networks_service().list(search=f"name={self.name}")
        )
        return [
            each for each in found if each.name == self.name and each.comment == MARK + self.name
        ]

    async def _qualities(self) -> list[tuple[str, str]]:
        """Return data center and id of each quality of service with its name and Tare's mark."""
        if "limited" not in self.details:
            return []
        engine = Engine(self.session)
        found = []
        for center in await engine.ask(lambda api: api.data_centers_service().list()):
            listed = await engine.ask(partial(_list_qualities, str(center.id)))
            found += [
                (str(center.id), str(each.id))
                for each in listed
                if each.name == self.name and each.description == MARK + self.name
            ]
        return found


def _remove_network(network: str, api: Any) -> None:
    api.networks_service().network_service(network).remove()


def _list_qualities(center: str, api: Any) -> list[Any]:
    return list(qualities_of(api, center).list())


async def add_network(
    engine: Engine, builder: VmBuilder, name: str, rate: float | None = None
) -> None:
    """Create a network of the OVN provider, and attach it to the cluster of an arm.

    Args:
        engine: The engine.
        builder: The builder that finds the cluster.
        name: The network's name.
        rate: The speed that each card is limited to, in bits per second; None: no limit.

    Raises:
        TareError: The engine refuses, has no such provider, or cannot set such a limit.
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
    if rate is not None:
        await _limit_cards(engine, str(cluster.data_center.id), str(added.id), name, rate)


async def _limit_cards(engine: Engine, center: str, network: str, name: str, rate: float) -> None:
    """Add a quality of service that limits both directions to a network's vNIC profile."""
    # A rate may carry the remainder of a conversion, such as 67000000.00000001.
    if round(rate) % MEGABIT:
        raise InputError(
            f"oVirt limits cards to whole Mbit/s, and the link has {rate / MEGABIT:g} Mbit/s",
            "write the scenario's `link` in whole Mbit/s",
        )
    types, most = engine.types, round(rate / MEGABIT)
    directions = {
        f"{direction}_{key}": value
        for direction in ("inbound", "outbound")
        for key, value in (("average", most), ("peak", most), ("burst", BURST_MB))
    }
    wanted = types.Qos(name=name, description=MARK + name, type=types.QosType.NETWORK, **directions)
    quality = await engine.ask(lambda api: qualities_of(api, center).add(wanted))

    def limit(api: Any) -> list[Any]:
        profiles = api.vnic_profiles_service()
        limited = types.VnicProfile(qos=types.Qos(id=quality.id))
        own = [each for each in profiles.list() if each.network and each.network.id == network]
        for profile in own:
            profiles.profile_service(profile.id).update(limited)
        return [profiles.profile_service(profile.id).get() for profile in own]

    profiles = await engine.ask(limit)
    if not profiles or any(not each.qos or each.qos.id != quality.id for each in profiles):
        raise MachineFault(f"the vNIC profile of {name} did not take the limit of its cards")


async def ovn_provider(engine: Engine) -> Any:
    """Return the engine's OVN provider; None: the engine has none."""
    found = await engine.ask(lambda api: list(api.openstack_network_providers_service().list()))
    return next(iter(found), None)


async def lacking_network(engine: Engine, options: OvirtOptions) -> str:
    """Return why no isolated network can be used; empty if one can be used.

    Whether the account may create networks shows only when it creates one.
    """
    if options.isolated_profile is not None:
        return ""
    try:
        found = await ovn_provider(engine)
    except TareError as error:
        return f"{error.message}; {INSTEAD}"
    return "" if found is not None else f"{NO_PROVIDER}; {INSTEAD}"
