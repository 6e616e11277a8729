"""Power against the noncentral t by its definition, and what follows from it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate
from scipy.special import gammaln, ndtr
from scipy.stats import t

from tare.analysis.statistics.detectable import blocks_for_equality, detectable, power
from tare.analysis.statistics.logratio import mean_interval, t_quantile
from tare.analysis.statistics.sequential import LookPlan


def noncentral(critical: float, shift: float, degrees: int) -> float:
    """Return P((normal + shift) ÷ √(chi-square ÷ degrees) > critical), integrated over spreads."""

    def density(spread: float) -> float:
        half = degrees / 2
        log = math.log(2) + half * math.log(half) - float(gammaln(half))
        return math.exp(log + (degrees - 1) * math.log(spread) - half * spread**2)

    def beyond(spread: float) -> float:
        return float(ndtr(shift - critical * spread)) * density(spread)

    return float(integrate.quad(beyond, 0, 6, points=[1, min(shift / critical, 5)], limit=200)[0])


@pytest.mark.parametrize(("blocks", "tests"), [(6, 1), (8, 5), (20, 300)])
@pytest.mark.parametrize("difference", [0.3, -1.1])
def test_power_is_the_chance_of_a_t_beyond_the_critical_one(
    blocks: int, tests: int, difference: float
) -> None:
    spread, level = 0.7, 0.04
    critical = float(t.ppf(1 - level / tests / 2, blocks - 1))
    shift = abs(difference) * math.sqrt(blocks) / spread
    expected = noncentral(critical, shift, blocks - 1)
    assert power(difference, spread, blocks, tests, level) == pytest.approx(expected, rel=1e-7)


def test_power_is_zero_when_blocks_are_too_few_for_any_order_to_be_unlikely() -> None:
    """With five blocks, the least p is 1 ÷ 2⁴."""
    for level, can_tell in ((1 / 16, False), (0.0626, True)):
        assert (power(9.0, 1.0, 5, 1, level) > 0.9) == can_tell
        assert math.isfinite(detectable(1.0, 5, 1, level)) == can_tell
    # Two blocks suffice at such a lax level.
    assert power(9.0, 1.0, 2, 1, 0.6) > 0.9
    assert 0 < detectable(1.0, 2, 1, 0.6) < 9
    for blocks in (0, 1):
        assert power(9.0, 1.0, blocks, 1, 0.6) == 0
        assert detectable(1.0, blocks, 1, 0.6) == math.inf


def test_power_is_zero_at_a_look_that_may_spend_too_little() -> None:
    """After 6 of 30 blocks, less than 2 ÷ 2⁶ of the studies may be declared."""
    plan = LookPlan(6, 30)
    for blocks, can_tell in ((6, False), (8, True)):
        assert (power(1e3, 1.0, blocks, 2, 0.05, plan=plan) > 0.9) == can_tell
        assert math.isfinite(detectable(1.0, blocks, 2, 0.05, plan=plan)) == can_tell
    assert detectable(1.0, 8, 2, 0.05, plan=LookPlan(9, 30)) == math.inf


def test_look_asks_for_a_t_of_its_own_level() -> None:
    plan, level, tests = LookPlan(8, 30), 0.04, 3
    here = float(t.isf(plan.level(12, level / tests) / 2, 11))
    found = power(0.9, 1.0, 12, tests, level, plan=plan)
    assert found == pytest.approx(noncentral(here, 0.9 * math.sqrt(12), 11), rel=1e-6)
    assert found < power(0.9, 1.0, 12, tests, level)


def test_without_spread_any_difference_is_detected() -> None:
    assert power(1e-9, 0.0, 6, 1, 0.05) == 1
    assert power(0.0, 0.0, 6, 1, 0.05) == 0
    assert detectable(0.0, 6, 1, 0.05) == 0


def test_difference_of_many_errors_has_a_power() -> None:
    # SciPy has no number for 37 standard errors and a critical t of 1.5.
    assert power(0.365, 0.14**0.5 / 10, 14, 1, 0.1567) == pytest.approx(1)


@pytest.mark.parametrize("plan", [None, LookPlan(6, 40)])
@pytest.mark.parametrize(("blocks", "tests"), [(10, 3), (20, 3), (40, 300)])
@pytest.mark.parametrize("wanted", [0.3, 0.8, 0.99])
def test_the_least_difference_has_just_the_wanted_power(
    blocks: int, tests: int, wanted: float, plan: LookPlan | None
) -> None:
    least = detectable(0.7, blocks, tests, 0.05, wanted, plan=plan)
    found = power(least, 0.7, blocks, tests, 0.05, plan=plan)
    assert found == pytest.approx(wanted, rel=1e-9)
    if wanted == 0.8:
        assert detectable(0.7, blocks, tests, 0.05, plan=plan) == least
        if plan is None:
            assert detectable(0.7, blocks, tests, 0.05) == least


@pytest.mark.parametrize(("difference", "blocks"), [(0.05, 8), (0.02, 20), (0.2, 6)])
def test_power_asks_for_an_estimate_beyond_the_margin_too(difference: float, blocks: int) -> None:
    """By drawing means and deviations, at a level for which no table of max-T is used."""
    rng = np.random.default_rng(3)
    draws, spread, margin = 400_000, 0.04, 0.0198
    means = difference + spread / math.sqrt(blocks) * rng.standard_normal(draws)
    deviations = spread * np.sqrt(rng.chisquare(blocks - 1, draws) / (blocks - 1))
    critical = float(t.ppf(1 - 0.04 / 3 / 2, blocks - 1))
    declared = (means > margin) & (means * math.sqrt(blocks) / deviations > critical)
    found = power(difference, spread, blocks, 3, 0.04, margin=margin)
    assert found == pytest.approx(float(declared.mean()), abs=0.004)
    assert power(difference, spread, blocks, 3, 0.04) >= found - 0.001


def test_certainty_is_had_from_some_difference_on() -> None:
    least = detectable(0.7, 20, 3, 0.05, 1.0)
    assert power(least, 0.7, 20, 3, 0.05) == 1
    assert power(least * (1 - 1e-6), 0.7, 20, 3, 0.05) < 1


@pytest.mark.parametrize(("blocks", "spread"), [(6, 0.03), (8, 0.02), (8, 0.03), (20, 0.05)])
def test_so_many_blocks_show_equal_arms_equivalent_with_the_chance_that_is_stated(
    blocks: int, spread: float
) -> None:
    """As many as make the half-width the margin showed it in one study of five."""
    rng = np.random.default_rng(blocks)
    studies, margin = 600, math.log1p(0.02)
    shown = 0
    for pilot in spread * rng.standard_normal((studies, blocks)):
        half = t_quantile(0.95, blocks - 1) * pilot.std(ddof=1) / math.sqrt(blocks)
        wanted = blocks_for_equality(half, margin, blocks)
        study = spread * rng.standard_normal(max(wanted, 6))
        found = mean_interval(study, 0.95)
        shown += bool(-margin <= found.low and found.high <= margin)
    assert 0.8 - 0.05 <= shown / studies <= 0.8 + 0.06


def test_blocks_that_show_equality_follow_the_margin_and_the_half_width() -> None:
    # Well known a spread: 10.5 · (σ ÷ margin)², by normal quantiles of 97.5 and 90 %.
    spread = 0.05 * math.sqrt(400) / t_quantile(0.95, 399)
    wanted = blocks_for_equality(0.05, 0.05, 400)
    assert wanted == pytest.approx(((1.96 + 1.2816) * spread / 0.05) ** 2, rel=0.05)
    assert blocks_for_equality(0.05, 0.025, 400) == pytest.approx(4 * wanted, rel=0.05)
    # With few blocks the spread itself is not well known.
    of_six = 0.05 * math.sqrt(6) / t_quantile(0.95, 5)
    assert blocks_for_equality(0.05, 0.05, 6) > 1.3 * ((1.96 + 1.2816) * of_six / 0.05) ** 2
    assert blocks_for_equality(0.05, 0.05, 8, 0.9) > blocks_for_equality(0.05, 0.05, 8)
    assert blocks_for_equality(0.05, 0.05, 8) == blocks_for_equality(0.1, 0.1, 8)
