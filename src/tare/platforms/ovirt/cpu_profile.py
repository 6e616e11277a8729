"""The cap of a VM: a CPU quality of service, and the CPU profile that refers to it.

A VM has no cap of its own. The CPU profiles of its cluster have qualities of service, and the
profile that the VM names caps it. The limit is a percentage of all CPUs of the VM's host; 100 means
no limit. VDSM's policy 04-cputune.policy spreads it over the VM's vCPUs.
"""

from __future__ import annotations

import contextlib
from typing import Any

from tare.platforms.ovirt.engine import Engine
from tare.platforms.ovirt.session import OvirtSession
from tare.platforms.vendors.resource import ServerResource
from tare.platforms.vendors.session import NoSuchObject


class OvirtProfileResource(ServerResource[OvirtSession]):
    """A CPU profile with its quality of service; both have the name of the VM that they cap."""

    kind = "ovirt-cpu-profile"
    # The VM has already been removed, but may still hold its profile for a moment.
    busy = ("in use",)

    @property
    def words(self) -> str:
        """A phrase that names the profile and its quality of service."""
        return f"the CPU profile {self.name} with its quality of service"

    async def exists(self) -> bool:
        """Return whether the profile or the quality of service exists."""
        return bool(await self._profiles() or await self._qualities())

    async def remove(self) -> None:
        """Remove the profile, then its quality of service."""
        engine = Engine(self.session)
        for profile in await self._profiles():
            with contextlib.suppress(NoSuchObject):
                await engine.ask(_removal_of_profile(profile.id))
        for quality in await self._qualities():
            with contextlib.suppress(NoSuchObject):
                await engine.ask(removal_of_quality(self._center, quality.id))

    @property
    def _center(self) -> str:
        return str(self.details["data_center"])

    async def _profiles(self) -> list[Any]:
        found = await Engine(self.session).ask(lambda api: api.cpu_profiles_service().list())
        return [each for each in found if each.name == self.name]

    async def _qualities(self) -> list[Any]:
        found = await Engine(self.session).ask(lambda api: qualities_of(api, self._center).list())
        return [each for each in found if each.name == self.name]


async def create_profile(engine: Engine, name: str, cluster: Any, percent: int) -> str:
    """Create a quality of service and its CPU profile, and return the profile's id.

    Args:
        engine: The engine.
        name: The name of both.
        cluster: The cluster of the profile.
        percent: The cap, in percent of all CPUs of a host.
    """
    types = engine.types
    quality = types.Qos(name=name, type=types.QosType.CPU, cpu_limit=percent)
    center = str(cluster.data_center.id)
    made = await engine.ask(lambda api: qualities_of(api, center).add(quality))
    profile = types.CpuProfile(
        name=name, cluster=types.Cluster(id=cluster.id), qos=types.Qos(id=made.id)
    )
    return str((await engine.ask(lambda api: api.cpu_profiles_service().add(profile))).id)


def qualities_of(api: Any, center: str) -> Any:
    """Return the service of a data center's qualities of service."""
    return api.data_centers_service().data_center_service(center).qoss_service()


def _removal_of_profile(profile: str) -> Any:
    return lambda api: api.cpu_profiles_service().profile_service(profile).remove()


def removal_of_quality(center: str, quality: str) -> Any:
    """Return the function that calls the API to remove a quality of service."""
    return lambda api: qualities_of(api, center).qos_service(quality).remove()
