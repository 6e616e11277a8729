"""Deviations beyond chance, by loops over the definition, and on both sides of each bound."""

from __future__ import annotations

import itertools
import math
import statistics

import numpy as np
import pytest
from scipy import stats

from tare.analysis.statistics import unsteady
from tare.analysis.statistics.dependence import mean_variance
from tare.analysis.statistics.unsteady import stand_out
from tare.analysis.statistics.warmup import Segment, Shape, Trend

Floats = np.ndarray
WARM = Trend("warm-up", (), 0)
SLOW = Trend("slowdown", (), 0)
LATE = Trend("no steady state", (), None)
FLAT = Trend("flat", (), 0)
EVERY = (WARM, SLOW, LATE, FLAT)


def found_by_hand(series: list[list[float]], boots: list[str], part: int | None) -> list[float]:
    found: dict[str, list[float]] = {}
    for values, boot in zip(series, boots, strict=True):
        quarter = len(values) // 4
        if quarter == 0:
            continue
        first = values[: max(1, len(values) // (part or 1))]
        last = values[2 * quarter :]
        if part is None:
            first, last = values[2 * quarter : 3 * quarter], values[3 * quarter :]
        if sum(last):
            ratio = statistics.fmean(first) / statistics.fmean(last)
            found.setdefault(boot, []).append(ratio - 1)
    return [statistics.fmean(each) for each in found.values()]


@pytest.mark.parametrize("part", [16, 4, None])
def test_each_boot_has_one_value_of_its_series(part: int | None) -> None:
    rng = np.random.default_rng(1)
    sizes = (40, 41, 43, 64, 3, 4, 5, 7, 15, 100)
    boots = ["a", "b", "a", "c", "c", "d", "e", "e", "f", "b"]
    series = [rng.random(size) + 1 for size in sizes]
    series[2][:] = 0  # Without a level there is nothing to be slower than.
    found = unsteady._slowdowns_by_boot(series, boots, part)
    expected = found_by_hand([each.tolist() for each in series], boots, part)
    assert found.tolist() == pytest.approx(expected, rel=1e-12)
    assert len(expected) == 6


def test_a_series_of_three_has_no_quarters() -> None:
    assert unsteady._slowdowns_by_boot([np.ones(3)], ["a"], 4).size == 0
    assert unsteady._slowdowns_by_boot([np.array([4.0, 1.0, 2.0, 2.0])], ["a"], 16).tolist() == [
        1.0
    ]


@pytest.mark.parametrize(("boots", "believed"), [(5, False), (6, True)])
def test_six_boots_are_the_least_that_are_asked(boots: int, believed: bool) -> None:
    differences = np.linspace(1.0, 1.05, boots, dtype=np.float64)
    assert unsteady._agree(differences, slower=True) is believed
    assert unsteady._agree(-differences, slower=False) is believed
    assert not unsteady._agree(-differences, slower=True)
    assert not unsteady._agree(np.zeros(boots), slower=True)


def six(trend: Floats) -> list[Floats]:
    """Six boots of that series, whose beginnings and third quarters differ by chance."""
    found = []
    for sign in (1, -1, 1, -1, 1, -1):
        values = trend.copy()
        values[:4] *= 1 + 0.01 * sign
        values[32:48] *= 1 + 0.01 * sign
        found.append(values)
    return found


def shaped(levels: dict[int, float], fourth: float | None = None) -> Floats:
    """Return 64 values of 1, except in some sixteenths, by their numbers, and the fourth value."""
    values = np.ones(64)
    for place, level in levels.items():
        values[4 * place : 4 * place + 4] = level
    values[3] = values[3] if fourth is None else fourth
    return values


HIGHER, LOWER = dict.fromkeys(range(4), 1.5), dict.fromkeys(range(4), 0.75)


@pytest.mark.parametrize(
    ("values", "believed"),
    [
        (shaped({5: 3.0}), []),
        # The first quarter alone is slower, or faster, be it by its last sixteenth.
        (shaped({1: 2.0}), [WARM]),
        (shaped({3: 2.0}), [WARM]),
        (shaped({1: 0.5}), [SLOW]),
        (shaped({3: 0.5}), [SLOW]),
        # The first sixteenth is slower where the first quarter is faster, and the other way round.
        (shaped({0: 2.0, 1: 0.5, 2: 0.5, 3: 0.25}), [WARM, SLOW]),
        (shaped({0: 0.5, 1: 1.5, 2: 1.5, 3: 1.5}), [WARM, SLOW]),
        # The last value of the first sixteenth decides, against the quarter.
        (shaped({1: 0.1, 2: 0.1, 3: 0.1}, fourth=9.0), [WARM, SLOW]),
        # The third quarter is unlike the fourth, and the beginning is like both together.
        (shaped({**HIGHER, **dict.fromkeys(range(8, 12), 2.0)}), [LATE]),
        (shaped({**LOWER, **dict.fromkeys(range(8, 12), 0.5)}), [LATE]),
    ],
)
def test_six_boots_believe_what_all_of_them_do(values: Floats, believed: list[Trend]) -> None:
    series = six(values)
    flagged = []
    for trend in EVERY:
        shapes = set(stand_out(series, [trend] * 6, range(6)))
        if shapes == {trend.shape} and trend is not FLAT:
            flagged.append(trend)
        else:
            assert shapes == {"flat"}
    assert flagged == believed


def test_a_boot_is_asked_once_however_many_series_it_has() -> None:
    """With five boots each series must stand out by itself; these are too short for that."""
    series = six(np.ones(8))
    assert stand_out(series, [WARM, FLAT] * 3, [0, 0, 1, 2, 3, 4]) == ["warm-up", "flat"] * 3
    assert stand_out(series, [WARM, FLAT] * 3, range(6)) == ["flat"] * 6


def at(place: int, shape: Shape = "warm-up", size: int = 64) -> Trend:
    places = (0, 2, place, size)
    parts = tuple(Segment(a, b, 0.0, 0.0) for a, b in itertools.pairwise(places))
    return Trend(shape, parts, None if shape == "no steady state" else place)


def test_constant_series_do_not_deviate() -> None:
    assert not unsteady._exceeds_chance(np.ones(64), at(8), 1)


@pytest.mark.parametrize("pattern", [[0.3, -0.1, -0.4, 0.5, -0.3], [float(n) for n in range(32)]])
@pytest.mark.parametrize("place", [8, 31, 32, 33, 56])
@pytest.mark.parametrize("tests", [1, 3])
@pytest.mark.parametrize("shape", ["warm-up", "slowdown", "no steady state"])
@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("times", [0.999, 1.001])
def test_with_few_boots_a_change_must_exceed_chance_in_the_steady_half(
    pattern: list[float], place: int, tests: int, shape: Shape, sign: float, times: float
) -> None:
    noise = np.resize(pattern, 64) + 0.1 * np.random.default_rng(2).random(64)
    noise[:32] *= 1.5
    steady = noise[32:] if place <= 32 else noise[:32]
    variance, degrees = mean_variance(steady)
    spread = variance * 32 * (1 / place + 1 / (64 - place))
    bound = stats.t.ppf(1 - 0.01 / 10 / tests / 2, max(1, math.floor(degrees))) * math.sqrt(spread)
    # The change is added where it does not touch the half that is taken for steady.
    changed = slice(0, place) if place <= 32 else slice(place, 64)
    apart = float(noise[:place].mean() - noise[place:].mean())
    wanted = sign * times * float(bound)
    values = noise.copy()
    values[changed] += wanted - apart if place <= 32 else apart - wanted
    assert unsteady._exceeds_chance(values, at(place, shape), tests) is (times > 1)
