"""One slope over a covariate for all metrics of an arm, shrunken if metrics differ.

A covariate of a block, such as the arm's position in it, acts on all metrics of the arm in much the
same way. A slope for each metric costs one degree of freedom each: with 8 blocks that reduced power
from 81 to 64 %. So the slope is pooled over the metrics, and used only if it is significant. It
then costs each metric only a share of a degree.

Tests have a slope of their own, from lines through the origin. An exchange of the names of arm and
baseline turns differences and covariate at once, and leaves such a slope as it is. So tests of what
remains are exact, also for a slope that is uncertain, or used only because it was significant.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tare.analysis.statistics.distributions import beta_cdf, student_quantile
from tare.analysis.statistics.logratio import t_quantile
from tare.analysis.statistics.position import Adjusted

Floats = NDArray[np.float64]

LEAST_BLOCKS = 6
"""Fewest blocks that a shared slope is estimated from."""
MOST_TAKEN = 0.25
"""If a slope takes more of a degree of freedom, a test fits the metric's own slope by pattern."""
SHOWN = 0.98
"""Confidence with which a slope must differ from 0 before anything is adjusted for it."""
_SURE = 1e-15
_LEAST_SPREAD = 1e-9
"""Least share of a covariate's squares that is not due to its mean."""


class Slopes(NamedTuple):
    """The slope of each metric over the covariate, shape ``(metrics,)`` each.

    Args:
        slope: The adjustment by unit of the covariate; 0 if no slope is significant.
        taken: The share of a degree of freedom that the slope takes from the metric, 0 to 1.
    """

    slope: Floats
    taken: Floats


def shared_slopes(
    differences: ArrayLike, covariate: ArrayLike, *, for_tests: bool = False, boots: int = 1
) -> Slopes:
    """Return the slopes of all metrics of one arm.

    The pooled slope weights metrics by their precision. Its error treats blocks as clusters,
    because metrics share their noise. If the metrics' own slopes differ by more than chance, each
    slope is shrunken towards the pooled one (random effects: DerSimonian & Laird 1986).

    Args:
        differences: Block differences in one unit, such as log-ratios, shape ``(metrics,
            blocks)``; no NaN.
        covariate: The covariate, arm less baseline, same shape.
        for_tests: Whether lines are through the origin.
        boots: How many columns each block has: 3 for deviations of three boots from their mean.
    """
    d, x = np.asarray(differences, dtype=np.float64), np.asarray(covariate, dtype=np.float64)
    metrics, blocks = d.shape[0], d.shape[1] // boots
    none = Slopes(np.zeros(metrics), np.zeros(metrics))
    if blocks < LEAST_BLOCKS:
        return none
    centred, along, free = d, x, blocks * max(1, boots - 1) - 1
    if not for_tests:
        centred, along = d - d.mean(axis=1, keepdims=True), x - x.mean(axis=1, keepdims=True)
        free -= 1
    squares = (along**2).sum(axis=1)
    usable = squares > _LEAST_SPREAD * (x**2).sum(axis=1)
    own = np.divide((along * centred).sum(axis=1), squares, out=np.zeros(metrics), where=usable)
    variance = ((centred - own[:, None] * along) ** 2).sum(axis=1) / free
    usable &= variance > 0
    count = int(usable.sum())
    if not count:
        return none
    weights = np.divide(1.0, variance, out=np.zeros(metrics), where=usable)
    information = weights * squares
    whole = float(information.sum())
    pooled = float((information * own).sum()) / whole
    scores = _by_block(weights[:, None] * along * (centred - pooled * along), boots)
    # The jackknife over blocks: each block's weight shrinks its own residual.
    levers = _by_block(weights[:, None] * along**2, boots) / whole
    moved = scores / np.maximum(1 - levers, _LEAST_SPREAD) / whole
    jackknife = float((moved**2).sum()) * (blocks - 1) / blocks
    # If that is small by chance, the correlation of the metrics' residuals still is not.
    residuals = (centred - own[:, None] * along) * np.sqrt(weights)[:, None]
    together = float((residuals.sum(axis=0) ** 2).sum() / (residuals**2).sum())
    error = math.sqrt(max(jackknife, max(together, 1.0) / whole))
    between = _slope_variance(own[usable], information[usable], pooled, free)
    if abs(pooled) <= t_quantile(SHOWN, free) * error and not between:
        return none
    # With one metric, the slope is its own.
    kept = np.divide(between, between + 1 / np.where(usable, information, 1.0))
    share = np.clip(error**2 * information, 1 / count, 1.0)
    taken = np.where(usable, kept + (1 - kept) * share, 0.0)
    slope = np.where(usable, pooled + kept * (own - pooled), 0.0)
    return Slopes(slope, taken)


