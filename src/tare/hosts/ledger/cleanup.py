"""Undo what a killed run left behind: exactly the entries of its ledger, and nothing else.

Each kind of entry, its details, and how it is undone:

========= ============================== =====================================================
process   token, command; pid, starttime killed if pid *and* start time match, or by its token
cgroup    path                           its processes killed, then removed, if named ``tare-…``
directory path                           removed if a part of the path is named ``tare-…``
file      path                           the same
setting   path, before, value            ``before`` written back if it still holds ``value``
mount     path, type                     unmounted, if a part of the path is named ``tare-…``
loop      path                           detached from that file, if a part is named ``tare-…``
trace     path                           the tracer's instance stopped and removed, if ``tare-…``
trace-ev. path, name                     the tracer's event removed, if named ``tare_…``
link      name                           deleted, if named ``tare-…``: a bridge, tap, veth or vxlan
netns     name                           deleted, if named ``tare-…``: a network namespace
========= ============================== =====================================================

Platforms and parts of a run have further kinds, and state how each is undone
(:attr:`tare.platforms.contract.Platform.undoers`, :mod:`tare.run.lifecycle.undoers`). The caller
that cleans passes them.

Everything may be undone twice. Resources that do not look like Tare's own are left, and reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

from tare.errors import InputError, MachineFault
from tare.hosts import control_groups, interfaces, loops, processes
from tare.hosts.contract import Host
from tare.hosts.ledger import settings
from tare.hosts.ledger.finding import words_of
from tare.hosts.ledger.ledger import LAB, Entry, Ledger, LedgerInUse, all_ledgers
from tare.hosts.ledger.nested import AFAR, entry_there
from tare.hosts.ledger.undoing import PREFIX, NotOwn, Undo
from tare.hosts.trace import tracefs


async def _undo_path(host: Host, entry: Entry) -> str:
    path = PurePosixPath(str(entry.details["path"]))
    ours = any(part.startswith(PREFIX) for part in path.parts)
    if not path.is_absolute() or ".." in path.parts or not ours:
        raise NotOwn(f"no part of the path is named {PREFIX}…")
    if not await host.exists(Path(path)):
        return ""
    mounts = (await host.read("/proc/self/mountinfo")).decode().splitlines()
    below = [where for where in (line.split()[4] for line in mounts) if _is_below(where, path)]
    if below:
        raise MachineFault(f"{below[0]} is mounted there; unmount it: umount {below[0]}")
    await host.remove(Path(path))
    return f"Removed {path}."


def _is_below(where: str, path: PurePosixPath) -> bool:
    # In mountinfo, spaces and similar characters are octal escapes, proc(5).
    plain = where.encode().decode("unicode_escape")
    return PurePosixPath(plain).is_relative_to(path)


async def _undo_mount(host: Host, entry: Entry) -> str:
    path = PurePosixPath(str(entry.details["path"]))
    if not path.is_absolute() or ".." in path.parts or not path.name.startswith(PREFIX):
        raise NotOwn(f"it is not a directory named {PREFIX}…")
    mounts = (await host.read("/proc/self/mountinfo")).decode().splitlines()
    if entry.boot != host.boot_id() or str(path) not in (line.split()[4] for line in mounts):
        return ""
    done = await host.run(["umount", str(path)], timeout_s=30)
    if not done.ok:
        raise MachineFault(done.words())
    return f"Unmounted {path}."


_UNDOERS_OF_PATHS: Mapping[str, Undo] = {
    "directory": _undo_path,
    "file": _undo_path,
    "mount": _undo_mount,
}


class Leftover(str):
    """A sentence about something that still exists but should not."""

    __slots__ = ()

    def after(self, words: str) -> Leftover:
        """Return the sentence with words before it."""
        return Leftover(f"{words}{self}")


class Going(str):
    """A sentence about a run in progress, whose resources are not left behind."""

    __slots__ = ()


def _prefixed(words: str, sentence: str) -> str:
    return sentence.after(words) if isinstance(sentence, Leftover) else f"{words}{sentence}"


OF_EVERY_HOST: Mapping[str, Undo] = MappingProxyType(
    {
        **processes.UNDOERS,
        **control_groups.UNDOERS,
        **_UNDOERS_OF_PATHS,
        **settings.UNDOERS,
        **loops.UNDOERS,
        **interfaces.UNDOERS,
        **tracefs.UNDOERS,
    }
)
"""The undo functions of the kinds that exist on every host."""

Reach = Callable[[Mapping[str, Any]], AbstractAsyncContextManager[Host]]
"""Opens another host, given a ledger's record of how to reach it."""


