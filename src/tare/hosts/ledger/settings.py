"""Settings that Tare changes on a host for a while: recorded, verified, and always restored."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from tare.errors import MachineFault
from tare.hosts.contract import Host
from tare.hosts.ledger.ledger import Entry, Ledger
from tare.hosts.ledger.undoing import Undo

V = TypeVar("V")
_LOOK_S = 0.2


class Setting(ABC, Generic[V]):
    """A setting of a host, of a hypervisor or of a machine; its values are plain JSON.

    An object knows where the setting is. :meth:`apply` sets and verifies it; :func:`changed` also
    records it in the ledger and restores it at the end.
    """

    kind: ClassVar[str]
    """The kind of its entries in the ledger."""
    settling_s: ClassVar[float] = 0.0
    """How long it may take until it reads as it was set, in seconds."""
    hint: ClassVar[str] = ""
    """What to do where it is not taken."""

    @property
    @abstractmethod
    def details(self) -> Mapping[str, Any]:
        """What the ledger records of it besides its values: enough to find it again."""

    @property
    @abstractmethod
    def words(self) -> str:
        """What it is, such as ``Xen's weight of dom0``."""

    @property
    def ends_with_boot(self) -> bool:
        """Whether a reboot of its host restores it."""
        return True

    @abstractmethod
    async def read(self) -> V:
        """Return its present value.

        Raises:
            OSError, TareError: It cannot be read.
        """

    @abstractmethod
    async def set(self, value: V) -> str:
        """Set it; :meth:`verify` shows whether it was taken.

        Returns:
            What the host remarked, for the fault of :meth:`verify`; mostly empty.

        Raises:
            OSError, TareError: The host refuses, in its own words.
        """

    def shown(self, value: V) -> str:
        """Return a value in words, for messages."""
        return str(value)

    async def verify(self, value: V, remark: str = "") -> None:
        """See that it reads as it was set; what needs time is waited for.

        Raises:
            MachineFault: It reads otherwise.
        """
        deadline = time.monotonic() + self.settling_s
        while (now := await self.read()) != value:
            if time.monotonic() > deadline:
                because = f": {remark}" if remark else ""
                reads = self.shown(now) or "nothing"
                raise MachineFault(
                    f"{self.words} was set to {self.shown(value)}, but reads {reads}{because}",
                    self.hint,
                )
            await asyncio.sleep(_LOOK_S)

    async def apply(self, value: V) -> None:
        """Set it, and verify that it was taken; raises as :meth:`set` and :meth:`verify` do."""
        await self.verify(value, await self.set(value))

    async def undo(self, before: V, value: V) -> str:
        """Restore it, unless somebody else has set it meanwhile.

        Args:
            before: What it was before Tare set it.
            value: What Tare set it to.

        Returns:
            What was done, in one sentence; empty if there was nothing to do.
        """
        now = await self.read()
        if now == before:
            return ""
        if now != value:
            return (
                f"{self.words} is {self.shown(now)}, which is neither what Tare set "
                f"({self.shown(value)}) nor what it was: left."
            )
        await self.apply(before)
        return f"{self.words} is {self.shown(before)} again; Tare had set {self.shown(value)}."


@asynccontextmanager
async def changed(ledger: Ledger, setting: Setting[V], value: V) -> AsyncIterator[V]:
    """Give a setting another value for as long as the block lasts.

    Several holders may want the same value at once, as neighbouring machines do: the first one
    changes it and the last one restores it. The ledger's open entries count the holders, so that
    :func:`tare.hosts.ledger.cleanup.clean` restores it after a killed run.

    Args:
        ledger: Records the change before it is made.
        setting: What is changed.
        value: What it is set to.

    Yields:
        Its value before.

    Raises:
        OSError, TareError: The setting cannot be read or set, or is not taken.
        MachineFault: Another holder wants another value now.
    """
    async with ledger.guard:
        holders = _holders(ledger, setting)
        if holders and holders[0].details["value"] != value:
            held = setting.shown(holders[0].details["value"])
            raise MachineFault(
                f"{setting.words} is held at {held} by another machine of this run, and "
                f"{setting.shown(value)} is wanted at the same time"
            )
        now = await setting.read()
        before: V = holders[0].details["before"] if holders else now
        entry = ledger.record(setting.kind, **setting.details, before=before, value=value)
        try:
            # Also where another machine holds it: somebody else may have set it since.
            if now != value:
                await setting.apply(value)
        except BaseException:
            if not holders:
                await setting.undo(before, value)
            ledger.done(entry)
            raise
    try:
        yield before
    finally:
        async with ledger.guard:
            if [other.number for other in _holders(ledger, setting)] == [entry.number]:
                await setting.undo(before, value)
            ledger.done(entry)


def value_before(ledger: Ledger, setting: Setting[V], now: V) -> V:
    """Return what a setting was before this run changed it; ``now`` where nobody holds it."""
    holders = _holders(ledger, setting)
    return holders[0].details["before"] if holders else now


def _holders(ledger: Ledger, setting: Setting[Any]) -> list[Entry]:
    return [
        entry
        for entry in ledger.open_entries()
        if entry.kind == setting.kind
        and all(entry.details.get(key) == value for key, value in setting.details.items())
    ]


def undo_setting(find: Callable[[Host, Mapping[str, Any]], Setting[Any]]) -> Undo:
    """Return how the ledger's entries of a kind are undone.

    Args:
        find: Returns the setting that an entry's details name.
    """

    async def undo(host: Host, entry: Entry) -> str:
        setting = find(host, entry.details)
        if setting.ends_with_boot and entry.boot != host.boot_id():
            return ""
        return await setting.undo(entry.details["before"], entry.details["value"])

    return undo


class FileSetting(Setting[str]):
    """A setting that is a file, such as those below /proc and /sys.

    Args:
        host: Where it is.
        path: The file.
    """

    kind = "setting"

    def __init__(self, host: Host, path: str | Path) -> None:
        self._host = host
        self._path = str(path)

    @property
    def details(self) -> Mapping[str, Any]:
        """Its path."""
        return {"path": self._path}

    @property
    def words(self) -> str:
        """Its path."""
        return self._path

    @property
    def ends_with_boot(self) -> bool:
        """Whether it is one of the kernel's."""
        return self._path.startswith(("/proc/", "/sys/"))

    async def read(self) -> str:
        """Return what the file holds, without white space around it; raises OSError."""
        return (await self._host.read(self._path)).decode().strip()

    async def set(self, value: str) -> str:
        """Write the file; raises OSError."""
        await self._host.write(self._path, f"{value}\n".encode())
        return ""

    async def undo(self, before: str, value: str) -> str:
        """Restore it where the file is still there; see :meth:`Setting.undo`."""
        return await super().undo(before, value) if await self._host.exists(self._path) else ""


async def held_unaltered(host: Host, ledger: Ledger) -> None:
    """See that every file that holds a setting still holds what Tare wrote.

    Raises:
        MachineFault: Somebody else changed one, so what was measured meanwhile was measured under
            other conditions; the next machine that starts sets it again.
    """
    held = {
        str(entry.details["path"]): str(entry.details["value"])
        for entry in ledger.open_entries()
        if entry.kind == FileSetting.kind
    }
    for path, value in held.items():
        now = await FileSetting(host, path).read()
        if now != value:
            raise MachineFault(
                f"somebody else set {path} to {now} in the meantime, and it was to be {value}",
                transient=True,
            )


UNDOERS: Mapping[str, Undo] = {
    FileSetting.kind: undo_setting(lambda host, details: FileSetting(host, str(details["path"])))
}
