"""The statistics checked on simulated nested data of known truth.

Seeds are fixed and simulations many enough that the true coverage is known to a few tenths of a
per cent; what is asserted is that 95 % intervals cover 94–96 %. What verdicts make of them is in
``test_analysis_verdict_simulations``.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import ArrayLike

from analysis.analysis_simulate import nested_logs
from tare.analysis.effects.stopping import StoppingValue, decide
from tare.analysis.statistics.bootstrap import Nested, block_means, paired_interval
from tare.analysis.statistics.logratio import mean_interval
from tare.analysis.statistics.tails import (
    boot_level_interval,
    median_interval,
)

TRUTH = float(np.log(1.25))


def sides(
    rng: np.random.Generator,
    shape: tuple[int, int, int, int],
    spreads: tuple[float, float, float],
    law: str = "normal",
) -> tuple[Nested, Nested]:
    """An arm and a baseline whose true log-ratio is TRUTH, noisy at all three levels."""
    _, blocks, repeats, iterations = shape
    counts = np.full(blocks, repeats), np.full((blocks, repeats), iterations)
    common = 0.3 * rng.standard_normal((shape[0], blocks, 1, 1))
    arm = Nested(TRUTH + common + nested_logs(rng, shape, spreads, law), *counts)
    base = Nested(common + nested_logs(rng, shape, spreads, law), *counts)
    return arm, base


def share(low: ArrayLike, high: ArrayLike, truth: float = TRUTH) -> float:
    return float(((np.asarray(low) <= truth) & (truth <= np.asarray(high))).mean())


@pytest.mark.parametrize("blocks", [3, 8, 20])
def test_t_intervals_of_paired_log_ratios_cover(blocks: int) -> None:
    rng = np.random.default_rng(blocks)
    arm, base = sides(rng, (20_000, blocks, 2, 2), (0.05, 0.03, 0.02))
    found = mean_interval(block_means(arm) - block_means(base), 0.95)
    assert 0.94 <= share(found.low, found.high) <= 0.96


@pytest.mark.parametrize(
    ("shape", "spreads"),
    [
        ((20_000, 8, 1, 1), (0.05, 0.0, 0.0)),
        ((6000, 8, 3, 1), (0.05, 0.05, 0.0)),
        ((4000, 8, 2, 3), (0.05, 0.03, 0.03)),
        ((6000, 10, 3, 1), (0.005, 0.05, 0.0)),
        ((15_000, 20, 1, 1), (0.05, 0.0, 0.0)),
    ],
)
def test_hierarchical_bootstrap_intervals_cover(
    shape: tuple[int, int, int, int], spreads: tuple[float, float, float]
) -> None:
    rng = np.random.default_rng(sum(shape))
    arm, base = sides(rng, shape, spreads)
    low, high = paired_interval(arm, base, 0.95, seed=1, resamples=1000)
    assert 0.94 <= share(low, high) <= 0.96


def test_the_plain_percentile_bootstrap_would_not_cover() -> None:
    """Why the bootstrap is studentised: eight blocks, without it, cover far below 95 %."""
    rng = np.random.default_rng(5)
    ratios = rng.standard_normal((3000, 8))
    draws = rng.integers(0, 8, size=(500, 8))
    low, high = np.quantile(ratios[:, draws].mean(axis=2), [0.025, 0.975], axis=1)
    assert share(low, high, 0.0) < 0.92


def test_skewed_values_are_still_covered_nearly() -> None:
    rng = np.random.default_rng(9)
    arm, base = sides(rng, (6000, 8, 2, 1), (0.05, 0.03, 0.0), law="exponential")
    found = mean_interval(block_means(arm) - block_means(base), 0.95)
    assert 0.93 <= share(found.low, found.high) <= 0.975
    low, high = paired_interval(arm, base, 0.95, seed=1, resamples=1000)
    assert 0.92 <= share(low, high) <= 0.97


@pytest.mark.parametrize("blocks", [6, 8, 15])
def test_median_intervals_cover(blocks: int) -> None:
    rng = np.random.default_rng(blocks)
    for sample in (
        rng.standard_normal((8000, blocks)),
        rng.exponential(size=(8000, blocks)) - np.log(2),
    ):
        ends = np.array([median_interval(row, 0.95) for row in sample])
        assert 0.94 <= share(ends[:, 0], ends[:, 1], 0.0) <= 0.96


def test_boot_level_intervals_of_maxima_cover_at_least() -> None:
    """Maxima follow an extreme-value law; a resampled median is coarse, so it errs wide."""
    rng = np.random.default_rng(4)
    truth = -np.log(np.log(2))
    for blocks in (8, 12):
        sample = rng.gumbel(size=(4000, blocks))
        ends = np.array([boot_level_interval(row, 0.95, seed=2) for row in sample])
        assert 0.94 <= share(ends[:, 0], ends[:, 1], truth) <= 0.985


def test_stopping_on_precision_keeps_the_coverage() -> None:
    """Looking at the width after every block must not make intervals wrong."""
    rng = np.random.default_rng(8)
    covered, sizes = [], []
    for _ in range(1000):
        ratios = 0.05 * rng.standard_normal(40)
        for n in range(8, 41):
            values = [StoppingValue(b, "base", "k", 1.0) for b in range(n)]
            values += [StoppingValue(b, "arm", "k", float(np.exp(ratios[b]))) for b in range(n)]
            decision = decide(
                values, baseline="base", blocks_done=n, least=8, most=40, precision=0.03
            )
            if not decision.continues:
                break
        found = mean_interval(ratios[:n], 0.95)
        covered.append(found.low <= 0 <= found.high)
        sizes.append(n)
    assert 8 <= min(sizes) < max(sizes) <= 40
    assert float(np.mean(covered)) >= 0.925