def without_slopes(values: ArrayLike, places: ArrayLike, signs: ArrayLike) -> tuple[Floats, Floats]:
    """Return the values of one arm's metrics without the effect of places, for exact tests.

    Args:
        values: Differences, ``(1, metrics, blocks)``, or the values of the three boots of a block
            that may change names, ``(3, metrics, blocks)``. NaN where a metric has none.
        places: The covariate, same shape.
        signs: By metric 1 if a greater value is a greater cost, otherwise -1.

    Returns:
        The values, and the places of the metrics whose own slope the test must fit again for each
        exchange of names; NaN for the others.
    """
    given, covariate = np.array(values, dtype=np.float64), np.asarray(places, dtype=np.float64)
    left = np.full_like(covariate, np.nan)
    sides, metrics, _ = given.shape
    there = ~np.isnan(given[0]).any(axis=0)
    own, at = given[:, :, there], covariate[:, :, there]
    at = np.where(np.isnan(own), np.nan, at)
    if sides > 1:
        # A block that lacks a boot of the twin has the deviations of the other two.
        own, at = own - np.nanmean(own, axis=0), at - np.nanmean(at, axis=0)
    own, at = np.nan_to_num(own), np.nan_to_num(at)
    costs = np.asarray(signs, dtype=np.float64)[:, None]
    d, x = (np.moveaxis(each, 0, 2).reshape(metrics, -1) for each in (own, at))
    slopes = shared_slopes(costs * d, x, for_tests=True, boots=sides)
    again = slopes.taken > MOST_TAKEN
    left[:, again] = covariate[:, again]
    known = np.where(again, 0.0, costs[:, 0] * slopes.slope)
    return given - known[:, None] * np.where(np.isnan(covariate), 0.0, covariate), left


def _by_block(values: Floats, boots: int) -> Floats:
    """Return the sums over metrics and boots, one for each block."""
    found: Floats = values.sum(axis=0).reshape(-1, boots).sum(axis=1)
    return found


def _slope_variance(own: Floats, information: Floats, pooled: float, degrees: int) -> float:
    """Return the variance of true slopes between metrics; 0 if chance explains it."""
    spare = own.size - 1
    if spare < 1:
        return 0.0
    squares = information * (own - pooled) ** 2
    # Each is the square of a t; on the scale of normal ones their sum is a chi-squared.
    chances = [beta_cdf(degrees / 2, 0.5, degrees / (degrees + t)) for t in squares.tolist()]
    normal = [NormalDist().inv_cdf(min(max(p, _SURE) / 2, 0.5)) ** 2 for p in chances]
    third = 2 / (9 * spare)
    # Its quantile of 99 % (Wilson & Hilferty 1931).
    if math.fsum(normal) <= spare * (1 - third + 2.326 * math.sqrt(third)) ** 3:
        return 0.0
    scale = float(information.sum() - (information**2).sum() / information.sum())
    return max(0.0, float(squares.sum()) - spare) / scale


def mean_at_equal(
    differences: ArrayLike, covariate: ArrayLike, slope: float, taken: float, confidence: float
) -> Adjusted:
    """Return the mean of one metric's differences at equal covariates of both arms.

    Args:
        differences: One a block.
        covariate: The covariate, arm less baseline.
        slope: The metric's slope.
        taken: The share of a degree of freedom that it took.
        confidence: Nominal coverage of the interval.
    """
    d, x = np.asarray(differences, dtype=np.float64), np.asarray(covariate, dtype=np.float64)
    rest = d - slope * x
    mean, degrees = float(rest.mean()), d.size - 1 - taken
    variance = float(((rest - mean) ** 2).sum()) / degrees
    middle = float(x.mean())
    squares = float(((x - middle) ** 2).sum())
    share = 1 / d.size + taken * middle**2 / squares
    return Adjusted(mean, student_quantile(confidence, degrees) * math.sqrt(variance * share))
