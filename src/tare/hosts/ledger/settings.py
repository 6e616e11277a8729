"""Change a setting of the host for a while, and always give it back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from tare.errors import MachineFault
from tare.hosts.contract import Host
from tare.hosts.ledger.ledger import Entry, Ledger
from tare.hosts.ledger.undoing import Undo


@asynccontextmanager
async def changed_setting(
    host: Host, ledger: Ledger, path: str | Path, value: str
) -> AsyncIterator[str]:
    """Give a setting another value for as long as the block lasts.

    Several holders may want the same value at once, as neighbouring machines do: the first
    changes it and the last gives it back. The ledger's open entries count the holders, so a
    killed run is undone by :func:`tare.hosts.ledger.cleanup.clean` all the same.

    Args:
        host: Where the setting is.
        ledger: Is told before the change.
        path: A file under /proc or /sys (or any file) that holds the setting.
        value: What to write.

    Yields:
        What the setting was before.

    Raises:
        OSError: The setting cannot be read or written.
        MachineFault: Another holder wants another value now.
    """
    entry = await _hold(host, ledger, str(path), value)
    try:
        yield str(entry.details["before"])
    finally:
        await _release(host, ledger, entry)


async def _hold(host: Host, ledger: Ledger, path: str, value: str) -> Entry:
    async with ledger.guard:
        holders = _holders(ledger, path)
        if holders:
            before = str(holders[0].details["before"])
            if holders[0].details["value"] != value:
                raise MachineFault(
                    f"{path} is held at {holders[0].details['value']} by another machine of "
                    f"this run, and {value} is wanted beside it"
                )
            return ledger.record("setting", path=path, before=before, value=value)
        before = (await host.read(path)).decode().strip()
        entry = ledger.record("setting", path=path, before=before, value=value)
        try:
            if before != value:
                await host.write(path, f"{value}\n".encode())
        except BaseException:
            ledger.done(entry)
            raise
        return entry


async def _release(host: Host, ledger: Ledger, entry: Entry) -> None:
    async with ledger.guard:
        others = [
            other
            for other in _holders(ledger, str(entry.details["path"]))
            if other.number != entry.number
        ]
        if not others:
            await restore(host, entry)
        ledger.done(entry)


async def held_unaltered(host: Host, ledger: Ledger) -> None:
    """See that every setting still is what it was set to.

    Raises:
        MachineFault: Somebody else changed one, so what was measured meanwhile was measured under
            other conditions; a machine that is started anew sets it again.
    """
    held = {
        str(entry.details["path"]): str(entry.details["value"])
        for entry in ledger.open_entries()
        if entry.kind == "setting"
    }
    for path, value in held.items():
        now = (await host.read(path)).decode().strip()
        if now != value:
            raise MachineFault(
                f"somebody else set {path} to {now} in the meantime, and it was to be {value}",
                transient=True,
            )


def _holders(ledger: Ledger, path: str) -> list[Entry]:
    return [
        entry
        for entry in ledger.open_entries()
        if entry.kind == "setting" and entry.details["path"] == path
    ]


async def restore(host: Host, entry: Entry) -> str:
    """Give a setting back what it held before, unless it already does or someone else set it.

    Returns:
        What was done, in one sentence; empty when there was nothing to do.

    Raises:
        OSError: The setting cannot be read or written.
    """
    path, before, value = (str(entry.details[key]) for key in ("path", "before", "value"))
    now = (await host.read(path)).decode().strip()
    if now == before:
        return ""
    if now != value:
        return f"{path} is {now}, which is neither what Tare set ({value}) nor what it was: left."
    await host.write(path, f"{before}\n".encode())
    return f"{path} is {before} again; Tare had set {value}."


async def _undo_setting(host: Host, entry: Entry) -> str:
    if entry.boot != host.boot_id() and str(entry.details["path"]).startswith(("/proc/", "/sys/")):
        return ""
    if not await host.exists(Path(str(entry.details["path"]))):
        return ""
    return await restore(host, entry)


UNDOERS: Mapping[str, Undo] = {"setting": _undo_setting}
