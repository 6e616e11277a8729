"""What the dip test is asked of: few values, many, and values that a clock rounded."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from diptest import diptest

from tare.analysis.statistics import dip
from tare.analysis.statistics.dip import DipTest, detect_two_humps

NOTHING = DipTest(0.0, 1.0, False)


def spread(values: list[float]) -> list[float]:
    """Equal values evenly over as much as the nearest two unequal ones are apart."""
    distinct = sorted(set(values))
    width = min(b - a for a, b in itertools.pairwise(distinct))
    found = []
    for value in distinct:
        count = values.count(value)
        found += [value + width * ((i + 0.5) / count - 0.5) for i in range(count)]
    return found


def expected(sample: list[float], level: float = 0.01) -> DipTest:
    statistic, p = diptest(np.array(sample))
    return DipTest(statistic, p, p < level)


def two_heaps(n: int) -> list[float]:
    rng = np.random.default_rng(n)
    found = [*rng.normal(0, 1, n // 2), *rng.normal(8, 1, n - n // 2)]
    return [float(value) for value in rng.permutation(found)]


@pytest.mark.parametrize("n", [6, 8, 12, 15, 16])
def test_six_values_and_more_are_tested(n: int) -> None:
    found = detect_two_humps(two_heaps(n))
    assert found == pytest.approx(expected(sorted(two_heaps(n)))) and found.dip > 0.1
    assert detect_two_humps([5.0] * n) == NOTHING


def test_fewer_than_six_values_are_not_tested() -> None:
    assert detect_two_humps([1.0, 1.01, 1.02, 9.0, 9.01]) == NOTHING


def test_two_modes_of_twelve_boots_are_flagged() -> None:
    values = [1.0, 1.01, 1.02, 0.99, 0.98, 1.03, 2.0, 2.01, 2.02, 1.99, 1.98, 2.03]
    found = detect_two_humps(values)
    assert found.flagged and found.p < 0.005


@pytest.mark.parametrize("n", [6, 7, 8, 12, 16])
@pytest.mark.parametrize("law", ["uniform", "standard_normal", "standard_exponential"])
def test_one_hump_is_hardly_ever_flagged_as_two(law: str, n: int) -> None:
    """The level is 1 %; at most 20 of 1,000 samples may exceed it."""
    rng = np.random.default_rng(n)
    draw = getattr(rng, law)
    assert sum(detect_two_humps(draw(size=n)).flagged for _ in range(1000)) <= 20


def test_values_that_repeat_in_two_modes_are_flagged_where_the_clock_is_finer() -> None:
    values = [20.0] * 6 + [35.0] * 6
    assert not detect_two_humps(values).flagged
    assert detect_two_humps(values, step=5.0).flagged
    assert not detect_two_humps([20.0] * 6 + [21.0] * 6, step=1.0).flagged


@pytest.mark.parametrize(
    "values",
    [
        [1.0, *[5.0] * 15],  # all but the least equal
        [*[5.0] * 15, 9.0],
        [*[5.0] * 8, *[6.0] * 12],
        [3.0, *[1.0, 2.0, 4.0, 8.0] * 5, 0.5],
        [1.0, 1.0, *map(float, range(2, 20))],
        [*map(float, range(18)), 17.0],
    ],
)
def test_equal_values_are_spread_between_their_neighbours(values: list[float]) -> None:
    found = dip._spread_ties(np.sort(values)).tolist()
    assert found == pytest.approx(spread(values))
    assert detect_two_humps(values[::-1]) == pytest.approx(expected(found))


def test_values_without_a_tie_are_tested_as_they_are() -> None:
    values = [float(i**2) for i in range(20)]
    assert detect_two_humps(values) == pytest.approx(expected(values))


def test_more_than_two_thousand_are_thinned_to_evenly_spaced_quantiles() -> None:
    values = sorted(two_heaps(2000))
    assert detect_two_humps(values) == pytest.approx(expected(values))
    for n in (2001, 5000):
        values = sorted(two_heaps(n))
        places = [(i + 0.5) / 2000 * (n - 1) for i in range(2000)]
        thinned = [
            values[int(at)] + (at - int(at)) * (values[int(at) + 1] - values[int(at)])
            for at in places
        ]
        found = detect_two_humps(values)
        assert found == pytest.approx(expected(thinned), rel=1e-9)
        assert found.dip != pytest.approx(expected(values).dip, rel=1e-9)


def test_humps_are_flagged_below_the_level_alone() -> None:
    values = two_heaps(16)
    p = detect_two_humps(values).p
    assert 0 < p < 0.2
    assert not detect_two_humps(values, p).flagged
    assert detect_two_humps(values, p * 1.001).flagged


def test_a_chance_of_one_in_eighty_flags_nothing_unless_asked() -> None:
    rng = np.random.default_rng(91)
    values = np.concatenate([rng.normal(0, 1, 10), rng.normal(3.5, 1, 10)])
    found = detect_two_humps(values)
    assert 0.01 < found.p < 0.015 and not found.flagged
    assert detect_two_humps(values, 0.015).flagged
