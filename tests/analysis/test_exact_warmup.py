"""Change points, trends, outliers and thinning, by loops over their definitions."""

from __future__ import annotations

import itertools
import math
import statistics

import numpy as np
import pytest

from tare.analysis.statistics import warmup
from tare.analysis.statistics.warmup import Segment, Shape, Trend

RNG = np.random.default_rng(1)
SERIES = (
    np.concatenate([RNG.normal(5, 1, 12), RNG.normal(0, 1, 20)]),
    np.concatenate([RNG.normal(0, 1, 20), RNG.normal(0, 0.02, 12)]),
    np.concatenate([RNG.normal(0, 1, 10), RNG.normal(4, 0.5, 2), RNG.normal(-4, 1, 20)]),
    RNG.normal(0, 1, 32),
    np.round(np.concatenate([RNG.normal(0, 1, 16), RNG.normal(3, 1, 16)])),
    np.ones(32),
)


def points_by_hand(series: list[float], penalty: float) -> tuple[int, ...]:
    """Optimal partitioning: the cheapest last change of every beginning."""
    n, mean, spread = len(series), statistics.fmean(series), statistics.pstdev(series)
    if spread == 0:
        return ()
    scaled = [(value - mean) / spread for value in series]
    distinct = sorted(set(scaled))
    quantum = min(b - a for a, b in itertools.pairwise(distinct))
    floor = max(1e-4, quantum**2 / 12)
    best: list[tuple[float, tuple[int, ...]]] = [(-penalty, ())]
    best.extend((math.inf, ()) for _ in range(n))
    for end in range(2, n + 1):
        tried = []
        for start in range(end - 1):
            variance = statistics.pvariance(scaled[start:end])
            cost = (end - start) * math.log(variance + floor)
            before, points = best[start]
            tried.append((before + cost + penalty, (*points, start) if start else points))
        best[end] = min(tried, key=lambda each: each[0])
    return best[n][1]


@pytest.mark.parametrize("penalty", [None, 3.0, 8.0, 40.0])
def test_change_points_are_the_cheapest(penalty: float | None) -> None:
    asked = 15 * math.log(32) if penalty is None else penalty
    expected = tuple(points_by_hand(series.tolist(), asked) for series in SERIES)
    with np.errstate(all="raise"):  # A series that never changes is divided by nothing.
        found = warmup.change_points_of_all(np.array(SERIES), penalty)
    assert found == expected
    for series, points in zip(SERIES, expected, strict=True):
        assert warmup.change_points(series, penalty) == points
    assert any(expected) or penalty == 40.0


def test_changes_do_not_depend_on_a_scales_origin_or_unit() -> None:
    series = SERIES[0]
    expected = warmup.change_points(series, 8.0)
    assert expected
    assert warmup.change_points(series + 1e8, 8.0) == expected
    assert warmup.change_points(series * 1e-3, 8.0) == expected


def test_a_change_costs_fifteen_logs_of_the_length_where_nothing_else_is_asked() -> None:
    """Two levels whose split gains just more, or just less, than that."""
    noise = np.resize([1.0, -1.0, 0.5, -0.5], 40)
    costs = []
    for apart in np.linspace(1.0, 4.0, 9):
        series = noise + np.repeat([0.0, apart], 20)
        expected = points_by_hand(series.tolist(), 15 * math.log(40))
        assert warmup.change_points(series) == expected
        costs.append(expected)
    assert (20,) in costs and () in costs


def test_four_values_are_the_least_that_can_change() -> None:
    assert warmup.change_points([0.0, 0.0, 5.0], 0.1) == ()
    assert warmup.change_points([0.0, 0.0, 5.0, 5.0], 0.1) == (2,)
    assert warmup.change_points_of_all(np.zeros((3, 3))) == ((), (), ())


@pytest.mark.parametrize(
    ("scaled", "least"),
    [
        ([1.0, 1.0], 1e-4),  # A clock without steps that show,
        ([0.0, 0.03, 0.09], 1e-4),  # with fine ones, of 0.03² ÷ 12,
        ([0.0, 0.5, 2.0, 0.5], 0.25 / 12),  # and with coarse ones.
        ([0.0, 0.036], 0.036**2 / 12),
    ],
)
def test_the_least_variance_is_that_of_a_clocks_rounding(scaled: list[float], least: float) -> None:
    assert warmup._least_variance(np.array(scaled)) == pytest.approx(least, rel=1e-12)


def steps(*stretches: tuple[float, int]) -> tuple[np.ndarray, tuple[int, ...]]:
    """Stretches of a level and a length, ± 0.1; and where each but the first begins."""
    values = [level + (0.1 if place % 2 else -0.1) for level, n in stretches for place in range(n)]
    lengths = [n for _, n in stretches]
    return np.array(values), tuple(sum(lengths[:place]) for place in range(1, len(lengths)))


