"""How much a series in time tells, where neighbours are alike: block bootstrap over time.

An interval that takes the samples of one boot for independent covers 20 % instead of 95 % where
each is like the one before (autoregressive, 0.99). Blocks of time keep what neighbours have in
common. Sources: the moving-block bootstrap (Künsch 1989), on a circle (Politis & Romano 1992); its
block length from the data (Politis & White 2004, corrected by Patton, Politis & White 2009); the
share below a value turned into the value's ends (Woodruff 1952), with as many independent samples
as tell the share equally well (Korn & Graubard 1998).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tare.analysis.statistics.distributions import beta_quantile, normal_quantile
from tare.analysis.statistics.logratio import t_quantile

Floats = NDArray[np.float64]

LEAST_WINDOWS = 16
"""Fewer stretches of time tell nothing of what neighbours have in common."""
_C = 2.0
"""Politis & White's: correlations within two standard errors count as none."""


class Share(NamedTuple):
    """How well a share is known.

    Args:
        size: As many independent samples would tell it as well.
        degrees: Degrees of freedom of that: blocks of time, less one.
    """

    size: float
    degrees: float


def block_length(values: ArrayLike) -> float:
    """Return the block length for the circular block bootstrap of a mean, in values, at least 1.

    Args:
        values: In order of time, shape ``(n,)``.
    """
    series = np.asarray(values, dtype=np.float64)
    n = series.size
    most = float(math.ceil(min(3 * math.sqrt(n), n / 3)))
    covariance = _covariances(series)
    if covariance[0] <= 0:
        return 1.0
    reach = min(2 * max(1, _last_correlated(covariance, n)), covariance.size - 1)
    lags = np.arange(1, reach + 1)
    weighed = np.minimum(1.0, 2 * (1 - lags / reach)) * covariance[1 : reach + 1]
    spectrum = float(covariance[0] + 2 * weighed.sum())
    slope = float(2 * (lags * weighed).sum())
    if spectrum <= 0:
        return most
    length = (2 * slope**2 / (4 / 3 * spectrum**2)) ** (1 / 3) * n ** (1 / 3)
    return float(min(max(1.0, length), most))


def _covariances(series: Floats) -> Floats:
    """Return autocovariances, by a Fourier transform, to as many lags as are looked at."""
    n = series.size
    centred = series - series.mean()
    # So long that none begins again from the front.
    size = 2 * n
    power = np.abs(np.fft.rfft(centred, size)) ** 2
    found: Floats = np.fft.irfft(power, size)[: n // 2 + 1] / n
    return found


def _last_correlated(covariance: Floats, n: int) -> int:
    """Return the least lag after which correlations are none for a while."""
    width = max(5, math.ceil(math.sqrt(math.log10(n))))
    small = np.abs(covariance[1:] / covariance[0]) < _C * math.sqrt(math.log10(n) / n)
    run = 0
    for lag, is_small in enumerate(small.tolist()):
        run = run + 1 if is_small else 0
        if run == width:
            return lag + 1 - width
    return len(small)


def mean_variance(values: ArrayLike) -> tuple[float, float]:
    """Return the variance of a mean over time, and the degrees of freedom that tell it.

    It is that of the circular block bootstrap, which needs no draws: the mean square of all
    blocks' sums, set right for the blocks' share of the whole.

    Args:
        values: In order of time, shape ``(n,)``, n ≥ 2.
    """
    series = np.asarray(values, dtype=np.float64)
    n = series.size
    length = math.ceil(block_length(series))
    centred = series - series.mean()
    sums = np.concatenate([[0.0], np.cumsum(np.concatenate([centred, centred[: length - 1]]))])
    blocks = sums[length:] - sums[:-length]
    variance = float(blocks @ blocks) / n / length / n / (1 - length / n)
    return variance, max(1.0, n / length - 1)


def size_of(shares: ArrayLike, share: float, samples: int) -> Share:
    """Return how many independent samples would tell a share as well as a series does.

    Args:
        shares: The share within each of equally long stretches of time, in order.
        share: The share of the whole.
        samples: Number of samples of the whole: never more than these.
    """
    series = np.asarray(shares, dtype=np.float64)
    if series.size < LEAST_WINDOWS or not 0 < share < 1:
        return Share(float(samples), math.inf)
    variance, degrees = mean_variance(series)
    if variance <= 0:
        return Share(float(samples), math.inf)
    return Share(min(float(samples), share * (1 - share) / variance), degrees)


def share_ends(share: float, known: Share, confidence: float) -> tuple[float, float]:
    """Return between which shares of the sample the quantile of that share lies.

    Clopper & Pearson's interval with as many samples as are as good as independent, less for what
    their number itself is not known (Korn & Graubard 1998).

    Args:
        share: The quantile, e.g. 0.999.
        known: How well the share below it is known.
        confidence: Nominal coverage.
    """
    size = known.size
    if math.isfinite(known.degrees):
        normal = normal_quantile(0.5 + confidence / 2)
        size *= (normal / t_quantile(confidence, max(1, math.floor(known.degrees)))) ** 2
    tail = (1 - confidence) / 2
    below = share * size
    above = size - below
    low = beta_quantile(below, above + 1, tail) if below > 0 else 0.0
    high = beta_quantile(below + 1, above, 1 - tail) if above > 0 else 1.0
    return low, high


def size_over_boots(shares: ArrayLike, samples: ArrayLike) -> Share:
    """Return how many independent samples would tell the population's share as well as boots do.

    Boots are clusters of samples: what differs between them is the variance of the whole share
    (Cochran 1977, §6.3).

    Args:
        shares: Of each boot the share of its samples that lie below a value, two boots or more.
        samples: Of each boot the number of samples.
    """
    each, counts = np.asarray(shares, dtype=np.float64), np.asarray(samples, dtype=np.float64)
    total, boots = float(counts.sum()), each.size
    share = float(each @ counts) / total
    apart = counts / total * (each - share)
    variance = float(apart @ apart) * boots / (boots - 1)
    size = share * (1 - share) / variance if variance > 0 else total
    return Share(min(total, size), boots - 1.0)
