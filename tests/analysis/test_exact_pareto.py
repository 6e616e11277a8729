"""Tails beyond what was seen: the estimator and its thresholds, by loops."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from analysis.analysis_tails import counted, fit_of
from tare.analysis.statistics import pareto
from tare.analysis.statistics.pareto import ReturnLevel, Threshold

Floats = np.ndarray


def estimated(x: list[float], of_all: list[int], own: list[int]) -> tuple[float, float]:
    """Zhang & Stephens (2009): a mean over a grid of θ, weighed by its likelihood.

    The grid is that of all boots; the likelihood that of a sample, perhaps without one of them.
    """
    n_all, n, greatest = sum(of_all), sum(own), x[-1]
    m = 20 + math.floor(min(math.sqrt(n_all), 80))
    below, place = of_all[0], 0
    while below < n_all / 4:
        place += 1
        below += of_all[place]
    grid = []
    for j in range(1, m + 1):
        theta = 1 / (greatest * (1 + 1e-9)) + (1 - math.sqrt(m / (j - 0.5))) / (3 * x[place])
        # θ = 0 is an exponential distribution, represented by a negligible θ.
        grid.append(theta if abs(theta * greatest) >= 1e-9 else 1e-9 / greatest)

    def shape_of(theta: float) -> float:
        parts = [count * math.log1p(-theta * value) for value, count in zip(x, own, strict=True)]
        return -math.fsum(parts) / n

    likely = [n * (math.log(theta / shape_of(theta)) + shape_of(theta) - 1) for theta in grid]
    weights = [math.exp(each - max(likely)) for each in likely]
    best = math.fsum(w * t for w, t in zip(weights, grid, strict=True)) / math.fsum(weights)
    best = best if abs(best * greatest) >= 1e-9 else 1e-9 / greatest
    return -shape_of(best), shape_of(best) / best


@pytest.mark.parametrize("scale", [1.0, 1e6, 1e-4])
@pytest.mark.parametrize(
    "counts",
    [
        [[5, 3, 2, 2, 1, 1, 0, 1], [4, 4, 1, 1, 1, 0, 1, 0]],
        [[1, 0, 2, 1, 1, 0, 0, 1], [1, 1, 0, 0, 0, 1, 1, 0]],
        [[900, 600, 400, 200, 100, 50, 30, 9], [4000, 100, 70, 60, 40, 20, 10, 5]],
        [[2000, 1700, 900, 400, 200, 50, 30, 9], [400, 100, 70, 60, 40, 20, 10, 5]],
        [[1, 1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1, 1]],  # A quarter ends with a bin.
    ],
)
def test_shapes_and_scales_are_zhang_and_stephens(counts: list[list[int]], scale: float) -> None:
    x = scale * np.array([0.2, 0.5, 0.9, 1.4, 2.2, 3.9, 6.0, 9.5])
    every = pareto._without_each(np.array(counts))
    assert every.tolist() == [[a + b for a, b in zip(*counts, strict=True)], counts[1], counts[0]]
    shapes, scales = pareto._zhang_stephens(x, every)
    for own, shape, found in zip(every.tolist(), shapes, scales, strict=True):
        expected = estimated(x.tolist(), every[0].tolist(), own)
        assert (shape, found) == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize(("all_of_it", "points"), [(6399, 99), (6400, 100), (9000, 100)])
def test_a_grid_has_at_most_a_hundred_points(all_of_it: int, points: int) -> None:
    # Most are so near to nothing that the grid is coarse, and one more point would show.
    x, of_all = [0.001, 0.5, 0.9, 2.2, 9.5], [all_of_it - 100, 40, 30, 20, 10]
    assert 20 + math.floor(min(math.sqrt(all_of_it), 80)) == points
    shapes, scales = pareto._zhang_stephens(np.array(x), np.array([of_all]))
    assert (shapes[0], scales[0]) == pytest.approx(estimated(x, of_all, of_all), rel=1e-9)


def test_a_value_counts_as_negligible_relative_to_the_greatest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[float] = []

    def watched(theta: Floats, greatest: float) -> Floats:
        asked.append(float(greatest))
        return theta

    monkeypatch.setattr(pareto, "_never_nothing", watched)
    pareto._zhang_stephens(np.array([1.0, 2.0, 4.0, 8.0, 9.0]), np.array([[4, 3, 2, 1, 1]]))
    assert asked == [9.0, 9.0]


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e-3])
@pytest.mark.parametrize("away", [0.0, 0.8e-9, 1.2e-9, -0.8e-9])
def test_a_grid_that_meets_an_exponential_distribution_has_no_hole(
    away: float, scale: float
) -> None:
    """The quartile is such that the third θ is nothing, or all but nothing."""
    of_all = [6, 3, 3, 2, 1, 1]
    m = 20 + 4
    quartile = (math.sqrt(m / 2.5) - 1) / 3 * 9.5 * (1 + 1e-9) * (1 + away)
    x = scale * np.array([quartile, 6.8, 7.0, 7.5, 8.0, 9.5])
    shapes, scales = pareto._zhang_stephens(x, np.array([of_all]))
    assert (shapes[0], scales[0]) == pytest.approx(estimated(x.tolist(), of_all, of_all), rel=1e-12)


def test_a_theta_of_nothing_is_all_but_nothing() -> None:
    given = [0.0, 4e-12, -4e-12, 6e-12, -6e-12, -1e-9 / 200, 1.0]
    expected = [5e-12, 5e-12, 5e-12, 6e-12, -6e-12, -5e-12, 1.0]
    found = pareto._never_nothing(np.array(given), 200.0)
    assert found.tolist() == pytest.approx(expected, rel=1e-12)


def test_the_level_that_a_share_exceeds_is_the_distributions_quantile() -> None:
    shapes = (0.3, -0.4, 0.0, 1.2e-9, 1e-9, -1.2e-9, -0.9e-9)
    found = fit_of(shapes, scale=[10.0, 20.0, 30.0, 1.0, 1.0, 1.0, 1.0]).beyond(1e-5)
    ratio = math.log(0.1 / 1e-5)
    assert found[0] == pytest.approx(10 * ((0.1 / 1e-5) ** 0.3 - 1) / 0.3, rel=1e-13)
    assert found[1] == pytest.approx(20 * ((0.1 / 1e-5) ** -0.4 - 1) / -0.4, rel=1e-13)
    assert found[2] == pytest.approx(30 * ratio, rel=1e-14)
    # Below 10⁻⁹ a shape is none.
    grown = [math.expm1(shape * ratio) / shape for shape in shapes[3:6]]
    assert found[3:].tolist() == pytest.approx([*grown, ratio], rel=1e-14)
    assert grown[1] != pytest.approx(ratio, rel=1e-9)


def test_the_level_that_a_share_exceeded_is_the_samples_quantile() -> None:
    counts = np.array([[5, 3, 1, 1], [5, 4, 1, 0]])
    fit = fit_of([0.1] * 3)._replace(counts=counts, share=np.array([0.2, 0.2, 0.4]))
    # As many and more reach each value: of all 20, 10, 3, 1; without the first boot 10, 5, 1, 0,
    # and without the second 10, 5, 2, 1. A share of 0.1 are 10 of all, 5 and 2.5 of these.
    for share, expected in (
        (0.2, (1.0, 1.0, 1.0)),
        (0.15, (1.0, 1.0, 5.0)),
        (0.1, (1.0, 1.0, 5.0)),
        (0.09, (5.0, 5.0, 5.0)),
        (0.05, (5.0, 5.0, 20.0)),
        (0.012, (20.0, 20.0, 60.0)),
        (0.005, (60.0, 20.0, 60.0)),
    ):
        assert fit.seen(share).tolist() == list(expected), share


def jackknifed(values: Sequence[float], confidence: float) -> float:
    left = list(values[1:])
    n = len(left)
    squares = sum((value - statistics.fmean(left)) ** 2 for value in left)
    return float(stats.t.ppf(0.5 + confidence / 2, n - 1)) * math.sqrt((n - 1) / n * squares)


SHAPES = (0.2, 0.21, 0.18, 0.25, 0.17)


def test_errors_are_those_of_leaving_out_each_boot() -> None:
    error = jackknifed(SHAPES, 0.9)
    assert pareto._error(np.array(SHAPES), 0.9) == pytest.approx(error, rel=1e-12)
    threshold = pareto._threshold(fit_of(SHAPES), 0.9)
    assert threshold == pytest.approx(
        Threshold(100.0, 16, 0.2, 0.2 - error, 0.2 + error), rel=1e-12
    )


def test_a_level_has_the_interval_of_its_logarithm() -> None:
    fit = fit_of(SHAPES, scale=[10.0, 11.0, 9.5, 10.0, 10.5])
    logs = [
        math.log(scale * ((0.1 * 5e4) ** shape - 1) / shape)
        for shape, scale in zip(SHAPES, fit.scale.tolist(), strict=True)
    ]
    error = jackknifed(logs, 0.9)
    ends = [100 + math.exp(logs[0] + e) for e in (0, -error, error)]
    assert pareto._level(fit, 5e4, 0.9) == pytest.approx(ReturnLevel(5e4, *ends), rel=1e-12)


def test_two_thresholds_agree_within_the_error_of_their_difference() -> None:
    base, turns = fit_of([0.2] * 11), np.array([0.0, *[1.0, -1.0] * 5])
    bound = jackknifed((0.01 * turns).tolist(), 0.99)
    assert pareto._agree(base, base, 1e-5)  # No difference, without any error.
    grown = base.beyond(1e-5) / 10
    for apart, agree in ((0.99 * bound, True), (1.01 * bound, False)):
        for sign in (1, -1):
            off = 0.01 * turns + np.array([sign * apart, *[0.0] * 10])
            # Unlike in shape, and as good as alike in what is asked.
            shapes = fit_of((0.2 + off).tolist(), scale=[1.0] * 11)
            scale = 10 * grown / shapes.beyond(1e-5) * (1 + 1e-3 * turns)
            shapes = shapes._replace(scale=scale)
            # Alike in shape, and unlike in what is asked.
            asked = base._replace(at=90.0, scale=((100 + 10 * grown) * np.exp(off) - 90) / grown)
            for other in (shapes, asked):
                assert pareto._agree(base, other, 1e-5) is agree
                assert pareto._agree(other, base, 1e-5) is agree


@pytest.mark.parametrize(
    ("fits", "agree", "chosen"),
    [
        ("ab", {}, None),
        ("abc", {"ab", "ac"}, 0),
        ("abc", {"ab"}, None),
        ("abc", {"ac", "bc"}, None),
        ("abcd", {"ab", "ac", "ad"}, 0),
        ("abcd", {"ab", "ac", "bc", "bd"}, 1),
        ("abcde", {"ab", "ac", "ad", "bc", "cd", "ce"}, 2),
        ("abcde", {"de"}, None),  # Two show nothing.
    ],
)
def test_the_lowest_threshold_that_agrees_with_all_higher_ones_is_taken(
    fits: str, agree: set[str], chosen: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pareto, "_agree", lambda one, other, share: one + other in agree)
    assert pareto._stable(fits, 1e-5) == chosen  # type: ignore[arg-type]


class Seen:
    """A fit that is off by given factors at given parts of what exceeds its threshold."""

    def __init__(self, beyond: int, off: dict[float, Sequence[float]], level: float) -> None:
        self.counts = np.array([[beyond - 3], [3]])
        self.share = np.array([0.1, 0.2, 0.2])
        self.off = off
        self.level = level
        self.asked: list[float] = []

    def seen(self, share: float) -> Floats:
        return np.full(9, self.level)

    def beyond(self, share: float) -> Floats:
        self.asked.append(share / 0.1)
        off = next((o for part, o in self.off.items() if part == pytest.approx(share / 0.1)), ())
        return self.level * np.array([*off, *[1.0] * (9 - len(off))])


def missed(
    beyond: int, off: dict[float, Sequence[float]], level: float = 1.0
) -> tuple[float, bool, list[float]]:
    fit = Seen(beyond, off, level)
    most, wrong = pareto._misses(fit)  # type: ignore[arg-type]
    return most, wrong, fit.asked


@pytest.mark.parametrize(
    ("beyond", "parts"),
    [(199, 0), (200, 1), (499, 1), (500, 2), (999, 2), (1000, 3), (2000, 4), (5000, 5), (9999, 5),
     (10_000, 6), (10**6, 6)],
)  # fmt: skip
def test_fit_and_samples_are_compared_where_a_hundred_samples_are_beyond(
    beyond: int, parts: int
) -> None:
    _, wrong, asked = missed(beyond, {})
    assert asked == pytest.approx([0.5, 0.2, 0.1, 0.05, 0.02, 0.01][:parts])
    assert not wrong


def test_a_fit_misses_by_the_most_it_is_off_anywhere() -> None:
    assert missed(10_000, {})[:2] == (0.0, False)
    most, wrong, _ = missed(10_000, {0.2: [1 / 1.03], 0.05: [1.02]}, level=7.0)
    assert most == pytest.approx(0.03)
    assert not wrong
    most, wrong, _ = missed(10_000, {0.2: [1.02], 0.01: [1 / 1.04]})
    assert most == pytest.approx(0.04)
    assert not wrong


def test_a_fit_may_be_off_by_a_twentieth_or_its_error_but_never_by_more_than_twice() -> None:
    for part in (0.5, 0.01):
        for factor, wrong in ((1.049, False), (1.051, True), (1 / 1.051, True)):
            assert missed(10_000, {part: [factor]})[1] is wrong
    turns = [(-1.0) ** boot for boot in range(8)]
    bound = jackknifed([0.0, *(0.04 * each for each in turns)], 0.99)
    unlike, more = ([math.exp(by * each) for each in turns] for by in (0.04, 0.4))
    assert math.log(1.05) < bound < math.log(2)
    assert not missed(10_000, {0.1: [math.exp(0.99 * bound), *unlike]})[1]
    assert missed(10_000, {0.1: [math.exp(1.01 * bound), *unlike]})[1]
    assert not missed(10_000, {0.1: [2.0, *more]})[1]
    assert missed(10_000, {0.1: [2.001, *more]})[1]


def thresholds_by_hand(boots: Sequence[dict[float, int]]) -> list[tuple[float, list[int]]]:
    """Return every tried threshold with enough beyond it, and how much of each boot is beyond."""
    total = sum(sum(boot.values()) for boot in boots)
    reached, so_far = {}, 0
    for value in sorted({value for boot in boots for value in boot}, reverse=True):
        so_far += sum(boot.get(value, 0) for boot in boots)
        reached[value] = so_far
    found: list[tuple[float, list[int]]] = []
    for share in (0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 5e-4, 2e-4, 1e-4, 5e-5, 2e-5, 1e-5):
        at = max(value for value, n in reached.items() if n >= share * total)
        sizes = [sum(n for v, n in boot.items() if v > at) for boot in boots]
        if sum(sizes) >= 200 and min(sizes) >= 5 and at not in [each for each, _ in found]:
            found.append((at, sizes))
    return found


def spread_out(size: int, shape: float) -> dict[float, int]:
    """So many samples of a tail of that shape, all of a bin at its lower end."""
    ends = np.unique(np.rint(1000 + 100 * np.geomspace(1, 4000, 400)))
    left = np.rint(size * (1 + shape * (ends - ends[0]) / 900) ** (-1 / shape)).astype(np.int64)
    counts = (-np.diff(left, append=0)).tolist()
    return {end: n for end, n in zip(ends.tolist(), counts, strict=True) if n}


@pytest.mark.parametrize("size", [3_000_000, 6_000])
def test_thresholds_are_those_that_shares_of_samples_exceed(size: int) -> None:
    boots = [spread_out(size + 10 * boot, 0.2 + 0.002 * boot) for boot in range(8)]
    fits = pareto._fits([counted(boot) for boot in boots])
    expected = thresholds_by_hand(boots)
    assert len(expected) == (13 if size > 6000 else 5)
    assert [fit.at for fit in fits] == [at for at, _ in expected]
    totals = [sum(boot.values()) for boot in boots]
    for fit, (at, sizes) in zip(fits, expected, strict=True):
        assert fit.counts.sum(axis=1).tolist() == sizes
        without = [(sum(sizes) - n) / (sum(totals) - t) for n, t in zip(sizes, totals, strict=True)]
        assert fit.share.tolist() == pytest.approx([sum(sizes) / sum(totals), *without], rel=1e-13)
        # Values within half a hundredth of each other are counted together, at their mean.
        bins: dict[int, list[dict[float, int]]] = {}
        for value in sorted({v for boot in boots for v in boot if v > at}):
            place = math.floor(math.log(value - at) / 0.005)
            bins.setdefault(place, []).append({value: sum(b.get(value, 0) for b in boots)})
        means = [
            sum(v * n for each in part for v, n in each.items())
            / sum(n for each in part for n in each.values())
            for part in bins.values()
        ]
        assert fit.excess.tolist() == pytest.approx([mean - at for mean in means], rel=1e-9)
        every = pareto._without_each(fit.counts)
        shapes, scales = pareto._zhang_stephens(fit.excess, every)
        assert fit.shape.tolist() == shapes.tolist()
        assert fit.scale.tolist() == scales.tolist()


@pytest.mark.parametrize(
    ("beyond", "enough"),
    [
        ([25] * 8, True),
        ([25] * 7 + [24], False),
        ([5] + [28] * 7, True),
        ([4] + [40] * 7, False),
    ],
)
def test_two_hundred_beyond_and_five_of_each_boot_are_the_least(
    beyond: list[int], enough: bool
) -> None:
    # The third and fourth are counted together: they differ by less than half a hundredth.
    far = {21.0: 1, 110.0: 1, 110.05: 1, 110.6: 1}
    boots = [counted({10.0: 100, 20.0: n - 4, **far}) for n in beyond]
    fit = pareto._fit(boots, 10.0, 100 * 8 + sum(beyond))
    assert (fit is not None) is enough
    if fit is not None:
        assert fit.excess.tolist() == pytest.approx([10.0, 11.0, 100.025, 100.6], rel=1e-12)
        assert fit.counts.tolist() == [[n - 4, 1, 2, 1] for n in beyond]


def test_a_tail_that_ends_in_one_value_has_one_threshold_below_it() -> None:
    """Two shares lead to the same value, and all others to the last, with nothing beyond."""
    boot = {10.0: 900, 20.0: 60, 30.0: 20, 31.0: 20}
    fits = pareto._fits([counted(boot)] * 8)
    assert [(fit.at, int(fit.counts.sum())) for fit in fits] == [(20.0, 320)]
