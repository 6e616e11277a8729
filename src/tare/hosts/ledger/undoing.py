"""The type of functions that undo a kind of ledger entry."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tare.hosts.contract import Host
from tare.hosts.ledger.ledger import Entry

PREFIX = "tare-"
"""The prefix of all names that Tare gives."""

Undo = Callable[[Host, Entry], Awaitable[str]]
"""Undoes an entry; it may be called again.

Returns one sentence about what was done, or an empty string if there was nothing to do. Raises
:class:`NotOwn` if the entry does not name something of Tare's, and OSError, MachineFault or
InputError if it could not be undone.
"""


class NotOwn(Exception):
    """An entry names a resource that does not look like Tare's; the text states the reason."""


def require_own(name: str) -> None:
    """Raise :class:`NotOwn` unless the name is one that Tare gives."""
    if not name.startswith(PREFIX):
        raise NotOwn(f"its name does not start with {PREFIX}")
