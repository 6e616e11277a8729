"""Runs in which two arms were up at once, and how long the arms of a duet really ran together."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tare.analysis.data.rundata import RunData

LEAST_OVERLAP = 0.9
"""A smaller share of overlapping time is reported as a flag."""


class Cells(NamedTuple):
    """The cells of one arm that measure the same."""

    scenario: str
    workload: str
    parameters: str
    arm: str


def is_duet(run: RunData) -> bool:
    """Return whether a run's arms were measured at once."""
    return bool((run.study.get("blocks") or {}).get("duet"))


def works_by_turns(run: RunData) -> bool:
    """Return whether a run's arms were up at once and worked by turns."""
    return bool((run.study.get("blocks") or {}).get("turns"))


def overlaps(runs: Iterable[RunData]) -> dict[Cells, float]:
    """Return the mean share of cells' time during which the other arm worked too.

    Args:
        runs: The runs; only duets have such a share.
    """
    found: dict[Cells, list[float]] = {}
    for run in runs:
        for cell in run.cells if is_duet(run) else ():
            share = cell.facts.get("duet", {}).get("share")
            if cell.status == "ok" and share is not None and 0 <= share <= 1:
                key = Cells(cell.scenario, cell.workload, cell.parameters, cell.arm)
                found.setdefault(key, []).append(float(share))
    return {key: fmean(shares) for key, shares in found.items()}
