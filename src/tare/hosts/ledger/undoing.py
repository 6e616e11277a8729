"""How one kind of a ledger's entries is undone: stated by whoever makes such things."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tare.hosts.contract import Host
from tare.hosts.ledger.ledger import Entry

PREFIX = "tare-"
"""What the names of everything that Tare creates begin with."""

Undo = Callable[[Host, Entry], Awaitable[str]]
"""Undoes what an entry names, and may be called again.

Returns one sentence of what was done, empty where there was nothing to do. Raises
:class:`Refused` where the entry names nothing of Tare's, and OSError, MachineFault or InputError
where it could not be undone.
"""


class Refused(Exception):
    """An entry names something that Tare does not take for its own; the text says why."""


def require_own(name: str) -> None:
    """Raise :class:`Refused` unless the name is one that Tare gives."""
    if not name.startswith(PREFIX):
        raise Refused(f"its name does not begin with {PREFIX}")
