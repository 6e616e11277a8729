"""A network of Tare's own on a host: a private virtual switch, which connects VMs only."""

from __future__ import annotations

from tare.platforms.hyperv.command import Cmdlet, chosen, cmdlet, named
from tare.platforms.hyperv.server import Server
from tare.platforms.hyperv.session import HypervSession
from tare.platforms.vendors.resource import ServerResource

PRIVATE = "Private"
"""The type of a switch that neither the host nor a network card is connected to (New-VMSwitch)."""


class HypervSwitchResource(ServerResource[HypervSession]):
    """A private virtual switch.

    Hyper-V lets several switches have the same name, so Tare's is marked by its notes too.
    """

    kind = "hyperv-switch"
    # A VM that was just switched off still uses it for a moment.
    busy = ("ObjectInUse",)

    @property
    def words(self) -> str:
        """What it is, with its name."""
        return f"the virtual switch {self.name}"

    async def create(self) -> None:
        """Create the switch; raises if the account has no right to."""
        await self.session.run(
            cmdlet("New-VMSwitch", Name=self.name, SwitchType=PRIVATE, Notes=notes_of(self.name)),
            chosen("Id"),
        )

    async def exists(self) -> bool:
        """Return whether the switch is there."""
        # An account without rights gets an empty list, which would mean nothing.
        await Server(self.session).host()
        return bool(await self.session.run(*self._own_switches(), chosen("Id")))

    async def remove(self) -> None:
        """Remove the switch; refused while a running VM is connected to it."""
        await self.session.run(
            *self._own_switches(), cmdlet("Remove-VMSwitch", Force=True, Confirm=False)
        )

    def _own_switches(self) -> tuple[Cmdlet, ...]:
        return (
            cmdlet("Get-VMSwitch"),
            named(self.name),
            named(notes_of(self.name), by="Notes"),
        )


def notes_of(name: str) -> str:
    """Return the notes by which a switch is Tare's."""
    return f"{name}: an isolated network of Tare's, removed when it was measured"


def adapter_address(mac: str) -> str:
    """Return a MAC address as ``Add-VMNetworkAdapter`` gets it: digits without separators."""
    return mac.replace(":", "").upper()
