"""The processors' own counters over cells: misses of the last cache, and bandwidth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from tare.analysis.data.rundata import SUBJECT, RunData
from tare.events.cell_facts import CellFacts, HardwareCounts

_Count = Literal["seconds", "llc_misses", "llc_references", "instructions", "cycles", "bytes"]

LINE_BYTES = 64
"""The bytes that a miss of the last-level cache reads from memory on x86-64: one line."""


@dataclass(frozen=True)
class CellHardware:
    """The counts of one arm, scenario and workload, as means over cells.

    Args:
        cells: Number of cells with any counts.
        misses_per_s: Accesses to the last-level cache that missed it; None if not counted.
        bandwidth: Bytes per second that these misses read from memory; None if not counted.
        miss_share: Misses over all accesses to that cache; None if either was not counted.
        per_cycle: Instructions per cycle; None if either was not counted.
        missing: Why something was not counted; empty if all was.
        of_host: Bytes per second that all CPUs of the host moved to and from memory; None if not
            counted.
        host_missing: Why ``of_host`` was not counted; empty if it was, or was not requested.
        by_host: Misses per second of the machine's own threads (its vCPUs), as its host counted
            them; None if it did not.
        others: The same for all other machines of the cell together.
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
    others: float | None = None
    by_host_missing: str = ""


def counted(runs: Sequence[RunData]) -> tuple[CellHardware, ...]:
    """Return the counts, in the order of the cells; empty if no counters were requested."""
    found: dict[tuple[str, str, str, str], list[CellFacts]] = {}
    emulated = frozenset[str]().union(*(run.emulated_arms for run in runs))
    for run in runs:
        for done in run.counted:
            cell = done.result
            if "hardware" in cell.facts:
                key = (cell.arm, cell.scenario, cell.workload, cell.parameters)
                found.setdefault(key, []).append(cell.facts)
    return tuple(_counted(key, each, key[0] in emulated) for key, each in found.items())


def _counted(
    key: tuple[str, str, str, str], facts: Sequence[CellFacts], emulated: bool
) -> CellHardware:
    counts: list[HardwareCounts] = [each.get("hardware", {}) for each in facts]
    moved: list[HardwareCounts] = [each.get("host_memory", {}) for each in facts]
    by_host = [each.get("host_hardware", {}) for each in facts]
    own: list[HardwareCounts] = [each.get(SUBJECT, {}) for each in by_host]
    others = [[counts for role, counts in each.items() if role != SUBJECT] for each in by_host]
    misses = _mean(counts, "llc_misses", "seconds")
    return CellHardware(
        *(key[0], emulated, *key[1:]),
        cells=len(counts),
        misses_per_s=misses,
        bandwidth=None if misses is None else misses * LINE_BYTES,
        miss_share=_mean(counts, "llc_misses", "llc_references"),
        per_cycle=_mean(counts, "instructions", "cycles"),
        missing=_why(counts),
        of_host=_mean(moved, "bytes", "seconds"),
        host_missing=_why(moved),
        by_host=_mean(own, "llc_misses", "seconds"),
        others=_mean_misses(others),
        by_host_missing=_why([*own, *chain.from_iterable(others)]),
    )


def _mean_misses(others: Sequence[Sequence[HardwareCounts]]) -> float | None:
    """Return the mean over cells of the misses per second of all other machines of a cell.

    A cell is included only if all of these machines were counted.
    """
    sums = []
    for machines in others:
        rates = [_mean([each], "llc_misses", "seconds") for each in machines]
        known = [rate for rate in rates if rate is not None]
        if known and len(known) == len(rates):
            sums.append(math.fsum(known))
    return math.fsum(sums) / len(sums) if sums else None


def _why(counts: Sequence[HardwareCounts]) -> str:
    """Return the first reason why something was not counted."""
    return next((why for each in counts if (why := each.get("missing"))), "")


def _mean(counts: Sequence[HardwareCounts], over: _Count, under: _Count) -> float | None:
    """Return the mean quotient over the cells that have both numbers."""
    quotients = [
        count / base
        for each in counts
        if (count := each.get(over)) is not None and (base := each.get(under) or 0.0) > 0
    ]
    return math.fsum(quotients) / len(quotients) if quotients else None
