"""What the processors' own counters said of cells: misses of the last cache, and bandwidth."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tare.analysis.rundata import RunData

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


def counted(runs: Sequence[RunData]) -> tuple[Counted, ...]:
    """Return what was counted, in the order in which cells came; empty if nothing was asked."""
    found: dict[tuple[str, str, str, str], list[Mapping[str, Any]]] = {}
    hosts: dict[tuple[str, str, str, str], list[Mapping[str, Any]]] = {}
    emulated = frozenset[str]().union(*(run.emulated_arms for run in runs))
    for run in runs:
        for done in run.counted:
            cell, told = done.result, done.result.facts.get("hardware")
            if isinstance(told, Mapping):
                key = (cell.arm, cell.scenario, cell.workload, cell.parameters)
                found.setdefault(key, []).append(told)
                moved = done.result.facts.get("host_memory")
                hosts.setdefault(key, []).append(moved if isinstance(moved, Mapping) else {})
    return tuple(_counted(key, each, hosts[key], key[0] in emulated) for key, each in found.items())


def _counted(
    key: tuple[str, str, str, str],
    told: Sequence[Mapping[str, Any]],
    moved: Sequence[Mapping[str, Any]],
    emulated: bool,
) -> Counted:
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
    )


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
