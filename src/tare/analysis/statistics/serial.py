"""Tests for serial dependence of blocks: drift over their order, and correlation with the last one.

Intervals assume independent blocks. If blocks are dependent, intervals are too narrow: with a lag-1
correlation of 0.5 a 95 % interval covers about 80 %, and with one of 0.8 at least one of eleven
metrics without a difference is nearly always declared. `widening` returns the factor to widen by.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tare.analysis.statistics.logratio import t_quantile

Floats = NDArray[np.float64]

DRAWS = 999
LEAST_BLOCKS = 6
LEAST_INDEPENDENT = 3.0
"""The least effective number of blocks: with fewer, no difference could ever be declared."""
EXCLUDED = 0.25
"""A verdict assumes independent blocks only if this correlation is excluded."""
_UPPER = 1.28
"""Standard errors to the end of the one-sided 90 % interval that must exclude it."""
_HELD = 0.5
"""Standard errors above the estimate: the correlation that a verdict assumes otherwise."""
_HELD_AT_LOOKS = 1.28
"""The same if verdicts are looked at after each block: one of many looks finds a correlation that
is too small by chance."""
_MOST_HELD = 0.9
_LEAST_HELD = 1.5
_CHUNK = 1 << 21


class Serial(NamedTuple):
    """The statistics of each metric and their p-values over the family, shape ``(metrics,)`` each.

    Args:
        lag: Correlation of a block's difference with the one before.
        lag_p: Adjusted one-sided p of ``lag``, for neighbouring blocks that are alike.
        drift: Correlation of the differences with the blocks' order.
        drift_p: Adjusted two-sided p of ``drift``.
        together: p of the sum of all metrics' lag correlations, one-sided; one number.
        spread: Standard deviation of the mean of all metrics' lag correlations over the shuffles.
    """

    lag: Floats
    lag_p: Floats
    drift: Floats
    drift_p: Floats
    together: float
    spread: float = 0.0


def serial(differences: ArrayLike, seed: int = 0) -> Serial:
    """Test all metrics of one arm at once for correlation over block order, and for drift.

    Under the null hypothesis the order of blocks is irrelevant. All metrics are shuffled together,
    and each is compared with the greatest of the shuffled family (Westfall & Young 1993, single
    step). This keeps false alarms over the whole family at the level. Metrics of one arm share its
    boots, so the sum of their correlations shows more than each by itself: for five metrics with a
    correlation of 0.8 over eight blocks, its p is below 0.01 in 70 % of studies, while that of the
    greatest one or of a drift is below 0.005 in 30 %.

    Args:
        differences: Shape ``(metrics, blocks)``, columns in order of time, no NaN.
        seed: Seed of the shuffles.
    """
    values = np.asarray(differences, dtype=np.float64)
    metrics, blocks = values.shape
    if blocks < LEAST_BLOCKS or metrics == 0:
        nothing = np.zeros(metrics)
        return Serial(nothing, np.ones(metrics), nothing, np.ones(metrics), 1.0)
    centred = values - values.mean(axis=1, keepdims=True)
    size = np.sqrt((centred**2).sum(axis=1, keepdims=True))
    scaled = np.divide(centred, size, out=np.zeros_like(centred), where=size > 0)
    time = np.arange(blocks) - (blocks - 1) / 2
    time /= np.sqrt((time**2).sum())
    lag: Floats = (scaled[:, 1:] * scaled[:, :-1]).sum(axis=1)
    drift = scaled @ time
    lags, drifts, sums = np.empty(DRAWS), np.empty(DRAWS), np.empty(DRAWS)
    rng = np.random.default_rng(seed)
    orders = rng.random((DRAWS, blocks)).argsort(axis=1)
    # Compute as many shuffles at once as memory allows: each call has a fixed cost.
    step = max(1, _CHUNK // scaled.size)
    for start in range(0, DRAWS, step):
        of_all, along = _shuffled(scaled, time, orders[start : start + step])
        lags[start : start + step] = of_all.max(axis=0)
        sums[start : start + step] = of_all.sum(axis=0)
        drifts[start : start + step] = np.abs(along).max(axis=0)
    slack = 1e-12
    lag_p = (1 + (lags[:, None] >= lag - slack).sum(axis=0)) / (DRAWS + 1)
    drift_p = (1 + (drifts[:, None] >= np.abs(drift) - slack).sum(axis=0)) / (DRAWS + 1)
    together = float(1 + (sums >= lag.sum() - slack).sum()) / (DRAWS + 1)
    return Serial(lag, lag_p, drift, drift_p, together, float(sums.std()) / metrics)


def ranks(values: ArrayLike) -> Floats:
    """Return each value's rank in its row, 0 for the least; equal values get their mean rank.

    If ties were broken by order, values that never change would show a drift, such as losses that
    no boot has.

    Args:
        values: Shape ``(metrics, blocks)``.
    """
    rows = np.asarray(values, dtype=np.float64)
    below = (rows[:, None, :] < rows[:, :, None]).sum(axis=2)
    alike = (rows[:, None, :] == rows[:, :, None]).sum(axis=2)
    found: Floats = below + (alike - 1) / 2
    return found


def _shuffled(scaled: Floats, time: Floats, orders: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Return the correlations with the block before and with time, ``(metrics, shuffles)`` each.

    They are summed block by block: sums over a last axis as short as a study's blocks took three
    times as long.
    """
    first, *others = orders.T
    now = scaled[:, first]
    lag, drift = np.zeros_like(now), time[0] * now
    for place, order in zip(time[1:], others, strict=True):
        before, now = now, scaled[:, order]
        lag += before * now
        drift += place * now
    return lag, drift


