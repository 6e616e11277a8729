"""What the order of blocks tells of effects: that blocks hang together, and how much that hides."""

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
"""Of so few arms whose blocks do not hang together are intervals widened: in each that is, a true
difference may stay undecided."""


class BlockOrder(NamedTuple):
    """What the order of blocks tells of one effect; a p is adjusted over the arm's headlines.

    Args:
        together: p of the lag correlations of all the arm's headlines together.
        wider: How many times wider its interval must be, where blocks of the arm hang together; 1
            where they do not.
        surest: The same for an interval over all of the arm's headline metrics together.
        held: The same where a correlation of blocks was not found, but is not excluded either.
    """

    lag: float
    lag_p: float
    drift: float
    drift_p: float
    together: float = 1.0
    wider: float = 1.0
    surest: float = 1.0
    held: float = 1.0

    # Several looks at one order share the level: all metrics together have half of it.

    def drifts(self, level: float) -> bool:
        """Return whether its own blocks drift."""
        return self.drift_p < level / 4

    def lags(self, level: float) -> bool:
        """Return whether its own blocks are like the ones before."""
        return self.lag_p < level / 4

    def all_lag(self, level: float) -> bool:
        """Return whether blocks of all the arm's headlines together are like the ones before."""
        return self.together < level / 2

    def tells(self, level: float) -> bool:
        """Return whether its blocks hang together, by themselves or with those of all metrics."""
        return self.drifts(level) or self.lags(level) or self.all_lag(level)


def order_of_each(tests: Serial) -> list[BlockOrder]:
    """Return what `serial` tells of the metrics of one arm, one by one."""
    by_metric = zip(tests.lag, tests.lag_p, tests.drift, tests.drift_p, strict=True)
    return [
        BlockOrder(float(lag), float(lag_p), float(drift), float(drift_p), tests.together)
        for lag, lag_p, drift, drift_p in by_metric
    ]


def orders(pairs: Sequence[Pair], seed: str, confidence: float) -> dict[int, BlockOrder]:
    """Return what the order of blocks tells, by index of the pair; of headlines with all blocks.

    Where blocks of one metric hang together, all metrics of the arm are taken to: they were
    measured in the same boots.

    Args:
        pairs: All pairs.
        seed: Text that shuffles depend on.
        confidence: Nominal coverage of the ordinary intervals.
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
            # Tails would let one boot decide: their ranks tell the order as well.
            values = ranks(values)
        tests = serial(values, seed_from(seed, "order", arm))
        each = with_widening(tests, most, confidence, len(indices))
        found.update(zip(whole, each, strict=True))
        correlation = open_correlation(tests.lag, tests.spread, most)
        for i in indices:
            if i not in found and correlation:
                blocks = len(pairs[i].blocks)
                factor = held(correlation, blocks, confidence, len(indices))
                found[i] = BlockOrder(0.0, 1.0, 0.0, 1.0, held=factor)
    return found


def with_widening(tests: Serial, blocks: int, confidence: float, family: int) -> list[BlockOrder]:
    """Return what `serial` reports of the metrics of one arm, with how much wider intervals are.

    Args:
        tests: Of the arm's metrics that have all blocks.
        blocks: How many blocks these are.
        confidence: Nominal coverage of the ordinary intervals.
        family: The arm's headline metrics.
    """
    orders = order_of_each(tests)
    if any(one.tells(SURE) for one in orders):
        by_itself = widening(tests.lag, blocks, confidence)
        over_all = widening(tests.lag, blocks, confidence, family)
        orders = [
            one._replace(wider=float(wider), surest=float(surest))
            for one, wider, surest in zip(orders, by_itself, over_all, strict=True)
        ]
    if correlation := open_correlation(tests.lag, tests.spread, blocks):
        factor = held(correlation, blocks, confidence, family)
        orders = [one._replace(held=factor) for one in orders]
    return orders


def stretched(interval: Interval | None, estimate: float, factor: float) -> Interval | None:
    """Return an interval so many times as wide about its estimate."""
    if interval is None or factor <= 1:
        return interval
    low, high = (estimate + factor * (end - estimate) for end in (interval.low, interval.high))
    return replace(interval, low=low, high=high)


def stretched_ratio(interval: Interval | None, estimate: float, factor: float) -> Interval | None:
    """Return the interval of a ratio so many times as wide about its estimate, by logarithms."""
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
    """Return the interval to show, the one over the arm's metrics that has to agree, and a factor.

    Where blocks are shown to be independent, the first is the ordinary one, and there is no second.
    """
    interval = estimate.student_t if pair.typical else estimate.order
    if order is None or max(order.wider, order.held) <= 1:
        return interval, None, 1.0
    wide = stretched_ratio if pair.scale == "ratio" else stretched
    shown, surest = (
        wide(interval, estimate.estimate, factor)
        for factor in (order.wider, max(order.surest, order.held))
    )
    return shown, surest, order.wider
