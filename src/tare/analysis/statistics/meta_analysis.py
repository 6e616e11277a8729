"""Two or more runs: the difference of their effects, and the pooled effect."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tare.analysis.statistics.distributions import student_quantile
from tare.analysis.statistics.logratio import t_quantile
from tare.analysis.statistics.trimmed import degrees as trimmed_degrees
from tare.analysis.statistics.trimmed import error_of_trimmed


class Shift(NamedTuple):
    """The second sample's location minus the first's, with interval ends."""

    shift: float
    low: float
    high: float


class PooledEffect(NamedTuple):
    """The pooled effect of several runs.

    Args:
        effect: The mean over a population of runs.
        low: Lower end of its interval; infinite with one run.
        high: Upper end.
        between: Standard deviation of true effects between runs.
        inconsistency: I², the share of the spread that is more than chance, 0 to 1.
    """

    effect: float
    low: float
    high: float
    between: float
    inconsistency: float


def mean_shift(first: Sequence[float], second: Sequence[float], confidence: float) -> Shift:
    """Return the difference of two independent means with Welch's interval (Welch 1947).

    Args:
        first: One value per block of the first run.
        second: One value per block of the second run.
        confidence: Nominal coverage.

    Returns:
        The difference; with infinite ends if a run has fewer than two blocks.
    """
    one, two = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    shift = float(two.mean() - one.mean())
    if min(one.size, two.size) < 2:
        return Shift(shift, -math.inf, math.inf)
    errors = (
        float(one.std(ddof=1)) / math.sqrt(one.size),
        float(two.std(ddof=1)) / math.sqrt(two.size),
    )
    return _welch(shift, errors, (one.size - 1, two.size - 1), confidence)


def trimmed_shift(first: Sequence[float], second: Sequence[float], confidence: float) -> Shift:
    """Return the difference of two independent trimmed means (Yuen 1974, after Welch).

    Args:
        first: One value per block of the first run.
        second: One value per block of the second run.
        confidence: Nominal coverage.
    """
    if min(len(first), len(second)) < 2:
        return mean_shift(first, second, confidence)
    (one, error), (two, other) = error_of_trimmed(first), error_of_trimmed(second)
    free = trimmed_degrees(len(first)), trimmed_degrees(len(second))
    return _welch(two - one, (error, other), free, confidence)


def _welch(
    shift: float, errors: tuple[float, float], free: tuple[int, int], confidence: float
) -> Shift:
    whole = errors[0] ** 2 + errors[1] ** 2
    if whole <= 0:
        return Shift(shift, shift, shift)
    degrees = whole**2 / (errors[0] ** 4 / free[0] + errors[1] ** 4 / free[1])
    half = student_quantile(confidence, degrees) * math.sqrt(whole)
    return Shift(shift, shift - half, shift + half)


def seldom_shift(first: Sequence[float], second: Sequence[float], confidence: float) -> Shift:
    """Return the difference of two means of events that many blocks do not have.

    A short run may have no event by chance, and then no spread: Welch's interval treats its mean as
    certain. For equal runs of 6 and 20 blocks, with an event in one block of five, it excludes 0 in
    15 % of cases instead of 5 %. So the interval is never narrower than Student's with one spread
    for both runs.

    Args:
        first: One value per block of the first run.
        second: One value per block of the second run.
        confidence: Nominal coverage.
    """
    welch = mean_shift(first, second, confidence)
    counts = np.array([len(first), len(second)])
    if counts.min() < 2:
        return welch
    squares = float(np.var(first) * counts[0] + np.var(second) * counts[1])
    degrees = int(counts.sum()) - 2
    error = math.sqrt(squares / degrees * float((1 / counts).sum()))
    half = max(t_quantile(confidence, degrees) * error, welch.high - welch.shift)
    return Shift(welch.shift, welch.shift - half, welch.shift + half)


def rank_shift(first: Sequence[float], second: Sequence[float], confidence: float) -> Shift:
    """Return the median of all pairs' differences with the rank-sum test's exact interval.

    It is for tails and maxima, which have no t-interval (Hodges & Lehmann 1963; Mann & Whitney
    1947).

    Args:
        first: One value per block of the first run.
        second: One value per block of the second run.
        confidence: Nominal coverage; reached or exceeded.

    Returns:
        The median; with infinite ends if there are too few blocks for a bound.
    """
    pairs = np.sort(np.subtract.outer(np.asarray(second), np.asarray(first)).ravel())
    depth = _depth(len(first), len(second), confidence)
    middle = float(np.median(pairs))
    if depth < 1:
        return Shift(middle, -math.inf, math.inf)
    return Shift(middle, float(pairs[depth - 1]), float(pairs[-depth]))


@lru_cache(maxsize=256)
def _depth(first: int, second: int, confidence: float) -> int:
    """Return the depth of the outermost difference that bounds the shift; 0: none does."""
    # counts[k][u]: ways to choose k of the ranks so far with rank-sum statistic u.
    most = first * second
    counts = np.zeros((first + 1, most + 1))
    counts[0, 0] = 1.0
    for rank in range(first + second):
        for chosen in range(min(rank + 1, first), 0, -1):
            gain = rank + 1 - chosen
            if gain <= second:
                counts[chosen, gain:] += counts[chosen - 1, : most + 1 - gain]
    chances = np.cumsum(counts[-1]) / float(math.comb(first + second, first))
    return int(np.searchsorted(chances, (1 - confidence) / 2, side="right"))


def pool(effects: Sequence[float], errors: Sequence[float], confidence: float) -> PooledEffect:
    """Return a random-effects mean of several runs.

    The variance between runs is DerSimonian & Laird's (1986), the interval Hartung & Knapp's
    (2001) with Student's t, never narrower than that of equal runs.

    Args:
        effects: Each run's effect (log-ratio).
        errors: Its standard error, 0 or more.
        confidence: Nominal coverage.
    """
    y, variances = np.asarray(effects, dtype=np.float64), np.asarray(errors, dtype=np.float64) ** 2
    variances = np.maximum(variances, 1e-18)
    runs = y.size
    if runs < 2:
        return PooledEffect(float(y.mean()), -math.inf, math.inf, 0.0, 0.0)
    weights = 1 / variances
    common = float((weights * y).sum() / weights.sum())
    spread = float((weights * (y - common) ** 2).sum())
    scale = float(weights.sum() - (weights**2).sum() / weights.sum())
    between = max(0.0, (spread - (runs - 1)) / scale)
    inconsistency = max(0.0, 1 - (runs - 1) / spread) if spread > 0 else 0.0
    weights = 1 / (variances + between)
    mean = float((weights * y).sum() / weights.sum())
    found = float((weights * (y - mean) ** 2).sum()) / (runs - 1)
    error = math.sqrt(max(found, 1.0) / float(weights.sum()))
    half = t_quantile(confidence, runs - 1) * error
    return PooledEffect(mean, mean - half, mean + half, math.sqrt(between), inconsistency)
