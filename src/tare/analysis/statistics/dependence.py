"""The effective size of an autocorrelated time series, by a block bootstrap over time.

If an interval assumes independent samples within a boot, it covers 20 % instead of 95 % for an
autoregressive series with a coefficient of 0.99. Blocks of time keep the correlation of neighbours.
Sources: the moving-block bootstrap (Künsch 1989), on a circle (Politis & Romano 1992); its block
length from the data (Politis & White 2004, corrected by Patton, Politis & White 2009); the share
below a value converted to the value's ends (Woodruff 1952), with the effective number of
independent samples (Korn & Graubard 1998).
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
"""The least number of windows of time that can show a correlation of neighbours."""
_C = 2.0
"""From Politis & White: correlations within two standard errors count as zero."""


class SharePrecision(NamedTuple):
    """The precision of an estimated share.

    Args:
        size: The number of independent samples with the same precision.
        degrees: The degrees of freedom of that number: blocks of time, less one.
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
    """Return autocovariances, by a Fourier transform, for all lags that are used."""
    n = series.size
    centred = series - series.mean()
    # Long enough that no lag wraps around to the front.
    size = 2 * n
    power = np.abs(np.fft.rfft(centred, size)) ** 2
    found: Floats = np.fft.irfft(power, size)[: n // 2 + 1] / n
    return found


def _last_correlated(covariance: Floats, n: int) -> int:
    """Return the least lag that is followed by several correlations of zero."""
    width = max(5, math.ceil(math.sqrt(math.log10(n))))
    small = np.abs(covariance[1:] / covariance[0]) < _C * math.sqrt(math.log10(n) / n)
    run = 0
    for lag, is_small in enumerate(small.tolist()):
        run = run + 1 if is_small else 0
        if run == width:
            return lag + 1 - width
    return len(small)


def mean_variance(values: ArrayLike) -> tuple[float, float]:
    """Return the variance of a mean over time, and its degrees of freedom.

    The variance is that of the circular block bootstrap, which needs no draws: the mean square of
    all blocks' sums, corrected for the blocks' share of the whole.

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


def size_of(shares: ArrayLike, share: float, samples: int) -> SharePrecision:
    """Return the number of independent samples that would estimate a share as precisely.

    Args:
        shares: The share within each of equally long stretches of time, in order.
        share: The share of the whole.
        samples: Number of samples of the whole, which the result never exceeds.
    """
    series = np.asarray(shares, dtype=np.float64)
    if series.size < LEAST_WINDOWS or not 0 < share < 1:
        return SharePrecision(float(samples), math.inf)
    variance, degrees = mean_variance(series)
    if variance <= 0:
        return SharePrecision(float(samples), math.inf)
    return SharePrecision(min(float(samples), share * (1 - share) / variance), degrees)


def share_ends(share: float, known: SharePrecision, confidence: float) -> tuple[float, float]:
    """Return the interval of a quantile as shares of the sample.

    This is Clopper & Pearson's interval with the effective number of independent samples, reduced
    because that number is itself an estimate (Korn & Graubard 1998).

    Args:
        share: The quantile, such as 0.999.
        known: The precision of the share below it.
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


def size_over_boots(shares: ArrayLike, samples: ArrayLike) -> SharePrecision:
    """Return the number of independent samples that would estimate a share as well as boots do.

    Boots are clusters of samples: the variance of the whole share is the variance between boots
    (Cochran 1977, §6.3).

    Args:
        shares: The share of each boot's samples below a value, for two boots or more.
        samples: The number of each boot's samples.
    """
    each, counts = np.asarray(shares, dtype=np.float64), np.asarray(samples, dtype=np.float64)
    total, boots = float(counts.sum()), each.size
    share = float(each @ counts) / total
    apart = counts / total * (each - share)
    variance = float(apart @ apart) * boots / (boots - 1)
    size = share * (1 - share) / variance if variance > 0 else total
    return SharePrecision(min(total, size), boots - 1.0)
