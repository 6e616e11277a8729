"""A ledger within a ledger: what Tare makes in a machine that only the machine's carrier knows.

A run keeps one ledger for each of its hosts. A machine that is reached over SSH is no host of the
run, and yet has files and processes of Tare's in it. They are noted in the ledger of the host that
carries it, each as one entry of the kind :data:`AFAR` that says where it is and how it is undone
there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tare.hosts.ledger.ledger import Entry, Ledger

AFAR = "afar"


class NestedLedger(Ledger):
    """Notes what is made in one machine, in the ledger of the host that carries it.

    Args:
        parent: The ledger of that host.
        host: The machine's name.
        boot: Tells the id of the machine's present boot.
        reach: How the machine is reached; plain JSON, no secret.
    """

    def __init__(
        self,
        parent: Ledger,
        *,
        host: str,
        boot: Callable[[], str],
        reach: Mapping[str, Any],
    ) -> None:
        # No file of its own: everything is the parent's.
        self.path = parent.path
        self.guard = parent.guard
        self.host = host
        self.reach = reach
        self._parent = parent
        self._boot = boot
        self._noted: dict[int, Entry] = {}

    def record(self, kind: str, **details: Any) -> Entry:
        """Write down what is about to be created there; see :meth:`Ledger.record`."""
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
        """Add what became known later; see :meth:`Ledger.amend`."""
        whole = {**entry.details, **details}
        noted = self._parent.amend(self._noted[entry.number], details_there=whole)
        self._noted[noted.number] = noted
        return entry_there(noted)

    def done(self, entry: Entry) -> None:
        """Mark what an entry names as removed; marking it again does nothing."""
        noted = self._noted.pop(entry.number, None)
        if noted is not None:
            self._parent.done(noted)

    @property
    def next_number(self) -> int:
        """The number that the next entry will bear."""
        return self._parent.next_number

    def open_entries(self) -> tuple[Entry, ...]:
        """Return what still exists in this machine, oldest first."""
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
    """Return an entry of a machine as it is there, from the one that its carrier's ledger holds."""
    said = noted.details
    return Entry(
        noted.number,
        str(said["kind_there"]),
        str(said["boot_there"]),
        dict(said["details_there"]),
    )
