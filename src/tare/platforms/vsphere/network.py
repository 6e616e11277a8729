"""An isolated network that Tare creates on an ESXi host: a switch without uplink, a port group.

Both are the host's own configuration (``HostNetworkSystem``), which needs the privilege
Host.Config.Network on the host.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tare.platforms.vendors.resource import ServerResource
from tare.platforms.vsphere.inventory import host_named
from tare.platforms.vsphere.options import VsphereOptions
from tare.platforms.vsphere.session import VsphereSession

PORTS, MTU, UNTAGGED = 128, 1500, 0
BURST_S, LEAST_BURST = 0.001, 10 * MTU
"""The burst after an idle time: as many seconds as for a host's link, but at least some packets."""


class VsphereSwitchResource(ServerResource[VsphereSession]):
    """A standard switch without an uplink, and its port group of the same name."""

    kind = "vsphere-switch"
    # A virtual machine that was just switched off still holds its port for a moment.
    busy = ("ResourceInUse",)

    def __init__(self, session: VsphereSession, details: Mapping[str, Any]) -> None:
        super().__init__(session, details)
        self._options = VsphereOptions.model_validate(details["options"])

    @property
    def words(self) -> str:
        """A phrase that names the switch and its server."""
        return f"the standard switch {self.name} with its port group from {self._options.address}"

    async def create(self) -> None:
        """Create both; raises if the account or the licence does not allow it."""
        await self.session.call(self._create)

    def _create(self, client: Any) -> None:
        host = self.session.vim.host
        policy = host.NetworkPolicy()
        if (rate := self.details.get("rate")) is not None:
            # The policy applies to traffic that VMs send; its units are bits per second and bytes.
            policy.shapingPolicy = host.NetworkPolicy.TrafficShapingPolicy(
                enabled=True,
                averageBandwidth=round(rate),
                peakBandwidth=round(rate),
                burstSize=max(round(rate / 8 * BURST_S), LEAST_BURST),
            )
        system = self._system(client)
        # Without a bridge there is no uplink.
        system.AddVirtualSwitch(
            vswitchName=self.name, spec=host.VirtualSwitch.Specification(numPorts=PORTS, mtu=MTU)
        )
        system.AddPortGroup(
            portgrp=host.PortGroup.Specification(
                name=self.name,
                vlanId=UNTAGGED,
                vswitchName=self.name,
                policy=policy,
            )
        )

    async def exists(self) -> bool:
        """Return whether the switch or the port group exists."""
        return await self.session.call(lambda client: any(self._found(client)))

    async def remove(self) -> None:
        """Remove both; refused while a virtual machine is connected."""
        await self.session.call(self._remove)

    def _remove(self, client: Any) -> None:
        has_switch, has_group = self._found(client)
        system = self._system(client)
        if has_group:
            system.RemovePortGroup(pgName=self.name)
        if has_switch:
            system.RemoveVirtualSwitch(vswitchName=self.name)

    def _found(self, client: Any) -> tuple[bool, bool]:
        """Return whether the switch exists, and whether the port group exists."""
        network = self._system(client).networkInfo
        return (
            any(each.name == self.name for each in network.vswitch or ()),
            any(each.spec.name == self.name for each in network.portgroup or ()),
        )

    def _system(self, client: Any) -> Any:
        return host_named(client, self.session.vim, self._options).configManager.networkSystem
