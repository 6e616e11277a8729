"""Trimmed means: against SciPy's, and unchanged by exchanges of names."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from tare.analysis.statistics.exchange import exchanged_p
from tare.analysis.statistics.maxt import family_p
from tare.analysis.statistics.meta_analysis import mean_shift, trimmed_shift
from tare.analysis.statistics.trimmed import (
    degrees,
    invariant_squares,
    left_out,
    trimmed_interval,
    trimmed_shares,
)


def winsorised(values: np.ndarray, cut: int) -> np.ndarray:
    ordered = np.sort(values)
    found: np.ndarray = np.clip(values, ordered[cut], ordered[len(values) - 1 - cut])
    return found


@pytest.mark.parametrize(
    ("blocks", "cut"), [(2, 0), (4, 0), (5, 1), (8, 1), (9, 1), (10, 2), (20, 4)]
)
def test_a_fifth_of_the_blocks_is_left_out_at_either_end(blocks: int, cut: int) -> None:
    assert left_out(blocks) == cut
    assert degrees(blocks) == blocks - 2 * cut - 1


@pytest.mark.parametrize("blocks", [3, 6, 8, 12, 21])
def test_the_interval_is_that_of_tukey_and_mclaughlin(blocks: int) -> None:
    rows = np.random.default_rng(blocks).standard_t(3, size=(4, blocks))
    found, cut = trimmed_interval(rows, 0.9), left_out(blocks)
    kept = blocks - 2 * cut
    for row, mean, low, high in zip(rows, *found, strict=True):
        squares = winsorised(row, cut).var(ddof=1) * (blocks - 1)
        half = stats.t.ppf(0.95, kept - 1) * np.sqrt(squares / (kept * (kept - 1)))
        assert mean == pytest.approx(stats.trim_mean(row, cut / blocks + 1e-9))
        assert (low, high) == pytest.approx((mean - half, mean + half))


def test_the_shift_of_two_runs_is_yuens() -> None:
    rng = np.random.default_rng(1)
    first, second = rng.standard_normal(10), rng.standard_normal(15) + 0.5
    found = trimmed_shift(first.tolist(), second.tolist(), 0.95)
    expected = stats.ttest_ind(second, first, equal_var=False, trim=0.2)
    ends = expected.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((ends.low, ends.high))
    assert trimmed_shift([1.0], [2.0, 3.0], 0.95) == mean_shift([1.0], [2.0, 3.0], 0.95)


def test_p_is_the_share_of_all_flips_that_are_as_extreme() -> None:
    rng = np.random.default_rng(2)
    values = 0.3 + rng.standard_normal((2, 8))
    every = np.array(list(itertools.product((1.0, -1.0), repeat=8)))
    shares = [trimmed_shares(row * every, 0.0) for row in values]
    found = family_p(values, trimmed=[True, True])
    expected = [(share >= share[0] - 1e-12).mean() for share in shares]
    assert found.raw == pytest.approx(expected)
    highest = np.maximum(*shares)
    first = max(range(2), key=lambda row: shares[row][0])
    assert found.adjusted[first] == pytest.approx((highest >= shares[first][0] - 1e-12).mean())


def test_a_slow_boot_hides_a_difference_from_the_mean_alone() -> None:
    values = 0.1 + 0.02 * np.random.default_rng(3).standard_normal((1, 12))
    values[0, 4] = -1.1
    assert family_p(values).raw[0] > 0.05
    assert family_p(values, trimmed=[True]).raw[0] < 0.01
    boots = np.stack([values, *(0.02 * np.random.default_rng(4).standard_normal((2, 1, 12)))])
    assert exchanged_p(boots).raw[0] > 0.05
    assert exchanged_p(boots, trimmed=[True]).raw[0] < 0.01


def test_missing_blocks_leave_the_others() -> None:
    rng = np.random.default_rng(5)
    values = 0.5 + rng.standard_normal((2, 9))
    holes = np.insert(values, 4, np.nan, axis=1)
    alone = family_p(values, trimmed=[True, True])
    assert family_p(holes, trimmed=[True, True]).raw == pytest.approx(alone.raw)


def test_squares_for_a_prior_do_not_change_with_names() -> None:
    rng = np.random.default_rng(6)
    values = rng.standard_normal((1, 8))
    signs = rng.choice((-1.0, 1.0), size=8)
    assert invariant_squares(values * signs) == pytest.approx(invariant_squares(values))
    # A fifth at either end: of 8 sizes, the greatest two count as the third.
    sizes = np.sort(np.abs(values[0]))
    expected = (sizes[:6] ** 2).sum() + 2 * sizes[5] ** 2
    assert invariant_squares(values) == pytest.approx(expected)
    assert invariant_squares(np.repeat(values, 3, axis=0)) == pytest.approx(expected)


@pytest.mark.parametrize("blocks", [6, 8, 20])
def test_intervals_cover_with_normal_noise(blocks: int) -> None:
    found = trimmed_interval(np.random.default_rng(7).standard_normal((8000, blocks)), 0.95)
    covered = float(((found.low <= 0) & (found.high >= 0)).mean())
    assert 0.94 <= covered <= 0.965
