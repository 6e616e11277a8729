"""Variance moderation: a prior for each metric's variance, from the metrics of its family.

With few blocks, a metric's own variance is uncertain. Metrics whose variance comes out large by
chance then miss a real difference, and those whose variance comes out small set the bar for all
others. The prior is a scaled inverse chi-squared distribution, fitted by the moments of the
logarithms (Smyth 2004, "Linear models and empirical Bayes methods"). A test statistic adds the
prior's sum of squares to its own.

The prior is computed from sums of squares about zero. Exchanging names within blocks leaves these
unchanged, so each sign pattern has the same prior, and a permutation test remains exact.
"""

from __future__ import annotations

import math
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Number = TypeVar("Number", float, Floats)

LEAST_BLOCKS = 6
"""Fewest blocks of a metric that is moderated, and whose variance enters the prior."""
LEAST_METRICS = 3
"""Fewest metrics that a prior is fitted to."""
MOST_DEGREES = 100.0
"""Degrees of freedom of a prior if the variances differ no more than by chance."""
_ASYMPTOTIC = 8
"""From here on, the asymptotic series have errors below 1e-8."""


class Prior(NamedTuple):
    """The prior of each metric, shape ``(metrics,)``; zeros for a metric without one.

    Args:
        squares: The sum of squares that it adds to the metric's own.
        degrees: The degrees of freedom of that sum.
    """

    squares: Floats
    degrees: Floats


def prior_variance(squares: ArrayLike, degrees: ArrayLike, comparable: ArrayLike) -> Prior:
    """Fit the prior of a family.

    Args:
        squares: Each metric's sum of squares, unchanged by an exchange of names.
        degrees: Its degrees of freedom.
        comparable: Which metrics have one unit, such as log-ratios, and enough blocks.
    """
    sums, df = np.asarray(squares, dtype=np.float64), np.asarray(degrees, dtype=np.float64)
    used = np.asarray(comparable, dtype=np.bool_) & (sums > 0)
    none = Prior(np.zeros_like(sums), np.zeros_like(sums))
    if used.sum() < LEAST_METRICS:
        return none
    half = df[used] / 2
    logs = np.log(sums[used] / df[used]) - digamma(half) + np.log(half)
    own = float(logs.var(ddof=1) - trigamma(half).mean())
    prior = prior_degrees(own)
    variance = math.exp(float(logs.mean()) + digamma(prior / 2) - math.log(prior / 2))
    return Prior(np.where(used, prior * variance, 0.0), np.where(used, prior, 0.0))


def prior_degrees(variance: float) -> float:
    """Return the degrees of freedom of a prior, from the true variation of log variances.

    Args:
        variance: Variance of the true log variances of the metrics, infinity or 0 included.
    """
    if variance <= 0:
        return MOST_DEGREES
    if math.isinf(variance):
        return 0.0
    return min(2 * _inverse_trigamma(variance), MOST_DEGREES)


def digamma(x: Number) -> Number:
    """Return the derivative of the gamma function's logarithm, for x above 0."""
    found = 0.0 * x
    for _ in range(_ASYMPTOTIC):
        found = found - 1 / x
        x = x + 1.0
    inverse = 1 / x**2
    series = inverse * (1 / 12 - inverse * (1 / 120 - inverse / 252))
    logarithm = math.log(x) if isinstance(x, float) else np.log(x)
    return found + logarithm - 0.5 / x - series


def trigamma(x: Number) -> Number:
    """Return the second derivative of the gamma function's logarithm, for x above 0."""
    found = 0.0 * x
    for _ in range(_ASYMPTOTIC):
        found = found + 1 / x**2
        x = x + 1.0
    inverse = 1 / x**2
    series = (1 + inverse * (1 / 6 - inverse * (1 / 30 - inverse / 42))) / x
    return found + series + inverse / 2


def _inverse_trigamma(value: float) -> float:
    """Return the x above 0 whose trigamma is ``value`` (bisection of its logarithm)."""
    low, high = -20.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        if trigamma(math.exp(middle)) > value:
            low = middle
        else:
            high = middle
    return math.exp(low)
