"""Runs of which two arms were up at once, and how far those of a duet were at work at once."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tare.analysis.data.rundata import RunData

LEAST_BESIDE = 0.9
"""What is alone for a tenth of its time is told."""


class Cells(NamedTuple):
    """The cells of one arm that measure the same."""

    scenario: str
    workload: str
    parameters: str
    arm: str


def is_duet(run: RunData) -> bool:
    """Return whether a run's arms were measured at once."""
    return bool((run.study.get("blocks") or {}).get("duet"))


def by_turns(run: RunData) -> bool:
    """Return whether a run's arms were up at once and worked by turns."""
    return bool((run.study.get("blocks") or {}).get("turns"))


def overlaps(runs: Iterable[RunData]) -> dict[Cells, float]:
    """Return for which share of their time cells had the other arm at work beside them, on average.

    Args:
        runs: The runs; of those that are no duets nothing is returned.
    """
    found: dict[Cells, list[float]] = {}
    for run in runs:
        for cell in run.cells if is_duet(run) else ():
            share = cell.facts.get("duet", {}).get("share")
            if cell.status == "ok" and share is not None and 0 <= share <= 1:
                key = Cells(cell.scenario, cell.workload, cell.parameters, cell.arm)
                found.setdefault(key, []).append(float(share))
    return {key: fmean(shares) for key, shares in found.items()}
