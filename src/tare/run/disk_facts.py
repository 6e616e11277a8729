"""The host's side of a cell that works on the machine's own disk, and what is told of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tare.events.cell_facts import CellFacts

TOLD = ("disk", "caches_dropped", "file_set_bytes", "memory_bytes", "direct", "scaled")
"""Of a result of the agent, what says how the disk was used rather than how well it did."""


def disk_facts(result: Mapping[str, Any]) -> CellFacts:
    """Return what a cell's record keeps of how the disk was used."""
    if "disk" not in result:
        return {}
    return {"files": {name: result[name] for name in TOLD if name in result}}
