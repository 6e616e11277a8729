"""Flipping whole blocks, against a second way to the same figure."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from tare.analysis.statistics import detectable, maxt
from tare.analysis.statistics.position import adjust_for_position
from tare.analysis.statistics.rates import mean_ratio
from tare.analysis.statistics.resolution import grid_step, log_widening
from tare.analysis.statistics.robust import hodges_lehmann
from tare.analysis.statistics.shares import exact_share, fisher_p

values = st.floats(-1e3, 1e3).map(lambda x: round(x, 3))


def t_statistic(row: np.ndarray, later: np.ndarray | None, signs: np.ndarray) -> float:
    """|t| of the mean of flipped differences, by a textbook's regression."""
    there = ~np.isnan(row)
    y = (signs * row)[there]
    columns = [np.ones(y.size)]
    if later is not None:
        columns.append((signs * later)[there])
    design = np.column_stack(columns)
    solution, _, rank, _ = np.linalg.lstsq(design, y, rcond=None)
    rest = y - design @ solution
    if rank < design.shape[1]:
        return 0.0
    variance = rest @ rest / (y.size - rank) * np.linalg.inv(design.T @ design)[0, 0]
    return abs(float(solution[0])) / math.sqrt(max(float(variance), 1e-300))


def by_hand(rows: np.ndarray, later: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Raw and step-down adjusted p-values by the definition, over all sign patterns."""
    patterns = [np.array(s) for s in itertools.product((1.0, -1.0), repeat=rows.shape[1])]
    every = np.array(
        [[t_statistic(r, None if later is None else later, s) for s in patterns] for r in rows]
    )
    observed = every[:, 0]
    slack = 1 - 1e-7
    raw = (every >= observed[:, None] * slack).mean(axis=1)
    order = np.argsort(-observed)
    adjusted, highest = np.zeros(len(rows)), 0.0
    for place, metric in enumerate(order):
        rest = every[order[place:]].max(axis=0)
        highest = max(highest, float((rest >= observed[metric] * slack).mean()))
        adjusted[metric] = highest
    return raw, adjusted


@pytest.mark.parametrize("with_places", [False, True])
def test_p_values_are_those_of_the_definition(with_places: bool) -> None:
    rng = np.random.default_rng(2)
    for _ in range(6):
        rows = rng.standard_normal((4, 7)) + np.array([[1.5], [0.0], [0.6], [0.0]])
        later = rng.integers(1, 4, 7) * rng.choice([-1.0, 1.0], 7) if with_places else None
        along = None if later is None else np.broadcast_to(later, rows.shape)
        found = maxt.family_p(rows, along)
        raw, adjusted = by_hand(rows, later)
        assert found.raw == pytest.approx(raw)
        assert found.adjusted == pytest.approx(adjusted)


@settings(max_examples=60, deadline=None)
@given(arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(2, 9)), elements=values))
def test_adjusted_p_is_never_below_raw_nor_below_what_blocks_allow(rows: np.ndarray) -> None:
    found = maxt.family_p(rows)
    assert (found.adjusted >= found.raw - 1e-12).all()
    assert (found.adjusted <= 1).all()
    assert (found.raw >= maxt.least_p(rows.shape[1]) - 1e-12).all()
    assert maxt.family_p(-rows).adjusted == pytest.approx(found.adjusted)
    assert maxt.family_p(1e-6 * rows).adjusted == pytest.approx(found.adjusted)


@settings(max_examples=40, deadline=None)
@given(
    arrays(np.float64, (4, 8), elements=values),
    arrays(np.bool_, (4, 8), elements=st.booleans()),
)
def test_a_missing_block_takes_nothing_but_itself(rows: np.ndarray, gone: np.ndarray) -> None:
    """A metric's own p is that of the blocks it has, whatever the others have."""
    holed = np.where(gone, np.nan, rows)
    found = maxt.family_p(holed)
    for row, raw in zip(holed, found.raw, strict=True):
        left = row[~np.isnan(row)]
        if left.size < 2:
            assert np.isnan(raw)
        else:
            assert raw == pytest.approx(float(maxt.family_p(left[None]).raw[0]))


def test_a_metric_of_few_blocks_does_not_set_the_bar_for_the_others() -> None:
    rng = np.random.default_rng(3)
    whole = rng.standard_normal((9, 10))
    whole[0] += 3
    few = np.full((6, 10), np.nan)
    few[:, :2] = rng.standard_normal((6, 2)) * 1e-6 + 1
    alone = maxt.family_p(whole).adjusted
    with_few = maxt.family_p(np.concatenate([whole, few]), least=6)
    assert with_few.adjusted[:9].tolist() == alone.tolist()
    assert np.isnan(with_few.adjusted[9:]).all()
    assert (with_few.raw[9:] == 0.5).all()
    # With seven of ten blocks it belongs to the family, and is on the scale of the others.
    seven = rng.standard_normal((1, 10))
    seven[0, 7:] = np.nan
    with_seven = maxt.family_p(np.concatenate([whole, seven]), least=6).adjusted
    assert with_seven[:9] == pytest.approx(alone, abs=0.1)
    assert 0 < with_seven[9] <= 1


def test_the_least_p_does_not_grow_with_the_number_of_metrics() -> None:
    rng = np.random.default_rng(4)
    rows = rng.standard_normal((60, 8))
    rows[0] = 10 + 0.01 * rng.standard_normal(8)
    assert float(maxt.family_p(rows).adjusted[0]) == maxt.least_p(8) == 1 / 128
    assert maxt.least_blocks(0.05) == 6


def test_drawn_patterns_repeat_and_agree_with_all_of_them() -> None:
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((5, 20)) + 0.5
    assert (maxt.family_p(rows, seed=3).adjusted == maxt.family_p(rows, seed=3).adjusted).all()
    other = maxt.family_p(rows, seed=4)
    assert maxt.family_p(rows, seed=3).adjusted == pytest.approx(other.adjusted, abs=0.03)
    assert float(other.adjusted.min()) > 0


def test_no_difference_at_all_has_p_one() -> None:
    assert maxt.family_p(np.zeros((3, 8))).adjusted.tolist() == [1, 1, 1]
    assert np.isnan(maxt.family_p(np.full((2, 8), np.nan)).raw).all()
    with pytest.raises(ValueError, match="same shape"):
        maxt.family_p(np.zeros((3, 8)), np.zeros(8))


@given(arrays(np.float64, (1, 8), elements=st.integers(1, 9).map(float)), st.integers(0, 255))
def test_signed_ranks_are_those_of_wilcoxon(sizes: np.ndarray, negative: int) -> None:
    row = np.where((negative >> np.arange(8)) & 1, -1.0, 1.0) * sizes
    found = maxt.signed_ranks(row)[0]
    expected = stats.rankdata(np.abs(row[0]))  # The mean rank of ties.
    assert np.abs(found).tolist() == expected.tolist()
    assert np.sign(found).tolist() == np.sign(row[0]).tolist()


@given(st.integers(0, 40), st.integers(0, 40), st.sampled_from([0.9, 0.95, 0.99]))
def test_exact_shares_agree_with_scipy(count: int, more: int, confidence: float) -> None:
    total = count + more
    assume(total > 0)
    found = exact_share(count, total, confidence)
    expected = stats.binomtest(count, total).proportion_ci(confidence, "exact")
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 12), st.integers(0, 12))
def test_fishers_test_agrees_with_scipy(a: int, b: int, c: int, d: int) -> None:
    assume(a + b and c + d)
    expected = stats.fisher_exact(np.array([[a, b], [c, d]])).pvalue
    assert fisher_p(a, a + b, c, c + d) == pytest.approx(expected)


