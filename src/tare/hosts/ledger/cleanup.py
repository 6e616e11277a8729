"""Undo what a killed run left behind: exactly what its ledger lists, and nothing else.

What each kind of entry holds, and what undoing it takes:

========= ============================== =====================================================
process   token, command; pid, starttime killed if pid *and* start time match, or by its token
cgroup    path                           its processes killed, then removed, if named ``tare-…``
directory path                           removed if a part of the path is named ``tare-…``
file      path                           the same
setting   path, before, value            ``before`` written back if it still holds ``value``
mount     path, type                     unmounted, if a part of the path is named ``tare-…``
loop      path                           detached from that file, if a part is named ``tare-…``
trace     path                           the tracer's instance stopped and removed, if ``tare-…``
link      name                           deleted, if named ``tare-…``: a bridge, tap, veth or vxlan
netns     name                           deleted, if named ``tare-…``: a network namespace
========= ============================== =====================================================

Platforms and parts of a run have further kinds of their own, and state how each is undone
(:attr:`tare.platforms.contract.Platform.undoers`, :mod:`tare.run.lifecycle.undoers`): the
caller that cleans passes them.

Everything may be undone twice. What does not look like Tare's own is left, and reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from types import MappingProxyType
from typing import Any

from tare.errors import InputError, MachineFault
from tare.hosts import control_groups, interfaces, loops, paths, processes
from tare.hosts.contract import Host
from tare.hosts.ledger import settings
from tare.hosts.ledger.finding import words_of
from tare.hosts.ledger.ledger import LAB, Entry, Ledger, LedgerInUse, all_ledgers
from tare.hosts.ledger.nested import AFAR, entry_there
from tare.hosts.ledger.undoing import Refused, Undo
from tare.hosts.trace import tracefs


class Left(str):
    """A sentence about something that is still there, and should not be."""

    __slots__ = ()

    def after(self, words: str) -> Left:
        """Return it with words before it."""
        return Left(f"{words}{self}")


class Going(str):
    """A sentence about a run that still goes, whose things are not left behind."""

    __slots__ = ()


def _after(words: str, sentence: str) -> str:
    return sentence.after(words) if isinstance(sentence, Left) else f"{words}{sentence}"


OF_EVERY_HOST: Mapping[str, Undo] = MappingProxyType(
    {
        **processes.UNDOERS,
        **control_groups.UNDOERS,
        **paths.UNDOERS,
        **settings.UNDOERS,
        **loops.UNDOERS,
        **interfaces.UNDOERS,
        **tracefs.UNDOERS,
    }
)
"""How each kind is undone that is made on hosts whatever the platform: stated where it is made."""

Reach = Callable[[Mapping[str, Any]], AbstractAsyncContextManager[Host]]
"""Opens another host by what a ledger says of the way to it."""


async def clean_all(
    host: Host,
    undoers: Mapping[str, Undo],
    reach: Reach | None = None,
    *,
    tell_of_going: bool = True,
) -> list[str]:
    """Undo the open entries of every run that has ended.

    Args:
        host: The host whose entries are undone.
        undoers: How further kinds are undone.
        reach: Opens the other hosts that ledgers name; without it, their entries are left.
        tell_of_going: Whether ledgers of runs that are alive are reported as left alone. A run
            with two hosts that are one computer meets its own.

    Returns:
        What was done and what was left, one sentence each, the latter as :class:`Left`; empty when
        there was nothing. Things of runs that still go are not left behind.
    """
    told: list[str] = []
    for path in all_ledgers():
        try:
            ledger = Ledger(path)
        except InputError as error:
            going = isinstance(error, LedgerInUse)
            if going and (path.stem == LAB or not tell_of_going):
                continue  # A lab is up, and `tare lab down` ends it.
            words = f"{path.stem}: left alone: {error}."
            told.append(Going(words) if going else Left(words))
            continue
        try:
            if ledger.host == host.name:
                did = await clean(host, ledger, undoers)
            elif ledger.open_entries():
                did = await _clean_afar(ledger, undoers, reach)
            else:
                did = []
            told += [_after(f"{path.stem}: ", sentence) for sentence in did]
        finally:
            ledger.discard()
    return told


async def _clean_afar(
    ledger: Ledger, undoers: Mapping[str, Undo], reach: Reach | None
) -> list[str]:
    if reach is None or ledger.reach is None:
        return [Left(f"left alone: it lists what was made on {ledger.host}.")]
    try:
        async with reach(ledger.reach) as host:
            did = await clean(host, ledger, undoers)
            return [_after(f"{host.name}: ", sentence) for sentence in did]
    except (MachineFault, InputError) as error:
        return [Left(f"left alone: {error}.")]


async def clean(
    host: Host, ledger: Ledger, undoers: Mapping[str, Undo], since: int = 0
) -> list[str]:
    """Undo all open entries of a ledger, the newest first.

    Args:
        host: Where the entries were made.
        ledger: The ledger; an entry that was undone is marked as done.
        undoers: How further kinds are undone.
        since: Leave what was recorded before the entry of this number.

    Returns:
        What was done and what was left, one sentence each, the latter as :class:`Left`.
    """
    known = {**OF_EVERY_HOST, **undoers}
    told: list[str] = []
    lost: Counter[str] = Counter()
    for entry in reversed(ledger.open_entries()):
        if entry.number < since:
            break
        machine = str(entry.details["of"]) if entry.kind == AFAR else ""
        if machine in lost:
            # One attempt for all of them: a machine that is gone stays so for each.
            lost[machine] += 1
            continue
        if entry.kind not in known:
            told.append(Left(f"Could not undo {_words(entry)}: what made it is not installed."))
            continue
        try:
            sentence = await known[entry.kind](host, entry)
        except Refused as refusal:
            told.append(Left(f"Left {_words(entry)}: {refusal}."))
            ledger.done(entry)
            continue
        except (OSError, MachineFault, InputError) as error:
            told.append(Left(f"Could not undo {_words(entry)}: {error}."))
            if machine and isinstance(error, MachineFault) and error.transient:
                lost[machine] = 0
            continue
        ledger.done(entry)
        if sentence:
            told.append(sentence)
    return told + [
        Left(f"{count} more of {machine} were not tried: `tare clean` does once it is back.")
        for machine, count in lost.items()
        if count
    ]


async def undo_unlisted(host: Host, entries: Iterable[Entry]) -> list[str]:
    """Undo what is in no ledger; see :func:`tare.hosts.ledger.finding.unlisted`.

    Returns:
        What was done and what was left, one sentence each, the latter as :class:`Left`.
    """
    told: list[str] = []
    for entry in entries:
        try:
            sentence = await OF_EVERY_HOST[entry.kind](host, entry)
        except (Refused, OSError, MachineFault, InputError) as error:
            told.append(Left(f"Could not remove {words_of(entry)}: {error}."))
            continue
        # Nothing to say: it went with something else, such as the other end of a pair.
        told.append(sentence or f"Gone: {words_of(entry)}.")
    return told


async def undo_one(host: Host, entry: Entry) -> str:
    """Undo one entry of a kind that every host has; see :data:`tare.hosts.ledger.undoing.Undo`."""
    if entry.kind not in OF_EVERY_HOST:
        raise Refused(f"nobody knows how {entry.kind} is undone")
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
