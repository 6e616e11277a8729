"""Settings that Tare changes on a host for a while: recorded, verified, and always restored."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
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

    An object knows where the setting is. :meth:`apply` sets and verifies it. :func:`changed` also
    records it in the ledger, and restores it at the end.
    """

    kind: ClassVar[str]
    """The kind of the setting's entries in the ledger."""
    settling_s: ClassVar[float] = 0.0
    """Seconds that it may take until the setting reads as set."""
    hint: ClassVar[str] = ""
    """The hint for the user if the host does not accept the setting."""

    @property
    @abstractmethod
    def details(self) -> Mapping[str, Any]:
        """The details for the ledger, without the values: enough to find the setting again."""

    @property
    @abstractmethod
    def words(self) -> str:
        """The setting's description, such as ``Xen's weight of dom0``."""

    @property
    def ends_with_boot(self) -> bool:
        """Whether a reboot of its host restores the setting."""
        return True

    @abstractmethod
    async def read(self) -> V:
        """Return the current value.

        Raises:
            OSError, TareError: The setting cannot be read.
        """

    @abstractmethod
    async def set(self, value: V) -> str:
        """Set the value; :meth:`verify` checks whether the host accepted it.

        Returns:
            The host's remark, for the error of :meth:`verify`; usually empty.

        Raises:
            OSError, TareError: The host refuses; the message is the host's.
        """

    def shown(self, value: V) -> str:
        """Return a value in words, for messages."""
        return str(value)

    async def verify(self, value: V, remark: str = "") -> None:
        """Check that the setting reads as set, allowing for its settling time.

        Raises:
            MachineFault: The setting has another value.
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
        """Set the value and verify it; raise as :meth:`set` and :meth:`verify`."""
        await self.verify(value, await self.set(value))

    async def undo(self, before: V, value: V) -> str:
        """Restore the setting, unless another program has changed it.

        Args:
            before: The value before Tare's change.
            value: The value that Tare set.

        Returns:
            The action taken, in one sentence; empty if there was nothing to do.
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
    """Change a setting for as long as the block lasts.

    Several holders may want the same value at once, such as neighbouring machines: the first one
    changes it, and the last one restores it. The ledger's open entries count the holders, so that
    :func:`tare.hosts.ledger.cleanup.clean` restores it after a killed run.

    Args:
        ledger: Records the change before it is made.
        setting: The setting.
        value: The new value.

    Yields:
        The value before the change.

    Raises:
        OSError, TareError: The setting cannot be read or set, or the host does not accept it.
        MachineFault: Another holder needs another value now.
    """
    async with ledger.guard:
        holders = _holders(ledger, setting)
        if holders and holders[0].details["value"] != value:
            held = setting.shown(holders[0].details["value"])
            raise MachineFault(
                f"{setting.words} is kept at {held} for another machine of this run, but "
                f"{setting.shown(value)} is needed at the same time"
            )
        now = await setting.read()
        before: V = holders[0].details["before"] if holders else now
        entry = ledger.record(setting.kind, **setting.details, before=before, value=value)
        try:
            # Check this even if another machine holds the setting: another program may have changed
            # it.
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
    """Return a setting's value before this run changed it; ``now`` if no machine holds it."""
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
    """Return the undo function of a kind of entries.

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
        host: The host that has the file.
        path: The file.
    """

    kind = "setting"

    def __init__(self, host: Host, path: str | Path) -> None:
        self._host = host
        self._path = str(path)

    @property
    def details(self) -> Mapping[str, Any]:
        """The file's path."""
        return {"path": self._path}

    @property
    def words(self) -> str:
        """The file's path."""
        return self._path

    @property
    def ends_with_boot(self) -> bool:
        """Whether it is a setting of the kernel."""
        return self._path.startswith(("/proc/", "/sys/"))

    async def read(self) -> str:
        """Return the file's content without surrounding white space; raise OSError."""
        return (await self._host.read(self._path)).decode().strip()

    async def set(self, value: str) -> str:
        """Write the file; raise OSError."""
        await self._host.write(self._path, f"{value}\n".encode())
        return ""

    async def undo(self, before: str, value: str) -> str:
        """Restore the setting if the file still exists; see :meth:`Setting.undo`."""
        return await super().undo(before, value) if await self._host.exists(self._path) else ""


class ChoiceSetting(FileSetting):
    """A setting whose file lists several words and marks the chosen one.

    Either the chosen word is in brackets, as in sysfs, or the file lists only active words, as in a
    tracer's options.

    Args:
        host: The host that has the file.
        path: The file.
        choices: The words that exclude each other.
    """

    kind = "choice"

    def __init__(self, host: Host, path: str | Path, choices: Sequence[str]) -> None:
        super().__init__(host, path)
        self._choices = tuple(choices)

    @property
    def details(self) -> Mapping[str, Any]:
        """The file's path and the words."""
        return {**super().details, "choices": list(self._choices)}

    async def read(self) -> str:
        """Return the chosen word; empty if the file has none of them; raise OSError."""
        words = (await super().read()).split()
        bracketed = [word[1:-1] for word in words if word.startswith("[") and word.endswith("]")]
        holding = bracketed or words
        return next((choice for choice in self._choices if choice in holding), "")


async def held_unaltered(host: Host, ledger: Ledger) -> None:
    """Check that every setting that Tare holds still has Tare's value.

    Raises:
        MachineFault: Another program changed a setting, so the measurement took place under other
            conditions. The next machine that starts sets it again.
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
                f"another program changed {path} from {value} to {now} during the measurement",
                transient=True,
            )


UNDOERS: Mapping[str, Undo] = {
    FileSetting.kind: undo_setting(lambda host, details: FileSetting(host, str(details["path"]))),
    ChoiceSetting.kind: undo_setting(
        lambda host, details: ChoiceSetting(host, str(details["path"]), details["choices"])
    ),
}