def test_no_boot_at_all_leaves_every_share_open() -> None:
    nothing = exact_share(0, 0, 0.95)
    assert (nothing.low, nothing.high) == (0.0, 1.0)
    with pytest.raises(ValueError, match="not from 0"):
        exact_share(3, 2, 0.95)


def test_robust_intervals_cover_and_ignore_one_strange_boot() -> None:
    rng = np.random.default_rng(6)
    found = hodges_lehmann(rng.standard_normal((4000, 8)), 0.95)
    share = float(((found.low <= 0) & (found.high >= 0)).mean())
    assert 0.945 <= share <= 0.98
    strange = hodges_lehmann([[1.0, 1.1, 0.9, 1.05, 0.95, 1.02, 0.98, 100.0]], 0.95)
    assert float(strange.centre[0]) == pytest.approx(1.02, abs=0.05)
    assert math.isinf(float(hodges_lehmann([[1.0, 2.0, 3.0]], 0.95).low[0]))


def test_the_mean_at_equal_positions_is_the_regressions_intercept() -> None:
    rng = np.random.default_rng(7)
    later = np.array([1.0, -2, 3, 1, -1, 2, -3, 1, 2, -1])
    differences = 0.3 + 0.5 * later + 0.01 * rng.standard_normal(10)
    found = adjust_for_position(list(differences), list(later), 0.95)
    assert found is not None
    fit = stats.linregress(later, differences)
    assert found.mean == pytest.approx(fit.intercept)
    assert found.half_width == pytest.approx(stats.t.ppf(0.975, 8) * fit.intercept_stderr)
    assert adjust_for_position([1.0] * 8, [2.0] * 8, 0.95) is None
    assert adjust_for_position([1.0] * 8, [0.0] * 8, 0.95) is None


