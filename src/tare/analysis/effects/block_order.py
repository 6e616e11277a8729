"""Serial dependence of effects: whether successive blocks are correlated, and wider intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tare.analysis.effects.estimates import Estimate, Pair
from tare.analysis.effects.results import Interval
from tare.analysis.statistics.bootstrap import seed_from
from tare.analysis.statistics.serial import (
    LEAST_BLOCKS,
    Serial,
    held,
    open_correlation,
    ranks,
    serial,
    widening,
)

SURE = 0.01
"""The share of arms with independent blocks whose intervals are widened although they need not be.
A true difference of such an arm may stay undecided."""


class BlockOrder(NamedTuple):
    """The serial dependence of one effect; a p is adjusted over the arm's headline metrics.

    Args:
        lag: The correlation of each block with the one before.
        lag_p: The p-value of ``lag``.
        drift: The correlation of blocks with their order.
        drift_p: The p-value of ``drift``.
        together: p of the lag correlations of all the arm's headline metrics together.
        wider: The factor that widens its interval if the arm's blocks are correlated; 1 if not.
        surest: The factor for an interval over all of the arm's headline metrics together.
        held: The factor if no correlation of blocks was found, but is not excluded either.
    """

    lag: float
    lag_p: float
    drift: float
    drift_p: float
    together: float = 1.0
    wider: float = 1.0
    surest: float = 1.0
    held: float = 1.0

    # Several tests of one order share the level: the test of all metrics together has half of it.

    def drifts(self, level: float) -> bool:
        """Return whether its own blocks drift."""
        return self.drift_p < level / 4

    def lags(self, level: float) -> bool:
        """Return whether each of its own blocks resembles the one before."""
        return self.lag_p < level / 4

    def all_lag(self, level: float) -> bool:
        """Return whether blocks resemble the ones before, over all the arm's metrics together."""
        return self.together < level / 2

    def is_dependent(self, level: float) -> bool:
        """Return whether its blocks are correlated, by themselves or over all metrics."""
        return self.drifts(level) or self.lags(level) or self.all_lag(level)


def order_of_each(tests: Serial) -> list[BlockOrder]:
    """Return the results of `serial` for the metrics of one arm, one by one."""
    by_metric = zip(tests.lag, tests.lag_p, tests.drift, tests.drift_p, strict=True)
    return [
        BlockOrder(float(lag), float(lag_p), float(drift), float(drift_p), tests.together)
        for lag, lag_p, drift, drift_p in by_metric
    ]


def orders(
    pairs: Sequence[Pair], seed: str, confidence: float, *, looks: bool = False
) -> dict[int, BlockOrder]:
    """Return the serial dependence of headline metrics that have all blocks, by index of the pair.

    If the blocks of one metric are correlated, those of all metrics of the arm count as correlated:
    they were measured in the same boots.

    Args:
        pairs: All pairs.
        seed: Text that the shuffles depend on.
        confidence: Nominal coverage of the ordinary intervals.
        looks: Whether the study is group-sequential.
    """
    by_arm: dict[str, list[int]] = {}
    for i, pair in enumerate(pairs):
        if pair.measured.headline and len(pair.blocks) >= LEAST_BLOCKS:
            by_arm.setdefault(pair.arm, []).append(i)
    found: dict[int, BlockOrder] = {}
    for arm, indices in by_arm.items():
        most = max(len(pairs[i].blocks) for i in indices)
        whole = [i for i in indices if len(pairs[i].blocks) == most]
        values = np.array([pairs[i].adjusted for i in whole])
        if not all(pairs[i].typical for i in whole):
            # A single boot would dominate the values of tails. Ranks show the order as well.
            values = ranks(values)
        tests = serial(values, seed_from(seed, "order", arm))
        each = with_widening(tests, most, confidence, len(indices), looks=looks)
        found.update(zip(whole, each, strict=True))
        correlation = open_correlation(tests.lag, tests.spread, most, looks=looks)
        for i in indices:
            if i not in found and correlation:
                blocks = len(pairs[i].blocks)
                factor = held(correlation, blocks, confidence, len(indices))
                found[i] = BlockOrder(0.0, 1.0, 0.0, 1.0, held=factor)
    return found


def with_widening(
    tests: Serial, blocks: int, confidence: float, family: int, *, looks: bool = False
) -> list[BlockOrder]:
    """Return the results of `serial` for the metrics of one arm, with the factors of intervals.

    Args:
        tests: The results for the arm's metrics that have all blocks.
        blocks: The number of these blocks.
        confidence: Nominal coverage of the ordinary intervals.
        family: The number of the arm's headline metrics.
        looks: Whether the study is group-sequential.
    """
    orders = order_of_each(tests)
    if any(one.is_dependent(SURE) for one in orders):
        by_itself = widening(tests.lag, blocks, confidence)
        over_all = widening(tests.lag, blocks, confidence, family)
        orders = [
            one._replace(wider=float(wider), surest=float(surest))
            for one, wider, surest in zip(orders, by_itself, over_all, strict=True)
        ]
    if correlation := open_correlation(tests.lag, tests.spread, blocks, looks=looks):
        factor = held(correlation, blocks, confidence, family)
        orders = [one._replace(held=factor) for one in orders]
    return orders


def stretched(interval: Interval | None, estimate: float, factor: float) -> Interval | None:
    """Return an interval widened about its estimate by a factor."""
    if interval is None or factor <= 1:
        return interval
    low, high = (estimate + factor * (end - estimate) for end in (interval.low, interval.high))
    return replace(interval, low=low, high=high)


def stretched_ratio(interval: Interval | None, estimate: float, factor: float) -> Interval | None:
    """Return the interval of a ratio widened about its estimate by a factor, in logarithms."""
    if interval is None or factor <= 1 or min(interval.low, estimate) <= 0:
        return interval
    if math.isinf(interval.high):
        return interval
    ends = (math.log(end / estimate) for end in (interval.low, interval.high))
    low, high = (estimate * math.exp(min(max(factor * end, -700.0), 700.0)) for end in ends)
    return replace(interval, low=low, high=high)


def widened(
    pair: Pair, estimate: Estimate, order: BlockOrder | None
) -> tuple[Interval | None, Interval | None, float]:
    """Return the interval to show, the stricter one that verdicts need too, and the first's factor.

    The stricter interval is simultaneous over the arm's headline metrics. If blocks are shown to be
    independent, the first is the ordinary interval, and the second None.
    """
    interval = estimate.student_t if pair.typical else estimate.order
    if pair.trimmed:
        interval = estimate.trimmed
    if order is None or max(order.wider, order.held) <= 1:
        return interval, None, 1.0
    wide = stretched_ratio if pair.scale == "ratio" else stretched
    shown, surest = (
        wide(interval, estimate.estimate, factor)
        for factor in (order.wider, max(order.surest, order.held))
    )
    return shown, surest, order.wider
