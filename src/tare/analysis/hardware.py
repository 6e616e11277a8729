"""What the processors' own counters said of cells: misses of the last cache, and bandwidth."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from tare.analysis.rundata import SUBJECT, RunData

LINE_BYTES = 64
"""What a miss of the last-level cache brings from memory on x86-64: one line."""


@dataclass(frozen=True)
class Counted:
    """What was counted in one arm, scenario and workload: means over cells.

    Args:
        cells: How many cells told anything.
        misses_per_s: Accesses to the last-level cache that missed it; None if not counted.
        bandwidth: Bytes per second that these brought from memory; None if not counted.
        miss_share: Misses over all accesses to that cache; None if either was not counted.
        per_cycle: Instructions per cycle; None if either was not counted.
        missing: Why something was not counted; empty if all was.
        of_host: Bytes per second that all CPUs of the host moved to and from memory; None if not
            counted.
        host_missing: Why that was not counted; empty if it was, or was not asked for.
        by_host: Misses per second of the machine's own threads, its vCPUs', as its host counted
            them; None if it did not.
        beside: The same of all other machines of the cell together.
        by_host_missing: Why the host did not count for a machine; empty if it did for all.
    """

    arm: str
    emulated: bool
    scenario: str
    workload: str
    parameters: str
    cells: int
    misses_per_s: float | None
    bandwidth: float | None
    miss_share: float | None
    per_cycle: float | None
    missing: str
    of_host: float | None = None
    host_missing: str = ""
    by_host: float | None = None
    beside: float | None = None
    by_host_missing: str = ""


def counted(runs: Sequence[RunData]) -> tuple[Counted, ...]:
    """Return what was counted, in the order in which cells came; empty if nothing was asked."""
    found: dict[tuple[str, str, str, str], list[Mapping[str, Any]]] = {}
    emulated = frozenset[str]().union(*(run.emulated_arms for run in runs))
    for run in runs:
        for done in run.counted:
            cell = done.result
            if isinstance(cell.facts.get("hardware"), Mapping):
                key = (cell.arm, cell.scenario, cell.workload, cell.parameters)
                found.setdefault(key, []).append(cell.facts)
    return tuple(_counted(key, each, key[0] in emulated) for key, each in found.items())


def _counted(
    key: tuple[str, str, str, str], facts: Sequence[Mapping[str, Any]], emulated: bool
) -> Counted:
    told, moved, by_host = (
        [_object(each, name) for each in facts]
        for name in ("hardware", "host_memory", "host_hardware")
    )
    own = [_object(each, SUBJECT) for each in by_host]
    others = [[_object(each, role) for role in each if role != SUBJECT] for each in by_host]
    misses = _mean(told, "llc_misses", "seconds")
    return Counted(
        *(key[0], emulated, *key[1:]),
        cells=len(told),
        misses_per_s=misses,
        bandwidth=None if misses is None else misses * LINE_BYTES,
        miss_share=_mean(told, "llc_misses", "llc_references"),
        per_cycle=_mean(told, "instructions", "cycles"),
        missing=_why(told),
        of_host=_mean(moved, "bytes", "seconds"),
        host_missing=_why(moved),
        by_host=_mean(own, "llc_misses", "seconds"),
        beside=_together(others),
        by_host_missing=_why([*own, *chain.from_iterable(others)]),
    )


def _object(told: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = told.get(name)
    return found if isinstance(found, Mapping) else {}


def _together(others: Sequence[Sequence[Mapping[str, Any]]]) -> float | None:
    """Return the mean over cells of the misses per second of all other machines of a cell.

    A cell counts only where each of them was counted.
    """
    sums = []
    for machines in others:
        rates = [_mean([each], "llc_misses", "seconds") for each in machines]
        known = [rate for rate in rates if rate is not None]
        if known and len(known) == len(rates):
            sums.append(math.fsum(known))
    return math.fsum(sums) / len(sums) if sums else None


def _why(told: Sequence[Mapping[str, Any]]) -> str:
    """Return the first reason why something was not counted."""
    return next((str(each["missing"]) for each in told if each.get("missing")), "")


def _mean(told: Sequence[Mapping[str, Any]], over: str, under: str) -> float | None:
    """Return the mean quotient over the cells that have both numbers."""
    quotients = [
        float(each[over]) / float(each[under])
        for each in told
        if each.get(over) is not None and float(each.get(under) or 0) > 0
    ]
    return math.fsum(quotients) / len(quotients) if quotients else None