async def clean_all(
    host: Host,
    undoers: Callable[[], Mapping[str, Undo]],
    reach: Reach | None = None,
    *,
    report_running: bool = True,
) -> list[str]:
    """Undo the open entries of every run that has ended.

    Args:
        host: The host whose entries are undone.
        undoers: Returns the undo functions of further kinds. It is called only if something is
            to be undone, because platforms are loaded for it.
        reach: Opens the other hosts that ledgers name; without it, their entries are left.
        report_running: Whether to report ledgers of runs in progress as left alone. A run whose two
            hosts are one computer finds its own.

    Returns:
        The actions taken and the resources left, one sentence each, the latter as
        :class:`Leftover`; empty if there was nothing. Resources of runs in progress do not count as
        left behind.
    """
    messages: list[str] = []
    for path in all_ledgers():
        try:
            ledger = Ledger(path)
        except InputError as error:
            going = isinstance(error, LedgerInUse)
            if going and (path.stem == LAB or not report_running):
                continue  # A lab is up, and `tare lab down` ends it.
            words = f"{path.stem}: left alone: {error}."
            messages.append(Going(words) if going else Leftover(words))
            continue
        try:
            if not ledger.open_entries():
                did = []
            elif ledger.host == host.name:
                did = await clean(host, ledger, undoers())
            else:
                did = await _clean_afar(ledger, undoers(), reach)
            messages += [_prefixed(f"{path.stem}: ", sentence) for sentence in did]
        finally:
            ledger.discard()
    return messages


async def _clean_afar(
    ledger: Ledger, undoers: Mapping[str, Undo], reach: Reach | None
) -> list[str]:
    if reach is None or ledger.reach is None:
        return [Leftover(f"left alone: it lists what was made on {ledger.host}.")]
    try:
        async with reach(ledger.reach) as host:
            did = await clean(host, ledger, undoers)
            return [_prefixed(f"{host.name}: ", sentence) for sentence in did]
    except (MachineFault, InputError) as error:
        return [Leftover(f"left alone: {error}.")]


async def clean(
    host: Host, ledger: Ledger, undoers: Mapping[str, Undo], since: int = 0
) -> list[str]:
    """Undo all open entries of a ledger, the newest first.

    Args:
        host: The host on which the entries were made.
        ledger: The ledger; an entry that was undone is marked as done.
        undoers: The undo functions of further kinds.
        since: Skip entries before this number.

    Returns:
        The actions taken and the resources left, one sentence each, the latter as
        :class:`Leftover`.
    """
    known = {**OF_EVERY_HOST, **undoers}
    messages: list[str] = []
    lost: Counter[str] = Counter()
    for entry in reversed(ledger.open_entries()):
        if entry.number < since:
            break
        machine = str(entry.details["of"]) if entry.kind == AFAR else ""
        if machine in lost:
            # Try only once for all entries of a machine: a machine that is gone stays gone.
            lost[machine] += 1
            continue
        if entry.kind not in known:
            messages.append(
                Leftover(
                    f"Could not undo {_words(entry)}: the extension that made it is not installed."
                )
            )
            continue
        try:
            sentence = await known[entry.kind](host, entry)
        except NotOwn as refusal:
            messages.append(Leftover(f"Left {_words(entry)}: {refusal}."))
            ledger.done(entry)
            continue
        except (OSError, MachineFault, InputError) as error:
            messages.append(Leftover(f"Could not undo {_words(entry)}: {error}."))
            if machine and isinstance(error, MachineFault) and error.transient:
                lost[machine] = 0
            continue
        ledger.done(entry)
        if sentence:
            messages.append(sentence)
    return messages + [
        Leftover(f"{count} more of {machine} were not tried; run `tare clean` when it is back.")
        for machine, count in lost.items()
        if count
    ]


async def undo_unlisted(host: Host, entries: Iterable[Entry]) -> list[str]:
    """Undo resources that no ledger lists; see :func:`tare.hosts.ledger.finding.unlisted`.

    Returns:
        The actions taken and the resources left, one sentence each, the latter as
        :class:`Leftover`.
    """
    messages: list[str] = []
    for entry in entries:
        try:
            sentence = await OF_EVERY_HOST[entry.kind](host, entry)
        except (NotOwn, OSError, MachineFault, InputError) as error:
            messages.append(Leftover(f"Could not remove {words_of(entry)}: {error}."))
            continue
        # There is no sentence if the resource vanished with another one, such as the other end of a
        # pair.
        messages.append(sentence or f"Gone: {words_of(entry)}.")
    return messages


async def undo_one(host: Host, entry: Entry) -> str:
    """Undo one entry of a kind in :data:`OF_EVERY_HOST`."""
    if entry.kind not in OF_EVERY_HOST:
        raise NotOwn(f"there is no way to undo {entry.kind}")
    return await OF_EVERY_HOST[entry.kind](host, entry)


def _words(entry: Entry) -> str:
    if entry.kind == AFAR:
        return f"{_words(entry_there(entry))} on {entry.details['of']}"
    return f"{entry.kind} {_named(entry)}"


def _named(entry: Entry) -> str:
    for key in ("path", "id", "command"):
        if key in entry.details:
            return str(entry.details[key])
    return f"number {entry.number}"