def widening(lag: ArrayLike, blocks: int, confidence: float, family: int = 1) -> Floats:
    """Return the factor by which an interval must be wider if blocks are correlated.

    The correlation is corrected for its bias (Kendall 1954; Marriott & Pope 1954). It is at least
    the mean over all metrics of the arm, which were measured at the same times. The blocks are
    worth n·(1 − r) ÷ (1 + r) independent ones. The interval uses their degrees of freedom, and a
    deviation that is corrected for being too small for the same reason.

    Args:
        lag: Correlations of one arm's blocks with the ones before, as in `Serial`.
        blocks: Number of blocks.
        confidence: Nominal coverage of the ordinary interval.
        family: Number of metrics that the interval holds for together (Bonferroni).
    """
    estimated = (np.asarray(lag, dtype=np.float64) + 1 / blocks) / (1 - 4 / blocks)
    correlation = np.clip(np.maximum(estimated, estimated.mean()), 0.0, 1.0)
    independent = np.maximum(blocks * (1 - correlation) / (1 + correlation), LEAST_INDEPENDENT)
    ordinary = t_quantile(confidence, blocks - 1)
    wider = []
    for count in independent.tolist():
        degrees = max(round(count) - 1, round(LEAST_INDEPENDENT))
        held = t_quantile(1 - (1 - confidence) / family, degrees) / ordinary
        shared = blocks / count
        wider.append(held * math.sqrt(shared * (blocks - 1) / (blocks - shared)))
    return np.maximum(wider, 1.0)


def open_correlation(lag: ArrayLike, spread: float, blocks: int, *, looks: bool = False) -> float:
    """Return the correlation of neighbouring blocks that verdicts must allow for; 0: none.

    Few blocks rarely show a correlation: a test of one metric over 8 blocks detects one of 0.5 in
    one study of six. So the question is reversed. Verdicts assume independent blocks only if the
    mean correlation of all metrics of the arm excludes `EXCLUDED`.

    Args:
        lag: Correlations of one arm's blocks with the ones before, as in `Serial`.
        spread: Standard deviation of their mean over shuffles.
        blocks: Number of blocks.
        looks: Whether the blocks are looked at several times.
    """
    freed = 1 - 4 / blocks
    mean = (float(np.asarray(lag, dtype=np.float64).mean()) + 1 / blocks) / freed
    error = spread / freed
    if mean + _UPPER * error <= EXCLUDED:
        return 0.0
    above = _HELD_AT_LOOKS if looks else _HELD
    return min(max(mean + above * error, 0.0), _MOST_HELD)


def held(correlation: float, blocks: int, confidence: float, family: int) -> float:
    """Return the factor by which an interval must be wider to hold for correlated blocks.

    Args:
        correlation: The correlation of a block with the one before.
        blocks: Number of blocks.
        confidence: Nominal coverage of the ordinary interval.
        family: Number of metrics that the interval holds for together (Bonferroni).
    """
    shared = min((1 + correlation) / (1 - correlation), blocks / _LEAST_HELD)
    wider = math.sqrt(shared * (blocks - 1) / (blocks - shared))
    all_of_them = t_quantile(1 - (1 - confidence) / family, blocks - 1)
    return wider * all_of_them / t_quantile(confidence, blocks - 1)
