"""An isolated network that Tare creates on a host: a private switch, which connects only VMs."""

from __future__ import annotations

from tare.platforms.hyperv.command import Cmdlet, chosen, cmdlet, named
from tare.platforms.hyperv.server import Server
from tare.platforms.hyperv.session import HypervSession
from tare.platforms.vendors.resource import ServerResource

PRIVATE = "Private"
"""The type of a switch to which neither the host nor a network card is connected (New-VMSwitch)."""


class HypervSwitchResource(ServerResource[HypervSession]):
    """A private virtual switch.

    Hyper-V lets several switches have the same name, so Tare also marks its own by their notes.
    """

    kind = "hyperv-switch"
    # A VM that was just switched off still uses the switch for a moment.
    busy = ("ObjectInUse",)

    @property
    def words(self) -> str:
        """A phrase that names the switch."""
        return f"the virtual switch {self.name}"

    async def create(self) -> None:
        """Create the switch; raises if the account lacks the right."""
        await self.session.run(
            cmdlet("New-VMSwitch", Name=self.name, SwitchType=PRIVATE, Notes=notes_of(self.name)),
            chosen("Id"),
        )

    async def exists(self) -> bool:
        """Return whether the switch exists."""
        # An account without rights gets an empty list, which would not prove that the switch is
        # missing.
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
    """Return the notes that mark a switch as Tare's."""
    return f"{name}: an isolated network of Tare's, removed when it was measured"


def adapter_address(mac: str) -> str:
    """Convert a MAC address to the form for ``Add-VMNetworkAdapter``: digits without separators."""
    return mac.replace(":", "").upper()
