"""Whether an ESXi host is up: vCenter lists hosts that are off, too."""

from __future__ import annotations

from typing import Any

from tare.platforms.contract import Presence
from tare.platforms.vsphere.inventory import properties

CONNECTION, POWER = "runtime.connectionState", "runtime.powerState"
MAINTENANCE, SINCE = "runtime.inMaintenanceMode", "summary.runtime.bootTime"
CONNECTED, ON = "connected", "poweredOn"
STATES = {
    "disconnected": "is disconnected from vCenter",
    "notResponding": "does not answer vCenter",
    "standBy": "is in standby",
    "poweredOff": "is off",
}
"""What vSphere says of a host that is not up (HostSystemConnectionState, HostSystemPowerState)."""


def presence_of(client: Any, types: Any, host: Any) -> Presence:
    """Return whether a host is up and takes machines, and since when it runs.

    Args:
        client: The service instance.
        types: PyVmomi's module.
        host: The ESXi host.
    """
    told = properties(client, types, host, ("name", CONNECTION, POWER, MAINTENANCE, SINCE))
    name, since = told["name"], told.get(SINCE)
    for path, well in ((CONNECTION, CONNECTED), (POWER, ON)):
        state = str(told.get(path, well))
        if state != well:
            return Presence(absent=f"{name} {STATES.get(state, f'is {state}')}")
    if told.get(MAINTENANCE):
        return Presence(absent=f"{name} is in maintenance mode, and starts no machine")
    return Presence(since=None if since is None else since.timestamp())
