"""Observations grouped by key, arm, block and repeat."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from tare.analysis.data.rundata import RunData
from tare.analysis.effects.results import Key, OfMetric
from tare.events.metric import Metric

BlockId = tuple[str, int]
"""Run and block number: blocks of different runs are different blocks."""

Block = list[list[float]]
"""Values of one block by repeat and iteration."""


@dataclass
class Measured(OfMetric):
    """One metric over all arms and blocks.

    Args:
        metric: The metric.
        arms: Values by arm and block.
    """

    metric: Metric
    arms: dict[str, dict[BlockId, Block]] = field(default_factory=dict)
    # Caches. `replace` does not copy them, because it may change `arms`.
    _values: dict[tuple[str, bool], dict[BlockId, float]] = field(
        default_factory=dict, init=False, compare=False
    )
    _pooled: dict[str, list[float]] = field(default_factory=dict, init=False, compare=False)
    _raw: dict[str, list[float]] = field(default_factory=dict, init=False, compare=False)
    _positive: dict[str, bool] = field(default_factory=dict, init=False, compare=False)
    _single: dict[str, bool] = field(default_factory=dict, init=False, compare=False)

    def values(self, arm: str, *, logs: bool) -> dict[BlockId, float]:
        """Return each block's mean over its repeats' means; calculate it once.

        Args:
            arm: One of ``arms``.
            logs: Whether means are geometric; all values are above zero then.
        """
        if (arm, logs) not in self._values:
            self._values[arm, logs] = self._block_values(arm, logs)
        return self._values[arm, logs]

    def _block_values(self, arm: str, logs: bool) -> dict[BlockId, float]:
        blocks = self.arms[arm]
        if not self.single(arm):
            return {block: _block_value(values, logs=logs) for block, values in blocks.items()}
        if not logs:
            return {block: values[0][0] for block, values in blocks.items()}
        # Use logarithms, as for a block of many values, so that both are rounded alike.
        exp, log = math.exp, math.log
        return {block: exp(log(values[0][0])) for block, values in blocks.items()}

    def pooled(self, arm: str) -> list[float]:
        """Return all values of all blocks of an arm, which may have none."""
        if arm not in self._pooled:
            blocks = self.arms.get(arm, {}).values()
            self._pooled[arm] = [v for block in blocks for repeat in block for v in repeat]
        return self._pooled[arm]

    def raw(self, arm: str) -> list[float]:
        """Return all recorded values of an arm, even if its boots are averaged."""
        return self._raw[arm] if arm in self._raw else self.pooled(arm)

    def single(self, arm: str) -> bool:
        """Return whether each block of the arm is one value of one repeat, the usual case."""
        if arm not in self._single:
            # No block is without a value, so as many values as blocks are one each.
            self._single[arm] = len(self.pooled(arm)) == len(self.arms[arm])
        return self._single[arm]

    def add(
        self, name: str, blocks: dict[BlockId, Block], *, positive: bool, raw: list[float]
    ) -> None:
        """Add the blocks of several arms that are taken together.

        Args:
            name: Their joint name.
            blocks: Their blocks.
            positive: Whether all values behind them are above zero. A mean may be above zero
                although a value is not; such a mean must not be used in a ratio.
            raw: The recorded values behind them.
        """
        self._raw[name] = raw
        self.arms[name] = blocks
        self._positive[name] = positive

    def positive(self, arms: Sequence[str]) -> bool:
        """Return whether all values of these arms are above zero, so that ratios exist."""
        return all(map(self._all_positive, arms))

    def _all_positive(self, arm: str) -> bool:
        if arm not in self._positive:
            self._positive[arm] = min(self.pooled(arm), default=1.0) > 0
        return self._positive[arm]


_Cells = dict[BlockId, dict[str, list[float]]]
"""Values by block and cell."""


def group(runs: Sequence[RunData]) -> dict[Key, Measured]:
    """Return the observations of all runs by key, in order of first appearance."""
    measured: dict[Key, Measured] = {}
    cells: dict[tuple[Key, str], _Cells] = {}
    # All cells of one arm and part of the study add a metric's values to the same place.
    places: dict[tuple[str, str, str, str], dict[tuple[str, Metric], _Cells]] = {}
    for run in runs:
        for done in run.counted:
            cell = done.result
            part = (cell.scenario, cell.workload, cell.parameters)
            name, block = cell.cell, (cell.run, cell.block)
            of_metric = places.setdefault((*part, cell.arm), {})
            for role, metric, value in done.observed:
                blocks = of_metric.get((role, metric))
                if blocks is None:
                    key = Key(*part, role, metric.name)
                    if key not in measured:
                        measured[key] = Measured(metric)
                    blocks = of_metric[role, metric] = cells.setdefault((key, cell.arm), {})
                by_cell = blocks.get(block)
                if by_cell is None:
                    blocks[block] = {name: [value]}
                else:
                    by_cell.setdefault(name, []).append(value)
    for (key, arm), blocks in cells.items():
        measured[key].arms[arm] = {
            block: list(by_cell.values()) for block, by_cell in sorted(blocks.items())
        }
    return measured


def _block_value(block: Block, *, logs: bool) -> float:
    if logs:
        means = [math.fsum(map(math.log, repeat)) / len(repeat) for repeat in block]
        return math.exp(math.fsum(means) / len(means))
    means = [math.fsum(repeat) / len(repeat) for repeat in block]
    return math.fsum(means) / len(means)


def logs_of(block: Block) -> Block:
    """Return the logs of a block's values, in the same nesting."""
    return [[math.log(value) for value in repeat] for repeat in block]


def taken_together(measured: Measured, arms: tuple[str, ...]) -> dict[BlockId, Block]:
    """Return the joint blocks of several arms that are the same machine, such as a twin pair.

    If each arm has one value in a block, the block's value is their mean (geometric if all values
    are above zero). Repeats are kept as repeats.

    Args:
        measured: The values of one metric.
        arms: The arms.
    """
    geometric = measured.positive(arms)
    found: dict[BlockId, list[Block]] = {}
    for arm in arms:
        for block, values in measured.arms.get(arm, {}).items():
            found.setdefault(block, []).append(values)
    return {block: _joined(several, geometric) for block, several in sorted(found.items())}


def _joined(several: list[Block], geometric: bool) -> Block:
    if len(several) == 1:
        return several[0]
    if any(len(block) != 1 or len(block[0]) != 1 for block in several):
        return [repeat for block in several for repeat in block]
    values = [block[0][0] for block in several]
    if geometric:
        return [[math.exp(math.fsum(map(math.log, values)) / len(values))]]
    return [[math.fsum(values) / len(values)]]
