"""How all that a run may leave behind is undone: what its platforms made, and what its parts did.

Each part states the kinds of its own entries in the ledger, as platforms do; here they are listed,
so that a process that only cleans finds them too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tare.hosts.ledger.undoing import Undo
from tare.platforms.contract import Platform, undoers_of
from tare.registry import installed
from tare.run.topologies.cluster import folder

_OF_PARTS: tuple[Mapping[str, Undo], ...] = (folder.UNDOERS,)


def undoers_with(platforms: Iterable[Platform[Any]]) -> Mapping[str, Undo]:
    """Return how the kinds of these platforms, and of the run's own parts, are undone."""
    of_parts = {kind: undo for part in _OF_PARTS for kind, undo in part.items()}
    return {**of_parts, **undoers_of(platforms)}


def all_undoers() -> Mapping[str, Undo]:
    """Return how everything is undone that is installed here."""
    return undoers_with(installed().platforms.values())
