"""Intervals of medians, in whole numbers, and of resampled medians, by the same draws."""

from __future__ import annotations

import math
import statistics
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from tare.analysis.statistics.tails import (
    boot_level_interval,
    least_blocks_for_median,
    median_interval,
)


@pytest.mark.parametrize(
    ("confidence", "blocks"),
    [(0.25, 2), (0.5, 2), (0.51, 3), (0.75, 3), (0.9, 5), (0.95, 6), (0.96875, 6), (0.97, 7)],
)
def test_so_many_blocks_least_and_greatest_enclose_the_median(
    confidence: float, blocks: int
) -> None:
    assert least_blocks_for_median(confidence) == blocks
    assert 1 - Fraction(2, 2**blocks) >= confidence > 1 - Fraction(2, 2 ** (blocks - 1))
    assert median_interval(range(blocks), confidence) is not None
    assert median_interval(range(blocks - 1), confidence) is None


@pytest.mark.parametrize(("beyond", "blocks"), [(0.8e-12, 2), (1.2e-12, 3)])
def test_a_confidence_above_what_blocks_reach_by_rounding_is_reached(
    beyond: float, blocks: int
) -> None:
    assert least_blocks_for_median(1 - 0.5 * 2**-beyond) == blocks


def ends_by_hand(values: list[float], confidence: float) -> tuple[float, float] | None:
    """Hettmansperger & Sheather's (1986) interpolation, in fractions."""
    n, asked = len(values), Fraction(confidence)

    def coverage(depth: int) -> Fraction:
        return 1 - 2 * Fraction(sum(math.comb(n, k) for k in range(depth)), 2**n)

    depths = [depth for depth in range(1, n // 2 + 1) if coverage(depth) >= asked]
    if not depths:
        return None
    depth = max(depths)
    share = (coverage(depth) - asked) / (coverage(depth) - coverage(depth + 1))
    weight = float((n - depth) * share / (depth + (n - 2 * depth) * share))
    ordered = sorted(values)
    rising, falling = ordered, ordered[::-1]
    return (
        (1 - weight) * rising[depth - 1] + weight * rising[depth],
        (1 - weight) * falling[depth - 1] + weight * falling[depth],
    )


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 7, 8, 11, 20, 41])
@pytest.mark.parametrize("confidence", [0.01, 0.2, 0.4, 0.5, 0.75, 0.9, 0.95, 0.99])
def test_interval_of_a_median_is_between_two_order_statistics(n: int, confidence: float) -> None:
    values = np.random.default_rng(n).standard_normal(n).tolist()
    expected = ends_by_hand(values, confidence)
    found = median_interval(values, confidence)
    assert found is None if expected is None else found == pytest.approx(expected, rel=1e-10)


def test_no_value_has_no_interval() -> None:
    assert median_interval([], 0.5) is None


@pytest.mark.parametrize("n", [2, 5, 8])
@pytest.mark.parametrize("confidence", [0.8, 0.95])
@pytest.mark.parametrize("resamples", [None, 301])
def test_a_resampled_medians_interval_has_the_tails_of_student(
    n: int, confidence: float, resamples: int | None
) -> None:
    values = np.random.default_rng(n).standard_normal(n).tolist()
    drawn = np.random.default_rng(9).integers(0, n, size=(resamples or 2000, n)).tolist()
    ordered = sorted(values)
    medians = sorted(statistics.median([ordered[place] for place in row]) for row in drawn)
    tail = float(stats.norm.sf(stats.t.ppf(0.5 + confidence / 2, n - 1)))
    expected = [float(np.quantile(medians, q)) for q in (tail, 1 - tail)]
    found = (
        boot_level_interval(values, confidence, 9)
        if resamples is None
        else boot_level_interval(values, confidence, 9, resamples)
    )
    assert found == pytest.approx(expected, rel=1e-12)