def test_detectable_differences_have_the_requested_power() -> None:
    spread = 0.03 * math.sqrt(2)
    least = detectable.detectable(spread, 8, 30, 0.05)
    assert detectable.power(least, spread, 8, 30, 0.05) == pytest.approx(0.8, abs=1e-3)
    assert math.expm1(least) == pytest.approx(0.072, abs=0.005)
    plain = detectable.detectable(spread, 8, 30, 0.05, dispersion=math.inf)
    assert math.expm1(plain) == pytest.approx(0.10, abs=0.01)
    assert math.isinf(detectable.detectable(spread, 5, 1, 0.05))


def test_values_on_a_clocks_grid_are_known_to_its_step_only() -> None:
    assert grid_step([20e-9, 21e-9] * 4) == pytest.approx(1e-9)
    assert grid_step([20e-9] * 8, finest=1e-9) == 1e-9
    # Ticks of 52.08 ns, rounded to the nanosecond; arms that are always the same, far from each
    # other.
    for two, step in (((52, 105), 52), ((20, 100), 20), ((1234567, 2345678), 3), ((70, 73), 3)):
        assert grid_step([two[0] * 1e-9, two[1] * 1e-9] * 4, 1e-9) == pytest.approx(step * 1e-9)
    assert grid_step([1.0, 5.0] * 4) == pytest.approx(1.0)
    assert grid_step(np.random.default_rng(1).random(8), finest=1e-9) == 0
    # 20 against 21 ns may be 20.5 against 20.5.
    assert log_widening(1e-9, 21e-9, 20e-9) >= math.log(21 / 20)
    assert log_widening(1e-9, 21e-6, 20e-6) < 0.001


def test_ratios_of_counts_are_covered_however_much_they_vary() -> None:
    """Negative binomial counts of mean 12 and 8, three times as variable as Poisson's."""
    rng = np.random.default_rng(11)
    covered = 0
    for _ in range(1500):
        arm, base = (rng.negative_binomial(mean / 2, 1 / 3, 12) for mean in (12, 8))
        found = mean_ratio(arm.tolist(), base.tolist(), 0.95)
        covered += found.low <= 1.5 <= found.high
    assert 0.93 <= covered / 1500 <= 0.97
    assert mean_ratio([1.0, 2.0], [0.0, 0.0], 0.95) == (math.inf, 0.0, math.inf)
    assert math.isnan(mean_ratio([0.0, 0.0], [0.0, 0.0], 0.95).ratio)
