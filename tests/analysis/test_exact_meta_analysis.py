"""Run against run, and runs together: against plain loops, all orders of ranks, and scipy."""

from __future__ import annotations

import itertools
import math
import statistics

import pytest
from scipy.stats import t, ttest_ind

from tare.analysis.statistics.meta_analysis import (
    PooledEffect,
    Shift,
    mean_shift,
    pool,
    rank_shift,
    seldom_shift,
)

FIRST, SECOND = [0.31, 0.1, 0.44, 0.25, 0.6], [0.9, 0.35, 1.4]


def by_scipy(first: list[float], second: list[float], confidence: float, *, equal: bool) -> Shift:
    found = ttest_ind(second, first, equal_var=equal).confidence_interval(confidence)
    return Shift(statistics.mean(second) - statistics.mean(first), found.low, found.high)


@pytest.mark.parametrize("confidence", [0.95, 0.6])
@pytest.mark.parametrize(("first", "second"), [(FIRST, SECOND), (SECOND, FIRST[:2])])
def test_a_shift_of_means_has_welchs_interval(
    first: list[float], second: list[float], confidence: float
) -> None:
    expected = by_scipy(first, second, confidence, equal=False)
    assert mean_shift(first, second, confidence) == pytest.approx(expected, rel=1e-9)


def test_one_block_bounds_no_shift_and_blocks_that_agree_leave_no_doubt() -> None:
    for first, second in (([1.0], SECOND), (FIRST, [1.0]), ([1.0], [2.0])):
        shift = statistics.mean(second) - statistics.mean(first)
        nothing = pytest.approx(Shift(shift, -math.inf, math.inf))
        assert mean_shift(first, second, 0.95) == nothing
        assert seldom_shift(first, second, 0.95) == nothing
    assert mean_shift([1.0, 1.0], [3.5] * 3, 0.95) == Shift(2.5, 2.5, 2.5)


@pytest.mark.parametrize("confidence", [0.95, 0.8])
def test_a_shift_of_what_is_seldom_there_has_the_wider_of_two_intervals(confidence: float) -> None:
    nothing, some = [0.0, 0.0], [0.0, 0.0, 0.0, 8.0, 3.0]
    for first, second in ((nothing, some), (some, nothing), ([0.0] * 4, [*some, 0.0])):
        pooled = by_scipy(first, second, confidence, equal=True)
        assert pooled.high > mean_shift(first, second, confidence).high
        assert seldom_shift(first, second, confidence) == pytest.approx(pooled, rel=1e-9)
    scattered, steady = [0.0, 50.0], [0.0, 1.0, 0.0, 0.0, 2.0]
    welch = by_scipy(scattered, steady, confidence, equal=False)
    assert by_scipy(scattered, steady, confidence, equal=True).high < welch.high
    assert seldom_shift(scattered, steady, confidence) == pytest.approx(welch, rel=1e-9)


def ranks_depth(first: int, second: int, confidence: float) -> int:
    """Count the values of Mann & Whitney's statistic that are too unlikely over all rank orders."""
    orders = list(itertools.combinations(range(first + second), first))
    sums = [sum(order) - first * (first - 1) // 2 for order in orders]
    shares = [sum(s <= u for s in sums) / len(orders) for u in range(first * second + 1)]
    return sum(share <= (1 - confidence) / 2 for share in shares)


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.95])
@pytest.mark.parametrize("sizes", [(1, 1), (1, 3), (3, 1), (2, 3), (4, 3), (3, 6), (6, 4)])
def test_a_shift_of_medians_is_bounded_by_ranks(sizes: tuple[int, int], confidence: float) -> None:
    first = [(7 * i % 13) / 3 for i in range(sizes[0])]
    second = [1 + (5 * i % 11) / 4 for i in range(sizes[1])]
    pairs = sorted(b - a for a in first for b in second)
    depth = ranks_depth(*sizes, confidence)
    ends = (pairs[depth - 1], pairs[len(pairs) - depth]) if depth else (-math.inf, math.inf)
    expected = Shift(statistics.median(pairs), *ends)
    assert rank_shift(first, second, confidence) == pytest.approx(expected)


def test_some_of_these_bound_and_some_do_not() -> None:
    assert [ranks_depth(*sizes, 0.5) for sizes in ((1, 1), (1, 3), (2, 3))] == [0, 1, 2]


def random_effects(effects: list[float], errors: list[float], confidence: float) -> PooledEffect:
    """DerSimonian & Laird 1986, Hartung & Knapp 2001, Higgins & Thompson 2002, in loops."""
    runs = len(effects)
    weights = [1 / error**2 for error in errors]
    common = sum(w * y for w, y in zip(weights, effects, strict=True)) / sum(weights)
    q = sum(w * (y - common) ** 2 for w, y in zip(weights, effects, strict=True))
    scale = sum(weights) - sum(w**2 for w in weights) / sum(weights)
    tau2 = max(0.0, (q - (runs - 1)) / scale)
    weights = [1 / (error**2 + tau2) for error in errors]
    mean = sum(w * y for w, y in zip(weights, effects, strict=True)) / sum(weights)
    spread = sum(w * (y - mean) ** 2 for w, y in zip(weights, effects, strict=True)) / (runs - 1)
    error = math.sqrt(max(1.0, spread) / sum(weights))
    half = float(t.ppf(0.5 + confidence / 2, runs - 1)) * error
    return PooledEffect(
        mean, mean - half, mean + half, math.sqrt(tau2), max(0.0, 1 - (runs - 1) / q)
    )


@pytest.mark.parametrize("confidence", [0.95, 0.8])
@pytest.mark.parametrize(
    ("effects", "errors"),
    [
        ([0.1, 0.5], [0.1, 0.2]),
        ([0.1, 0.5, -0.4], [0.05, 0.2, 0.1]),
        ([0.1, 0.12, 0.09, 0.1], [0.1, 0.2, 0.05, 0.3]),  # less apart than chance has them
        ([0.1, 0.1, 0.16], [0.01, 0.02, 0.04]),
        ([10.0, 30.0, 11.0, 12.0], [2.0, 3.0, 1.0, 0.5]),
    ],
)
def test_runs_together_have_a_random_effects_mean(
    effects: list[float], errors: list[float], confidence: float
) -> None:
    expected = random_effects(effects, errors, confidence)
    assert pool(effects, errors, confidence) == pytest.approx(expected, rel=1e-9, abs=1e-15)


def test_runs_that_agree_are_known_as_well_as_their_errors_say() -> None:
    assert pool([0.25], [0.1], 0.95) == PooledEffect(0.25, -math.inf, math.inf, 0.0, 0.0)
    found = pool([0.0, 0.0, 0.0], [0.3, 0.3, 0.3], 0.95)
    half = float(t.ppf(0.975, 2)) * 0.3 / math.sqrt(3)
    assert found == pytest.approx(PooledEffect(0.0, -half, half, 0.0, 0.0))
    # What has no error at all is taken for known to 10⁻⁹.
    exact = pool([0.0, 0.0], [0.0, 0.0], 0.95)
    half = float(t.ppf(0.975, 1)) * 1e-9 / math.sqrt(2)
    assert (exact.low, exact.high) == pytest.approx((-half, half), rel=1e-9)
    assert (exact.between, exact.inconsistency) == (0, 0)
