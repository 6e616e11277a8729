"""Resources that Tare creates on a host or a server: recorded before they exist, and removed."""

from __future__ import annotations

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, ClassVar, TypeVar

from tare.errors import MachineFault, TareError
from tare.hosts.contract import Host
from tare.hosts.ledger.ledger import Entry, Ledger
from tare.hosts.ledger.undoing import Undo

_LOOK_S = 0.2


class Resource(ABC):
    """Something that Tare creates and removes: a domain, a control group, a loop device, a VM.

    An object knows where it is (its host, or its open session with a server) and its name, so that
    the code that creates it and ``tare clean``, which only has the ledger's entry, remove it in the
    same way. :func:`created` records, creates and removes it; :func:`remove_resource` waits until
    it is gone.
    """

    kind: ClassVar[str]
    """The kind of the resource's entries in the ledger."""
    removal_s: ClassVar[float] = 0.0
    """Seconds for which the resource may still exist after its removal, or refuse to be removed."""

    @property
    @abstractmethod
    def details(self) -> Mapping[str, Any]:
        """The details for the ledger: plain JSON with which the resource can be found and removed.

        Details that are known only after creation, such as a number, are added then.
        """

    @property
    @abstractmethod
    def words(self) -> str:
        """The resource's description, such as ``control group /sys/fs/cgroup/tare-x``."""

    @property
    def ends_with_boot(self) -> bool:
        """Whether a reboot of its host removes the resource."""
        return True

    @abstractmethod
    async def create(self) -> None:
        """Create the resource.

        Raises:
            TareError: The host or server refuses; parts that were created are removed afterwards.
        """

    @abstractmethod
    async def exists(self) -> bool:
        """Return whether the resource, or a part of it, exists."""

    @abstractmethod
    async def remove(self) -> None:
        """Request the resource's removal, without waiting until it is gone.

        Called only if the resource exists, and again after a refusal that :meth:`passes` accepts.

        Raises:
            TareError: The host or server refuses.
        """

    def passes(self, fault: MachineFault) -> bool:
        """Return whether a refused removal is temporary, such as because of another task's lock."""
        return False

    async def still_there(self) -> MachineFault:
        """Return the fault of a resource that exists after :attr:`removal_s`."""
        return MachineFault(f"{self.words} still exists after its removal")

    @property
    def removed(self) -> str:
        """The sentence that ``tare clean`` prints after the resource's removal."""
        return f"Removed {self.words}."


R = TypeVar("R", bound=Resource)


async def remove_resource(resource: Resource) -> bool:
    """Remove a resource, and wait until it is gone.

    Returns:
        Whether it existed.

    Raises:
        TareError: The resource cannot be removed, or still exists after :attr:`Resource.removal_s`.
    """
    if not await resource.exists():
        return False
    deadline = time.monotonic() + resource.removal_s
    is_asked = False
    while True:
        try:
            if not is_asked:
                await resource.remove()
                is_asked = True
        except MachineFault as fault:
            if not resource.passes(fault) or time.monotonic() > deadline:
                raise
        if not await resource.exists():
            return True
        if time.monotonic() > deadline:
            raise await resource.still_there()
        await asyncio.sleep(_LOOK_S)


@asynccontextmanager
async def created(ledger: Ledger, resource: R) -> AsyncIterator[R]:
    """Create a resource, recorded in the ledger first, and remove it at the end.

    Yields:
        The resource.

    Raises:
        TareError: The resource cannot be created; or it cannot be removed, and its entry stays
            open.
    """
    entry = ledger.record(resource.kind, **resource.details)
    try:
        await resource.create()
        if resource.details != entry.details:
            entry = ledger.amend(entry, **resource.details)
    except BaseException:
        with contextlib.suppress(TareError, OSError):
            # If it cannot be removed now, it stays in the ledger; the original error is raised.
            await remove_resource(resource)
            ledger.done(entry)
        raise
    try:
        yield resource
    finally:
        await remove_resource(resource)
        ledger.done(entry)


def undo_resource(find: Callable[[Host, Mapping[str, Any]], Resource]) -> Undo:
    """Return the undo function of a kind of entries.

    Args:
        find: Returns the resource that an entry's details name; raises
            :class:`~tare.hosts.ledger.undoing.NotOwn` if its name is not one of Tare's.
    """

    async def undo(host: Host, entry: Entry) -> str:
        resource = find(host, entry.details)
        if resource.ends_with_boot and entry.boot != host.boot_id():
            return ""
        return resource.removed if await remove_resource(resource) else ""

    return undo
