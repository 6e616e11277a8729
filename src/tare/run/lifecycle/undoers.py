"""The undo functions for everything that a run may leave behind, by kind of ledger entry.

Platforms, and parts of the run such as the cluster, state the kinds of their own entries. They are
listed here, so that a process that only cleans finds them too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tare.hosts.ledger.undoing import Undo
from tare.platforms.contract import Platform, undoers_of
from tare.registry import installed
from tare.run.topologies.cluster import folder

_OF_PARTS: tuple[Mapping[str, Undo], ...] = (folder.UNDOERS,)


def undoers_of_run(platforms: Iterable[Platform[Any]]) -> Mapping[str, Undo]:
    """Return the undo functions of these platforms and of the run's own parts, by kind."""
    of_parts = {kind: undo for part in _OF_PARTS for kind, undo in part.items()}
    return {**of_parts, **undoers_of(platforms)}


def all_undoers() -> Mapping[str, Undo]:
    """Return the undo functions of everything that is installed here, by kind."""
    return undoers_of_run(installed().platforms.values())