# The last stretch's deviation is 0.1, so levels that differ by up to 0.1 are alike; from 10 on
# it is a hundredth of the level.
@pytest.mark.parametrize(
    ("stretches", "shape", "steady_from"),
    [
        ([(1.0, 16)], "flat", 0),
        ([(1.09, 8), (1.0, 8)], "flat", 0),
        ([(1.11, 8), (1.0, 8)], "warm-up", 8),
        ([(0.91, 8), (1.0, 8)], "flat", 0),
        ([(0.89, 8), (1.0, 8)], "slowdown", 8),
        ([(50.4, 8), (50.0, 8)], "flat", 0),
        ([(50.6, 8), (50.0, 8)], "warm-up", 8),
        ([(-50.4, 8), (-50.0, 8)], "flat", 0),
        # Steady from the first of the last alike stretches on.
        ([(3.0, 4), (1.05, 4), (0.95, 4), (1.0, 4)], "warm-up", 4),
        # What was alike before it changed does not count as steady yet.
        ([(1.0, 4), (3.0, 4), (1.0, 8)], "warm-up", 8),
        ([(1.05, 4), (0.5, 4), (1.0, 8)], "slowdown", 8),
        # A beginning a little faster than alike is still no slowdown …
        ([(0.91, 4), (3.0, 4), (1.0, 8)], "warm-up", 8),
        # … and more is, even next to a slower one.
        ([(0.89, 4), (3.0, 4), (1.0, 8)], "slowdown", 8),
        # Steady up to its last quarter's first value, and no longer.
        ([(3.0, 12), (1.0, 4)], "warm-up", 12),
        ([(3.0, 14), (1.0, 2)], "no steady state", None),
        ([(1.0, 20), (3.0, 16), (1.0, 12)], "warm-up", 36),
        ([(1.0, 20), (3.0, 18), (1.0, 10)], "no steady state", None),
    ],
)
def test_a_series_is_classified_by_its_stretches(
    stretches: list[tuple[float, int]], shape: Shape, steady_from: int | None
) -> None:
    values, changes = steps(*stretches)
    found = warmup._classified(values, changes)
    points = (0, *changes, values.size)
    assert (found.shape, found.steady_from) == (shape, steady_from)
    for segment, start, end in zip(found.segments, points[:-1], points[1:], strict=True):
        part = values[start:end].tolist()
        expected = Segment(start, end, statistics.fmean(part), statistics.pstdev(part))
        assert (segment.start, segment.end) == (start, end)
        assert segment.mean == pytest.approx(expected.mean, rel=1e-13)
        assert segment.deviation == pytest.approx(expected.deviation, rel=1e-12)


def test_stretches_exactly_at_the_bound_count_as_alike() -> None:
    # A last stretch of 0 and 2: its deviation is 1. The first is exactly 1 away, on either side.
    for level, shape in ((0.0, "flat"), (2.0, "flat"), (-0.5, "slowdown"), (2.5, "warm-up")):
        values = np.array([level] * 8 + [0.0, 2.0] * 4)
        assert warmup._classified(values, (8,)).shape == shape
    # Next to a slower stretch, one exactly as much faster is a slowdown: only slower warms up.
    values = np.array([0.0] * 4 + [9.0] * 4 + [0.0, 2.0] * 4)
    assert warmup._classified(values, (4, 8)).shape == "slowdown"


@pytest.mark.parametrize(("size", "shape"), [(15, "flat"), (16, "warm-up")])
def test_fewer_than_sixteen_values_are_not_classified(size: int, shape: Shape) -> None:
    series = np.resize([0.0, 0.001], size)
    series[:8] += 5
    found = warmup.trend(series)
    assert found.shape == shape
    if shape == "flat":
        assert found == Trend("flat", (), 0)


def test_series_of_several_lengths_keep_their_places() -> None:
    several = [np.resize([0.0, 0.001], size) for size in (32, 40, 10, 32, 40)]
    for one, change in zip(several, (12, 20, 5, 8, 16), strict=True):
        one[:change] += 5
    found = warmup.trends(several)
    assert [each.steady_from for each in found] == [12, 20, 0, 8, 16]
    assert found == tuple(warmup.trend(one) for one in several)
    assert warmup.trends([]) == ()


def cleaned_by_hand(series: list[float]) -> list[float]:
    found = []
    n, width = len(series), min(200, len(series))
    for place, value in enumerate(series):
        start = min(max(place - width // 2, 0), n - width)
        window = np.array(series[start : start + width])
        low, middle, high = (float(np.quantile(window, q)) for q in (0.1, 0.5, 0.9))
        found.append(middle if abs(value - middle) > 3 * (high - low) else value)
    return found


@pytest.mark.parametrize("size", [5, 16, 199, 200, 201, 320])
def test_lone_outliers_become_the_median_around_them(size: int) -> None:
    rng = np.random.default_rng(size)
    series = rng.standard_normal(size) + np.linspace(0, 9, size)
    places = rng.choice(size, max(2, size // 8), replace=False)
    series[places] += rng.choice([-60.0, -9.0, 9.0, 30.0, 60.0], places.size)
    found = warmup.without_outliers(series).tolist()
    assert found == pytest.approx(cleaned_by_hand(series.tolist()), rel=1e-12)


def test_an_outlier_is_further_out_than_three_times_the_10_to_90_percent_range() -> None:
    # Percentiles of 20 values from 0 to 19, in order: 1.9, 9.5 and 17.1; three times is 45.6.
    for away, kept in ((45.5, True), (45.7, False)):
        series = np.arange(20.0)
        series[19] = 9.5 + away
        expected = series[19] if kept else 9.5
        assert warmup.without_outliers(series)[19] == pytest.approx(expected)
    # For 0 to 20 they are 2, 10 and 18: exactly three times as far is kept.
    for away, kept in ((48.0, True), (48.001, False)):
        series = np.arange(21.0)
        series[20] = 10 + away
        assert warmup.without_outliers(series)[20] == (10 + away if kept else 10)


@pytest.mark.parametrize(
    ("size", "most", "width"),
    [(0, 5, 1), (5, 5, 1), (6, 5, 2), (10, 5, 2), (11, 5, 3), (802, None, 3)],
)
def test_thinning_takes_the_least_width_that_leaves_few_enough(
    size: int, most: int | None, width: int
) -> None:
    values = np.arange(float(size)) ** 2
    found = warmup.thinned(values) if most is None else warmup.thinned(values, most)
    expected = [
        statistics.fmean(values[start : start + width].tolist())
        for start in range(0, size - width + 1, width)
    ]
    assert found.tolist() == pytest.approx(expected)
    assert len(expected) <= (most or 400)
