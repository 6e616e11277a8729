"""Power against the noncentral t by its definition, and what follows from it."""

from __future__ import annotations

import math

import pytest
from scipy import integrate
from scipy.special import gammaln, nctdtr, ndtr
from scipy.stats import t

from tare.analysis.statistics.anytime import t_that_tells
from tare.analysis.statistics.detectable import blocks_for, detectable, power
from tare.analysis.statistics.logratio import t_quantile


def noncentral(critical: float, shift: float, degrees: int) -> float:
    """How likely (normal + shift) ÷ √(chi-square ÷ degrees) lies beyond: over all spreads."""

    def density(spread: float) -> float:
        half = degrees / 2
        log = math.log(2) + half * math.log(half) - float(gammaln(half))
        return math.exp(log + (degrees - 1) * math.log(spread) - half * spread**2)

    def beyond(spread: float) -> float:
        return float(ndtr(shift - critical * spread)) * density(spread)

    return float(integrate.quad(beyond, 0, 6, points=[1, min(shift / critical, 5)], limit=200)[0])


@pytest.mark.parametrize("anytime", [False, True])
@pytest.mark.parametrize(("blocks", "tests"), [(6, 1), (8, 5), (20, 300)])
@pytest.mark.parametrize("difference", [0.3, -1.1])
def test_power_is_the_chance_of_a_t_beyond_the_critical_one(
    blocks: int, tests: int, difference: float, anytime: bool
) -> None:
    spread, level = 0.7, 0.04
    two_sided = float(t.ppf(1 - level / tests / 2, blocks - 1))
    critical = t_that_tells(blocks, level / tests) if anytime else two_sided
    shift = abs(difference) * math.sqrt(blocks) / spread
    expected = noncentral(critical, shift, blocks - 1)
    found = power(difference, spread, blocks, tests, level, anytime=anytime)
    assert found == pytest.approx(expected, rel=1e-7)
    if not anytime:
        assert power(difference, spread, blocks, tests, level) == found


def test_so_few_blocks_that_no_order_is_unlikely_enough_tell_nothing() -> None:
    """Of five blocks, the least p is 1 ÷ 2⁴."""
    for level, told in ((1 / 16, False), (0.0626, True)):
        assert (power(9.0, 1.0, 5, 1, level) > 0.9) == told
        assert math.isfinite(detectable(1.0, 5, 1, level)) == told
    # Two blocks tell, if one asks for so little.
    assert power(9.0, 1.0, 2, 1, 0.6) > 0.9
    assert 0 < detectable(1.0, 2, 1, 0.6) < 9
    for blocks in (0, 1):
        assert power(9.0, 1.0, blocks, 1, 0.6) == 0
        assert detectable(1.0, blocks, 1, 0.6) == math.inf


def test_evidence_that_cannot_be_had_tells_nothing() -> None:
    """Of eight blocks, no t is evidence of 9^3.5 = 2187."""
    for tests, told in ((109, True), (110, False)):
        assert (power(1e3, 1.0, 8, tests, 0.05, anytime=True) > 0.9) == told
        assert math.isfinite(detectable(1.0, 8, tests, 0.05, anytime=True)) == told
        assert power(1e3, 1.0, 8, tests, 0.05) > 0.9
        assert math.isfinite(detectable(1.0, 8, tests, 0.05))


def test_without_spread_any_difference_tells() -> None:
    assert power(1e-9, 0.0, 6, 1, 0.05) == 1
    assert power(0.0, 0.0, 6, 1, 0.05) == 0
    assert detectable(0.0, 6, 1, 0.05) == detectable(0.0, 6, 1, 0.05, anytime=True) == 0


