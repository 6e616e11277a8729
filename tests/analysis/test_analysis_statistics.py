"""Each statistical part by itself, against a second way to the same figure."""

from __future__ import annotations

import itertools
import math
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from analysis.analysis_simulate import some
from tare.analysis.effects import noise
from tare.analysis.statistics import (
    bootstrap,
    dip,
    logratio,
    repeats,
    tails,
    warmup,
)

finite = st.floats(-1e6, 1e6, allow_nan=False)


def test_t_intervals_agree_with_scipy() -> None:
    values = np.array([3.1, 2.9, 3.4, 3.0, 3.3])
    found = logratio.mean_interval(values, 0.99)
    expected = stats.t.interval(0.99, 4, values.mean(), stats.sem(values))
    assert (found.low, found.high) == pytest.approx(expected)
    assert logratio.error_of_mean(values, 0.99) == pytest.approx((expected[1] - expected[0]) / 2)


def test_a_t_interval_needs_two_blocks_and_a_confidence() -> None:
    with pytest.raises(ValueError, match="two blocks"):
        logratio.t_quantile(0.95, 0)
    with pytest.raises(ValueError, match="between 0 and 1"):
        logratio.t_quantile(95, 3)


@pytest.mark.parametrize("confidence", [0.8, 0.9, 0.95, 0.99, 0.999])
def test_least_blocks_for_a_median(confidence: float) -> None:
    n = tails.least_blocks_for_median(confidence)
    assert tails.median_interval(np.arange(n), confidence) is not None
    assert tails.median_interval(np.arange(n - 1), confidence) is None


@given(st.lists(finite, min_size=6, max_size=30))
def test_median_intervals_hold_the_median(values: list[Any]) -> None:
    low, high = some(tails.median_interval(values, 0.95))
    slack = 1e-9 * max(1.0, *map(abs, values))
    assert low - slack <= float(np.median(values)) <= high + slack


MANY = 600
"""More metrics than are worked on at a time."""


def test_many_metrics_at_once_have_the_intervals_of_each_by_itself() -> None:
    rows = np.random.default_rng(5).normal(0.02, 0.05, (2, MANY, 9))
    arm, base = (
        bootstrap.Nested(side[:, :, None, None], np.ones(9, np.int64), np.ones((9, 1), np.int64))
        for side in rows
    )
    low, high = bootstrap.paired_interval(arm, base, 0.95, seed=3)
    for i in (0, 255, 256, MANY - 1):
        ours, theirs = (bootstrap.nest_singles(side[i].tolist()) for side in rows)
        ends = bootstrap.paired_interval(ours, theirs, 0.95, seed=3)
        assert (low[i], high[i]) == pytest.approx((float(ends[0][0]), float(ends[1][0])), rel=1e-12)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=12))
def test_single_values_nest_as_blocks_of_one_value(values: list[float]) -> None:
    found, whole = bootstrap.nest_singles(values), bootstrap.nest([[[v]] for v in values])
    for one, other in zip(found, whole, strict=True):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)


def test_bootstrap_is_repeatable_and_degenerates_to_the_mean() -> None:
    arm = bootstrap.nest([[[1.0]], [[2.0]], [[4.0]]])
    base = bootstrap.nest([[[0.0]], [[0.0]], [[0.0]]])
    first = bootstrap.paired_interval(arm, base, 0.95, seed=3)
    again = bootstrap.paired_interval(arm, base, 0.95, seed=3)
    assert first[0] == again[0]
    assert first[1] == again[1]
    low, high = bootstrap.paired_interval(base, base, 0.95, seed=3)
    assert low == high == [0.0]


@pytest.mark.parametrize("holes", [[], [[]], [[[1.0]], []], [[[]]], [[[1.0]], [[2.0], []]]])
def test_empty_blocks_are_not_resampled(holes: list[list[list[float]]]) -> None:
    with pytest.raises(ValueError, match="every block needs"):
        bootstrap.nest(holes)


def test_bootstrap_means_respect_ragged_nesting() -> None:
    ragged = bootstrap.nest([[[1.0, 3.0], [5.0]], [[7.0]]])
    assert bootstrap.block_means(ragged).tolist() == [[3.5, 7.0]]
    base = bootstrap.nest([[[0.0]], [[0.0]]])
    low, high = bootstrap.paired_interval(ragged, base, 0.95, seed=1)
    assert low[0] <= 5.25 <= high[0]
    with pytest.raises(ValueError, match="same metrics and blocks"):
        bootstrap.paired_interval(ragged, bootstrap.nest([[[1.0]]]), 0.95, seed=1)


def test_level_variances_are_unbiased() -> None:
    rng = np.random.default_rng(2)
    found = []
    for _ in range(600):
        values = (
            3.0 * rng.standard_normal((6, 1, 1))
            + 2.0 * rng.standard_normal((6, 4, 1))
            + 1.0 * rng.standard_normal((6, 4, 5))
        )
        found.append(repeats.level_variances(values))
    assert np.mean(found, axis=0) == pytest.approx([1, 4, 9], rel=0.08)


def test_repeats_recover_the_cheapest_design() -> None:
    """Over many pilots the advice is, in the middle, the design that brute force finds best."""
    rng = np.random.default_rng(3)
    variances, costs = (4.0, 1.0, 0.25), (1.0, 20.0, 80.0)

    def price_of_precision(r1: float, r2: float) -> float:
        variance = variances[2] + variances[1] / r2 + variances[0] / (r1 * r2)
        return variance * (costs[2] + r2 * (costs[1] + r1 * costs[0]))

    best = min(
        itertools.product(range(1, 40), range(1, 20)), key=lambda pair: price_of_precision(*pair)
    )
    advised = []
    for _ in range(200):
        pilot = (
            0.5 * rng.standard_normal((30, 1, 1))
            + 1.0 * rng.standard_normal((30, 10, 1))
            + 2.0 * rng.standard_normal((30, 10, 10))
        )
        advised.append(repeats.choose_repeats(pilot, costs).per_level)
    middle = np.median(advised, axis=0)
    assert middle == pytest.approx(best, abs=1)
    assert price_of_precision(*middle) <= 1.05 * price_of_precision(*best)


