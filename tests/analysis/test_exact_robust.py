"""Hodges & Lehmann's estimate and Wilcoxon's interval, by counting every pair and every subset."""

from __future__ import annotations

import itertools
import math
import statistics

import numpy as np
import pytest
from scipy.special import ndtri

from tare.analysis.statistics.robust import hodges_lehmann

CONFIDENCES = (0.5, 0.8, 0.95, 0.96875, 0.99)
"""That of 0.96875 leaves a tail of 1/64, which rank sums reach exactly."""


def depth_of(n: int, confidence: float) -> int:
    """Count the least rank sums that together are at most as likely as one tail."""
    sums = [
        sum(rank for rank, taken in enumerate(subset, 1) if taken)
        for subset in itertools.product((False, True), repeat=n)
    ]
    least = 0
    while sum(each <= least for each in sums) / 2**n <= (1 - confidence) / 2:
        least += 1
    return least


@pytest.mark.parametrize("n", range(1, 10))
def test_the_interval_ends_at_the_order_statistics_that_rank_sums_allow(n: int) -> None:
    rows = np.random.default_rng(n).standard_normal((3, n))
    for confidence in CONFIDENCES:
        depth = depth_of(n, confidence)
        found = hodges_lehmann(rows, confidence)
        for row, centre, low, high in zip(rows.tolist(), *found, strict=True):
            pairs = sorted(
                (row[i] + row[j]) / 2 for i in range(n) for j in range(i, n)
            )  # Each with itself too.
            assert centre == pytest.approx(statistics.median(pairs), abs=1e-15)
            expected = (pairs[depth - 1], pairs[-depth]) if depth else (-math.inf, math.inf)
            assert (low, high) == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize("n", [49, 50, 60])
def test_from_fifty_blocks_on_rank_sums_are_taken_for_normal(n: int) -> None:
    values = [float(2**place) for place in range(n)]  # All pairs' means differ.
    pairs = sorted((a + b) / 2 for i, a in enumerate(values) for b in values[i:])
    for confidence in (0.9, 0.95):
        tail = (1 - confidence) / 2
        mean, variance = n * (n + 1) / 4, n * (n + 1) * (2 * n + 1) / 24
        depth = math.floor(mean + float(ndtri(tail)) * math.sqrt(variance))
        if n < 50:
            depth = counted_depth(n, tail)
        found = hodges_lehmann(values, confidence)
        assert float(found.low[0]) == pairs[depth - 1]
        assert float(found.high[0]) == pairs[-depth]


def counted_depth(n: int, tail: float) -> int:
    """The same for many: how many subsets of ranks have each sum, in whole numbers."""
    ways = [1]
    for rank in range(1, n + 1):
        ways = [
            (ways[total] if total < len(ways) else 0) + (ways[total - rank] if total >= rank else 0)
            for total in range(len(ways) + rank)
        ]
    depth, below = 0, ways[0]
    while below / 2**n <= tail:
        depth += 1
        below += ways[depth]
    return depth


def test_a_confidence_no_pair_reaches_leaves_the_centre_unbounded() -> None:
    values = np.arange(50.0)
    for confidence in (1 - 1e-15, 1 - 1e-16):
        found = hodges_lehmann(values, confidence)
        assert (float(found.low[0]), float(found.high[0])) == (-math.inf, math.inf)
    assert math.isfinite(float(hodges_lehmann(values, 0.9999)[1][0]))
