"""Observations by what they measure: key, arm, block, repeat."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from tare.analysis.results import Better, Key, Kind
from tare.analysis.rundata import RunData

BlockId = tuple[str, int]
"""Run and block number: blocks of different runs are different blocks."""

Block = list[list[float]]
"""Values of one block by repeat and iteration."""

_COLUMNS = (
    "run",
    "block",
    "arm",
    "scenario",
    "workload",
    "parameters",
    "role",
    "metric",
    "unit",
    "better",
    "kind",
    "headline",
    "cell",
    "value",
)


@dataclass
class Measured:
    """One metric over all arms and blocks.

    Args:
        unit: SI unit.
        better: Which direction is an improvement.
        kind: ``typical``, ``tail`` or ``maximum``.
        headline: Whether it is for the first screen.
        arms: Values by arm and block.
    """

    unit: str
    better: Better
    kind: Kind
    headline: bool
    arms: dict[str, dict[BlockId, Block]] = field(default_factory=dict)
    # Worked out once; not handed on by `replace`, which may give `arms` another meaning.
    _values: dict[tuple[str, bool], dict[BlockId, float]] = field(
        default_factory=dict, init=False, compare=False
    )
    _positive: dict[str, bool] = field(default_factory=dict, init=False, compare=False)

    def values(self, arm: str, *, logs: bool) -> dict[BlockId, float]:
        """Return each block's mean over its repeats' means, worked out once.

        Args:
            arm: One of ``arms``.
            logs: Whether means are geometric; all values are above zero then.
        """
        if (arm, logs) not in self._values:
            self._values[arm, logs] = {
                block: _block_value(values, logs=logs) for block, values in self.arms[arm].items()
            }
        return self._values[arm, logs]

    def positive(self, arms: Sequence[str]) -> bool:
        """Whether all values of these arms are above zero, so that ratios exist."""
        return all(map(self._all_positive, arms))

    def _all_positive(self, arm: str) -> bool:
        if arm not in self._positive:
            self._positive[arm] = all(
                value > 0
                for block in self.arms.get(arm, {}).values()
                for repeat in block
                for value in repeat
            )
        return self._positive[arm]


def group(runs: Sequence[RunData]) -> dict[Key, Measured]:
    """Return the observations of all runs by key, in order of first appearance."""
    measured: dict[Key, Measured] = {}
    cells: dict[tuple[Key, str], dict[BlockId, dict[str, list[float]]]] = {}
    for run in runs:
        for row in run.observations.select(_COLUMNS).iter_rows():
            run_id, number, arm, *_, unit, better, kind, headline, cell, value = row
            key = Key(*row[3:8])
            if key not in measured:
                measured[key] = Measured(
                    unit, cast(Better, better), cast(Kind, kind), bool(headline)
                )
            blocks = cells.get((key, arm))
            if blocks is None:
                blocks = cells[key, arm] = {}
            by_cell = blocks.get((run_id, number))
            if by_cell is None:
                blocks[run_id, number] = {cell: [value]}
            else:
                by_cell.setdefault(cell, []).append(value)
    for (key, arm), blocks in cells.items():
        measured[key].arms[arm] = {
            block: list(by_cell.values()) for block, by_cell in sorted(blocks.items())
        }
    return measured


def _block_value(block: Block, *, logs: bool) -> float:
    if len(block) == 1 and len(block[0]) == 1:
        value = block[0][0]
        return math.exp(math.log(value)) if logs else value
    if logs:
        means = [math.fsum(map(math.log, repeat)) / len(repeat) for repeat in block]
        return math.exp(math.fsum(means) / len(means))
    means = [math.fsum(repeat) / len(repeat) for repeat in block]
    return math.fsum(means) / len(means)


def logs_of(block: Block) -> Block:
    """Return the logs of a block's values, in the same nesting."""
    return [[math.log(value) for value in repeat] for repeat in block]


def pooled(blocks: dict[BlockId, Block]) -> np.ndarray:
    """Return all values of all blocks in one array."""
    return np.array([v for block in blocks.values() for repeat in block for v in repeat])