def test_repeats_ask_for_blocks_until_precise_enough() -> None:
    rng = np.random.default_rng(4)
    pilot = rng.standard_normal((10, 3, 3)) + rng.standard_normal((10, 1, 1))
    loose = repeats.choose_repeats(pilot, (1, 5, 60), half_width=1.0)
    tight = repeats.choose_repeats(pilot, (1, 5, 60), half_width=0.1)
    assert some(loose.blocks) >= 8
    assert some(tight.blocks) > some(loose.blocks)
    assert some(tight.half_width) <= 0.1
    with pytest.raises(ValueError, match="as many costs"):
        repeats.choose_repeats(pilot, (1, 5))
    with pytest.raises(ValueError, match="at least two"):
        repeats.level_variances(np.ones((1, 3)))


def test_repeats_skip_a_level_that_does_not_vary() -> None:
    pilot = np.array([[[0.0, 1.0], [1.0, 0.0]], [[3.0, 4.0], [4.0, 3.0]], [[7.0, 8.0], [8.0, 7.0]]])
    assert repeats.choose_repeats(pilot, (1.0, 10.0, 100.0)).per_level[1] == 1


def test_change_points_agree_with_the_general_library() -> None:
    rng = np.random.default_rng(5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import ruptures

        for trial in range(6):
            series = rng.standard_normal(120)
            series[: 20 + 5 * trial] += 4
            series[90:] *= 1 + 5 * (trial % 2)
            scaled = (series - series.mean()) / series.std()
            search = ruptures.Pelt(model="normal", min_size=2, jump=1).fit(scaled)
            expected = search.predict(pen=15 * math.log(120))[:-1]
            assert list(warmup.change_points(series)) == expected


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=4, max_size=24), st.floats(1, 30))
def test_change_points_are_the_cheapest_of_all(values: list[Any], penalty: float) -> None:
    """Pruning must not lose the optimum: compare with trying every last change."""
    series = np.array(values, dtype=float)
    if series.std() == 0:
        assert warmup.change_points(series, penalty) == ()
        return
    scaled = (series - series.mean()) / series.std()
    floor = warmup._least_variance(scaled)

    def cost(start: int, end: int) -> float:
        return (end - start) * math.log(float(scaled[start:end].var()) + floor)

    best = [-penalty] + [math.inf] * len(values)
    for end in range(2, len(values) + 1):
        best[end] = penalty + min(best[start] + cost(start, end) for start in range(end - 1))
    points = (0, *warmup.change_points(series, penalty), len(values))
    total = sum(cost(a, b) + penalty for a, b in itertools.pairwise(points)) - penalty
    assert total == pytest.approx(best[-1], abs=1e-6)


@pytest.mark.parametrize(
    ("shape", "steps"),
    [
        ("flat", [1, 1, 1, 1]),
        ("warm-up", [2, 1, 1, 1]),
        ("slowdown", [1, 2, 2, 2]),
        ("no steady state", [1, 1, 1, 1, 1, 1, 1, 1.5]),
    ],
)
def test_time_series_are_classified(shape: Any, steps: list[float]) -> None:
    rng = np.random.default_rng(7)
    series = np.repeat(np.array(steps, dtype=float), 400 // len(steps))
    found = warmup.trend(series + 0.01 * rng.standard_normal(series.size))
    assert found.shape == shape
    assert (found.steady_from is None) == (shape == "no steady state")


def test_single_outliers_are_not_a_change_point() -> None:
    rng = np.random.default_rng(8)
    flat = 0
    for _ in range(50):
        series = 1 + 0.01 * rng.standard_normal(300)
        series[rng.integers(0, 300, 3)] += 5
        flat += warmup.trend(series).shape == "flat"
    assert flat >= 48


def test_thinning_keeps_the_mean_of_windows() -> None:
    assert warmup.thinned(np.arange(10), most=5).tolist() == [0.5, 2.5, 4.5, 6.5, 8.5]
    assert warmup.thinned(np.arange(3), most=5).tolist() == [0, 1, 2]
    assert warmup.thinned([]).size == 0


def test_two_humps_are_flagged_and_one_is_not() -> None:
    rng = np.random.default_rng(9)
    one = rng.normal(10, 1, 5000)
    two = np.concatenate([rng.normal(10, 1, 2500), rng.normal(16, 1, 2500)])
    assert not dip.detect_two_humps(one).flagged
    assert dip.detect_two_humps(two).flagged
    # A clock that counts in steps makes no humps.
    assert not dip.detect_two_humps(np.round(one)).flagged
    assert dip.detect_two_humps(np.round(two)).flagged
    assert not dip.detect_two_humps(np.ones(100)).flagged
    assert not dip.detect_two_humps([1, 1, 9, 9]).flagged


@given(st.floats(0.01, 100), st.floats(0.001, 2))
def test_a_ratio_and_its_inverse_are_equally_far_beyond_a_floor(ratio: float, floor: float) -> None:
    near = abs(abs(math.log(ratio)) - math.log1p(floor)) < 1e-9
    assert near or noise.exceeds_floor(ratio, floor, ratio=True) == noise.exceeds_floor(
        1 / ratio, floor, ratio=True
    )
