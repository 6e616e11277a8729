"""Resources at a vendor's server, such as a VM: how they are created, removed and retried."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar

from tare.errors import MachineFault
from tare.hosts.contract import Host
from tare.hosts.ledger.ledger import Entry
from tare.hosts.ledger.undoing import Undo, require_own
from tare.platforms.contract import Resource, undo_resource
from tare.platforms.vendors.session import Session, opened

S = TypeVar("S", bound=Session[Any])


class ServerResource(Resource, Generic[S]):
    """Something that Tare creates at a server for one machine, and that outlives a reboot.

    Args:
        session: An open session.
        details: The details that the ledger records: how to reach the server and find the resource.
        build: Creates the resource; None: it exists already, as for ``tare clean``.
    """

    busy: ClassVar[tuple[str, ...]] = ()
    """Words in refusals that end by themselves; after such a refusal, removal is tried again."""
    removal_s = 30.0

    def __init__(
        self,
        session: S,
        details: Mapping[str, Any],
        build: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self.session = session
        self.name = self.name_in(details)
        self._details = details
        self._build = build

    @classmethod
    def name_in(cls, details: Mapping[str, Any]) -> str:
        """Return the resource's name at the server, which begins with ``tare-``."""
        return str(details["name"])

    @property
    def details(self) -> Mapping[str, Any]:
        """The server's address and the resource's identity there, for the ledger."""
        return self._details

    @property
    def words(self) -> str:
        """A phrase that names the resource."""
        return f"the VM {self.name}"

    @property
    def ends_with_boot(self) -> bool:
        """Whether a reboot of its host removes the resource: never."""
        return False

    async def create(self) -> None:
        """Create the resource; raises as the driver's builder does."""
        if self._build is None:
            raise MachineFault(f"{self.words} is only removed here")
        await self._build()

    def passes(self, fault: MachineFault) -> bool:
        """Return whether the refusal contains one of the words in :attr:`busy`."""
        return any(word in fault.message for word in self.busy)


def undo_at(
    login: Callable[[Host, Mapping[str, Any]], AbstractAsyncContextManager[S]],
    resource: type[ServerResource[S]],
) -> Undo:
    """Return the function that undoes the ledger's entries of a resource.

    Args:
        login: Opens a session, given the host of the run and an entry's details.
        resource: The resource's class.
    """

    async def undo(host: Host, entry: Entry) -> str:
        require_own(resource.name_in(entry.details))
        async with login(host, entry.details) as session:
            return await undo_resource(lambda _, details: resource(session, details))(host, entry)

    return undo


def undoers_at(
    session_type: Callable[[Mapping[str, Any]], S], *resources: type[ServerResource[S]]
) -> Mapping[str, Undo]:
    """Return functions that undo the ledger's entries of resources at a server, by kind.

    Args:
        session_type: Creates a session from an entry's details.
        resources: The resources' classes.
    """

    def login(_: Host, details: Mapping[str, Any]) -> AbstractAsyncContextManager[S]:
        return opened(session_type(details))

    return MappingProxyType({each.kind: undo_at(login, each) for each in resources})
