"""Entries for a machine that only its carrier can reach, kept in the carrier's ledger.

A run keeps one ledger for each of its hosts. A machine that is reached over SSH is not a host of
the run, but Tare's files and processes are in it. The ledger of the host that carries it records
them, each as an entry of the kind :data:`AFAR` with its place and how to undo it there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tare.errors import InputError
from tare.hosts.ledger.ledger import LOCAL, Entry, Ledger, all_ledgers, replay

AFAR = "afar"


class NestedLedger(Ledger):
    """A ledger of one machine, whose entries are in the ledger of the host that carries it.

    Args:
        parent: The ledger of that host.
        host: The machine's name.
        boot: Returns the id of the machine's current boot.
        reach: The data to reach the machine; plain JSON, without secrets.
    """

    def __init__(
        self,
        parent: Ledger,
        *,
        host: str,
        boot: Callable[[], str],
        reach: Mapping[str, Any],
    ) -> None:
        # The ledger has no file of its own; the parent's is used.
        self.path = parent.path
        self.guard = parent.guard
        self.host = host
        self.reach = reach
        self._parent = parent
        self._boot = boot
        self._noted: dict[int, Entry] = {}

    def record(self, kind: str, **details: Any) -> Entry:
        """Record a resource before it is created there; see :meth:`Ledger.record`."""
        noted = self._parent.record(
            AFAR,
            of=self.host,
            reach=dict(self.reach or {}),
            kind_there=kind,
            boot_there=self._boot(),
            details_there=details,
        )
        self._noted[noted.number] = noted
        return entry_there(noted)

    def amend(self, entry: Entry, **details: Any) -> Entry:
        """Add details that are known later; see :meth:`Ledger.amend`."""
        whole = {**entry.details, **details}
        noted = self._parent.amend(self._noted[entry.number], details_there=whole)
        self._noted[noted.number] = noted
        return entry_there(noted)

    def done(self, entry: Entry) -> None:
        """Mark an entry as removed; marking it again does nothing."""
        noted = self._noted.pop(entry.number, None)
        if noted is not None:
            self._parent.done(noted)

    @property
    def next_number(self) -> int:
        """The number of the next entry."""
        return self._parent.next_number

    def open_entries(self) -> tuple[Entry, ...]:
        """Return this machine's entries that are not done, oldest first."""
        return tuple(
            entry_there(noted)
            for noted in self._parent.open_entries()
            if noted.kind == AFAR and noted.details["of"] == self.host
        )

    def close(self) -> None:
        """Do nothing: the file is the parent's."""

    def discard(self) -> None:
        """Do nothing: the file is the parent's."""


def entry_there(noted: Entry) -> Entry:
    """Convert the entry in the carrier's ledger to the machine's entry."""
    details = noted.details
    return Entry(
        noted.number,
        str(details["kind_there"]),
        str(details["boot_there"]),
        dict(details["details_there"]),
    )


HERE = "this computer"


def left_on(run: str) -> tuple[str, ...]:
    """Return the hosts on which a run's ledgers still list something.

    It neither locks nor changes anything, because a run calls it when it reports its end.
    """
    names: list[str] = []
    for path in all_ledgers():
        # With several hosts, each has a ledger with the run's name and its own.
        if path.stem != run and not path.stem.startswith(f"{run}-"):
            continue
        content = path.read_bytes()
        lines = content[: content.rfind(b"\n") + 1].splitlines()
        try:
            listed = replay(lines, path)[1]
        except InputError:
            continue  # `tare clean` reports what is wrong with it.
        host = str(json.loads(lines[0]).get("host", LOCAL)) if lines else LOCAL
        for entry in listed.values():
            # Resources in a machine are recorded with the host that carries it.
            where = str(entry.details["of"]) if entry.kind == AFAR else host
            names.append(HERE if where == LOCAL else where)
    return tuple(dict.fromkeys(names))
