"""Names of workloads whose arrays were too small to measure memory: they measured a cache."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tare.analysis.data.rundata import RunData
from tare.analysis.effects.results import Key
from tare.events.results import CellResult
from tare.units import format_size

ENOUGH = 4
"""The least size of an array in last-level caches that measures memory (STREAM's rule)."""
HELD = 3
"""The number of arrays that a cache must hold at once."""
_CAPPED = re.compile(r"each array has (\d+) MiB instead of (\d+) MiB \(four times the last-level")
"""The warning of runs whose cells do not record the sizes."""

What = tuple[str, str, str]
"""Scenario, workload and parameters."""


class ShownAs(NamedTuple):
    """The name of a workload in reports: in a word or two, and with the sizes.

    ``cache`` is true if the last-level cache holds all of its arrays, so that no part of memory was
    measured.
    """

    short: str
    words: str
    cache: bool


def shown_names(runs: Iterable[RunData]) -> Mapping[What, ShownAs]:
    """Return names for workloads that measured a cache although their name says memory.

    The name is the same for all arms. It follows from their smallest arrays and the largest
    last-level cache, because a guest may show a smaller cache than its host has.
    """
    found: dict[What, list[tuple[int, int]]] = {}
    for run in runs:
        for cell in run.cells:
            if cell.status == "ok" and (sizes := _sizes(cell)) is not None:
                what = (cell.scenario, cell.workload, cell.parameters)
                found.setdefault(what, []).append(sizes)
    named = {}
    for what, sizes_of_cells in found.items():
        array = min(array for array, _ in sizes_of_cells)
        cache = max(cache for _, cache in sizes_of_cells)
        if array < ENOUGH * cache:
            named[what] = _name(what[1], array, cache)
    return named


def is_cache(keys: Iterable[Key], named: Mapping[What, ShownAs]) -> bool:
    """Return whether a cache holds the arrays of every metric; false without any metric."""
    found = [named.get((key.scenario, key.workload, key.parameters)) for key in keys]
    return bool(found) and all(name is not None and name.cache for name in found)


def cached_notes(named: Mapping[What, ShownAs]) -> tuple[str, ...]:
    """Return a sentence for each such workload: its name in reports, and why."""
    return tuple(
        dict.fromkeys(
            f"{workload} measured {each.words.removeprefix(f'{workload}: ')}, and reports call it "
            f"that: only arrays of at least {ENOUGH} times the last-level cache measure memory."
            for (_, workload, _), each in named.items()
        )
    )


def _sizes(cell: CellResult) -> tuple[int, int] | None:
    """Return the bytes of an array and of the last-level cache; None if they are unknown."""
    recorded = cell.facts.get("arrays")
    if recorded is not None:
        array, cache = recorded.get("array_bytes"), recorded.get("last_level_bytes")
        return (array, cache) if isinstance(array, int) and isinstance(cache, int) else None
    for warning in cell.warnings:
        if match := _CAPPED.search(warning):
            return int(match[1]) << 20, (int(match[2]) << 20) // ENOUGH
    return None


def _name(workload: str, array: int, cache: int) -> ShownAs:
    held = HELD * array <= cache
    kind = "cache bandwidth" if held else "cache and memory bandwidth"
    short = kind if workload == "memory-bandwidth" else f"{workload}: {kind}"
    sizes = f"arrays {format_size(array)}, last-level cache {format_size(cache)}"
    return ShownAs(short, f"{short} ({sizes})", held)
