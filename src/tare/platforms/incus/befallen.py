"""What befell an instance, as far as Incus and LXD tell it by their API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

MEMORY = "limits.memory"
AT_WORK = frozenset({"Running", "Ready"})
"""States in which nothing keeps an instance from running."""


def befallen(
    found: Mapping[str, Any], state: Mapping[str, Any], wanted: Mapping[str, Any], home: str
) -> Iterator[str]:
    """Yield what befell an instance besides what was copied of it, a phrase each.

    Args:
        found: The instance, as the server tells it.
        state: Its state, as the server tells it.
        wanted: The instance, as it was asked for.
        home: The member of a cluster that it was on; empty: it is not known.
    """
    location = str(found.get("location") or "")
    if home and location != home:
        yield f"migrated to {location or 'nowhere'}"
    status = str(state.get("status") or "")
    if status and status not in AT_WORK:
        yield f"it was {status.lower()}"
    config = found.get("expanded_config")
    limit = config.get(MEMORY) if isinstance(config, Mapping) else None
    if limit != wanted["config"].get(MEMORY):
        yield f"its memory was changed: {MEMORY} is {limit or 'not set'}"
    memory = state.get("memory")
    swap = memory.get("swap_usage") if isinstance(memory, Mapping) else None
    # Of VMs it is the guest's own swap that agents inside tell of, and Tare's has none.
    if isinstance(swap, int) and swap > 0:
        yield f"swapped: {swap} bytes of it"
