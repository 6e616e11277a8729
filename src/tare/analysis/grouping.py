"""Observations by what they measure: key, arm, block, repeat."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from tare.analysis.results import Better, BlockValue, Key, Kind
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

    def positive(self, arms: Sequence[str]) -> bool:
        """Whether all values of these arms are above zero, so that ratios exist."""
        return all(
            value > 0
            for arm in arms
            for block in self.arms.get(arm, {}).values()
            for repeat in block
            for value in repeat
        )


def group(runs: Sequence[RunData]) -> dict[Key, Measured]:
    """Return the observations of all runs by key, in order of first appearance."""
    measured: dict[Key, Measured] = {}
    cells: dict[tuple[Key, str], dict[BlockId, dict[str, list[float]]]] = {}
    for run in runs:
        for row in run.observations.select(_COLUMNS).iter_rows():
            key = Key(*row[3:8])
            if key not in measured:
                measured[key] = Measured(
                    row[8], cast(Better, row[9]), cast(Kind, row[10]), bool(row[11])
                )
            blocks = cells.setdefault((key, row[2]), {})
            blocks.setdefault((row[0], row[1]), {}).setdefault(row[12], []).append(row[13])
    for (key, arm), blocks in cells.items():
        measured[key].arms[arm] = {
            block: list(by_cell.values()) for block, by_cell in sorted(blocks.items())
        }
    return measured


def block_values(blocks: dict[BlockId, Block], *, logs: bool) -> tuple[BlockValue, ...]:
    """Return each block's mean over its repeats' means.

    Args:
        blocks: Values by block.
        logs: Whether means are geometric; all values are above zero then.
    """
    return tuple(
        BlockValue(run, number, _block_value(block, logs=logs), len(block))
        for (run, number), block in blocks.items()
    )


def _block_value(block: Block, *, logs: bool) -> float:
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