def test_a_difference_of_hundreds_of_errors_is_held_against_a_critical_t_of_as_many() -> None:
    """Nearly no t is evidence enough, of nine blocks and 499 metrics: only one beyond 402."""
    critical = t_that_tells(9, 0.05 / 499)
    assert 402 < critical < 403
    for difference, expected in (
        (400, 1 - float(nctdtr(8, 400, critical))),
        (401, noncentral(critical, 401, 8)),
        (500, noncentral(critical, 500, 8)),
        (4000, 1.0),
    ):
        found = power(difference, 3.0, 9, 499, 0.05, anytime=True)
        assert found == pytest.approx(expected, rel=1e-7)
        assert found == pytest.approx(noncentral(critical, difference, 8), rel=2e-5)
    least = detectable(1.0, 9, 499, 0.05, anytime=True)
    assert power(least, 1.0, 9, 499, 0.05, anytime=True) == pytest.approx(0.8)
    # SciPy has no number for 37 standard errors and a critical t of 1.5.
    assert power(0.365, 0.14**0.5 / 10, 14, 1, 0.1567) == pytest.approx(1)


@pytest.mark.parametrize("anytime", [False, True])
@pytest.mark.parametrize(("blocks", "tests"), [(6, 3), (20, 3), (40, 300)])
@pytest.mark.parametrize("wanted", [0.3, 0.8, 0.99])
def test_the_least_difference_is_told_with_just_the_wanted_power(
    blocks: int, tests: int, wanted: float, anytime: bool
) -> None:
    least = detectable(0.7, blocks, tests, 0.05, wanted, anytime=anytime)
    found = power(least, 0.7, blocks, tests, 0.05, anytime=anytime)
    assert found == pytest.approx(wanted, rel=1e-9)
    if wanted == 0.8:
        assert detectable(0.7, blocks, tests, 0.05, anytime=anytime) == least
        if not anytime:
            assert detectable(0.7, blocks, tests, 0.05) == least


def test_certainty_is_had_from_some_difference_on() -> None:
    least = detectable(0.7, 20, 3, 0.05, 1.0)
    assert power(least, 0.7, 20, 3, 0.05) == 1
    assert power(least * (1 - 1e-6), 0.7, 20, 3, 0.05) < 1


def least_blocks(half_width: float, wanted: float, blocks: int) -> int:
    """Counted up from what there were: t's quantile of each number, of 1001 for more."""
    spread = half_width * math.sqrt(blocks) / float(t.ppf(0.975, blocks - 1))
    needed = blocks
    while float(t.ppf(0.975, min(needed - 1, 1000))) * spread / math.sqrt(needed) > wanted:
        needed += 1
    return needed


@pytest.mark.parametrize(("half_width", "blocks"), [(0.4, 2), (0.11, 6), (0.06, 8), (0.051, 20)])
def test_blocks_are_asked_for_until_the_interval_is_narrow_enough(
    half_width: float, blocks: int
) -> None:
    for wanted in (0.05, 0.03, 0.1):
        expected = least_blocks(half_width, wanted, blocks) if half_width > wanted else blocks
        assert blocks_for(half_width, wanted, blocks) == expected


def test_of_many_blocks_the_quantile_hardly_changes_and_is_no_longer_looked_up() -> None:
    spread = math.sqrt(4) / float(t.ppf(0.975, 3))
    expected = (float(t.ppf(0.975, 1000)) * spread / 0.001) ** 2
    assert blocks_for(1.0, 0.001, 4) == math.ceil(expected)
    assert (float(t.ppf(0.975, 1001)) * spread / 0.001) ** 2 < expected - 2
    # Nobody has these, and they are not counted one by one.
    assert blocks_for(1.0, 1e-5, 4) == pytest.approx(expected * 1e4, abs=1)


def test_a_half_width_that_is_just_the_wanted_one_is_narrow_enough() -> None:
    for blocks in range(2, 40):
        for half_width in (0.05, 0.1, 0.3):
            assert blocks_for(half_width, half_width, blocks) == blocks
    assert blocks_for(0.1, 0.01, 1) == 1
    spread = 0.4 * math.sqrt(2) / t_quantile(0.95, 1)
    wanted = t_quantile(0.95, 29) * spread / math.sqrt(30)
    assert blocks_for(0.4, wanted, 2) == 30
    assert blocks_for(0.4, wanted * (1 - 1e-9), 2) == 31
