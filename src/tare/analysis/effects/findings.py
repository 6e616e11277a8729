"""Findings that a mean over boots hides: boots in a slower mode, and failed cells."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tare.analysis.data.grouping import BlockId, Measured
from tare.analysis.data.rundata import RunData
from tare.analysis.effects.comparison import FailureRate
from tare.analysis.effects.results import Key
from tare.analysis.statistics.shares import Share, exact_share, fisher_p
from tare.analysis.statistics.slow_boots import slow_boots


class SlowBoots(NamedTuple):
    """The share of an arm's boots that were in a slower mode, and the factor of their slowness."""

    share: Share
    factor: float


@dataclass(frozen=True)
class LostCells:
    """Cells that failed or were withheld, by arm and by what they measured.

    Args:
        blocks: The blocks in which such a cell was lost.
    """

    blocks: Mapping[tuple[str, str, str, str], frozenset[BlockId]]

    def of(self, arm: str, key: Key) -> frozenset[BlockId]:
        """Return the blocks in which an arm's cell of a key was lost."""
        return self.blocks.get((arm, key.scenario, key.workload, key.parameters), frozenset())

    def of_arm_alone(self, arm: str, others: Iterable[str], key: Key) -> frozenset[BlockId]:
        """Return the blocks in which an arm's cell was lost, but no cell of the other arms."""
        lost = self.of(arm, key)
        return lost.difference(*(self.of(other, key) for other in others)) if lost else lost


def slow_modes(
    measured: Mapping[Key, Measured], arms: Sequence[str], confidence: float
) -> dict[tuple[Key, str], SlowBoots]:
    """Return the slow boots of each headline metric and arm that has any.

    Args:
        measured: All values.
        arms: The arms.
        confidence: The confidence of the share's interval.
    """
    found = {}
    for key, values in measured.items():
        there = [arm for arm in arms if arm in values.arms]
        if not values.headline or values.better == "neither" or not values.positive(there):
            continue
        blocks = sorted({block for arm in there for block in values.arms[arm]})
        logs = np.full((len(there), len(blocks)), np.nan)
        for row, arm in enumerate(there):
            of_arm = values.values(arm, logs=True)
            logs[row] = [math.log(of_arm[b]) if b in of_arm else np.nan for b in blocks]
        worse = logs if values.better == "lower" else -logs
        for arm, ours, slow in zip(there, worse, slow_boots(worse), strict=True):
            if slow.any():
                off = float(np.median(ours[slow]) - np.nanmedian(ours[~slow]))
                boots = int((~np.isnan(ours)).sum())
                share = exact_share(int(slow.sum()), boots, confidence)
                found[key, arm] = SlowBoots(share, math.exp(min(off, 700.0)))
    return found


def lost_cells(runs: Iterable[RunData]) -> LostCells:
    """Return the cells of all runs that do not count."""
    found: dict[tuple[str, str, str, str], set[BlockId]] = {}
    for run in runs:
        for cell in run.cells:
            if cell.status != "ok":
                what = (cell.arm, cell.scenario, cell.workload, cell.parameters)
                found.setdefault(what, set()).add((run.run, cell.block))
    return LostCells({what: frozenset(blocks) for what, blocks in found.items()})


def failure_rates(
    runs: Sequence[RunData], baselines: Mapping[str, str], confidence: float
) -> tuple[FailureRate, ...]:
    """Return the failure rate of each arm, if any cell of it or of its baseline failed.

    Args:
        runs: The runs.
        baselines: The baseline of each arm.
        confidence: The confidence of the intervals.
    """
    cells: dict[str, list[int]] = {}
    boots: dict[str, dict[tuple[BlockId, str], bool]] = {}
    for run in runs:
        for cell in run.cells:
            lost = cell.status != "ok"
            count = cells.setdefault(cell.arm, [0, 0])
            count[0] += lost
            count[1] += 1
            of_arm = boots.setdefault(cell.arm, {})
            boot = ((run.run, cell.block), cell.scenario)
            of_arm[boot] = of_arm.get(boot, False) or lost
    emulated = frozenset[str]().union(*(run.emulated_arms for run in runs))
    found = []
    for arm, baseline in baselines.items():
        ours, theirs = cells.get(arm, [0, 0]), cells.get(baseline, [0, 0])
        if arm == baseline or not (ours[0] or theirs[0]):
            continue
        own, base = boots.get(arm, {}), boots.get(baseline, {})
        found.append(
            FailureRate(
                arm=arm,
                emulated=arm in emulated,
                baseline=baseline,
                failed=exact_share(ours[0], ours[1], confidence),
                baseline_failed=exact_share(theirs[0], theirs[1], confidence),
                boots=exact_share(sum(own.values()), max(1, len(own)), confidence),
                p=fisher_p(sum(own.values()), len(own), sum(base.values()), len(base)),
            )
        )
    return tuple(found)
