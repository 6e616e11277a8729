"""Network interfaces and namespaces that Tare creates on a host."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from tare.errors import MachineFault
from tare.hosts.contract import Host
from tare.hosts.ledger.resources import Resource, undo_resource
from tare.hosts.ledger.undoing import PREFIX, NotOwn, Undo

_IP_S = 20.0


class Interface(Resource):
    """A network interface.

    Args:
        host: The host that has the interface.
        name: The interface's name.
        make: Creates the interface; None: it exists already.
    """

    kind = "link"
    # One end of a pair disappears together with the other end, a moment after the namespace.
    removal_s = 1.0
    folder: ClassVar[str] = "/sys/class/net"
    what: ClassVar[str] = "network interface"
    delete: ClassVar[tuple[str, ...]] = ("ip", "link", "delete")

    def __init__(
        self, host: Host, name: str, make: Callable[[], Awaitable[object]] | None = None
    ) -> None:
        self._host = host
        self._name = name
        self._make = make

    @property
    def details(self) -> Mapping[str, Any]:
        """The interface's name."""
        return {"name": self._name}

    @property
    def words(self) -> str:
        """A phrase that names the interface."""
        return f"{self.what} {self._name}"

    async def create(self) -> None:
        """Create the interface; raise MachineFault with the host's message."""
        assert self._make is not None
        await self._make()

    async def exists(self) -> bool:
        """Return whether the host has the interface."""
        return await self._host.exists(Path(self.folder) / self._name)

    async def remove(self) -> None:
        """Delete the interface; raise MachineFault with the host's message."""
        done = await self._host.run([*self.delete, self._name], timeout_s=_IP_S)
        if not done.ok and await self.exists():
            raise MachineFault(done.words())


class Namespace(Interface):
    """A network namespace with all its interfaces; arguments as for :class:`Interface`."""

    kind = "netns"
    folder = "/run/netns"
    what = "network namespace"
    delete = ("ip", "netns", "delete")


def _undo(part: type[Interface]) -> Undo:
    def find(host: Host, details: Mapping[str, Any]) -> Interface:
        name = str(details["name"])
        if not name.startswith(PREFIX) or "/" in name:
            raise NotOwn(f"its name does not start with {PREFIX}")
        return part(host, name)

    return undo_resource(find)


UNDOERS: Mapping[str, Undo] = {part.kind: _undo(part) for part in (Interface, Namespace)}
