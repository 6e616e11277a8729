"""Intervals for medians and maxima that assume no distribution.

Sources: order-statistic intervals from the binomial distribution (David & Nagaraja 2003, §7.1);
interpolation between two of them for a median of few values (Hettmansperger & Sheather 1986).
A maximum has no t-interval. The estimate is the maximum of a typical boot, the median of the boots'
maxima, and boots are resampled.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tare.analysis.statistics.logratio import t_quantile
from tare.analysis.statistics.quantiles import tail_quantiles

RESAMPLES = 2000


def least_blocks_for_median(confidence: float) -> int:
    """Return how many blocks a distribution-free interval of the median needs (6 for 95 %)."""
    return math.floor(1 - math.log2(1 - confidence) - 1e-12) + 1


def median_interval(values: ArrayLike, confidence: float) -> tuple[float, float] | None:
    """Return the interpolated order-statistic interval of a median.

    Args:
        values: One value per block, shape ``(n,)``.
        confidence: Nominal coverage.

    Returns:
        The ends, or None if there are too few blocks to bound the median at that confidence.
    """
    ordered: list[float] = sorted(np.asarray(values, dtype=np.float64).tolist())
    n = len(ordered)
    found = _median_depth(n, confidence)
    if found is None:
        return None
    depth, weight = found
    low = (1 - weight) * ordered[depth - 1] + weight * ordered[depth]
    high = (1 - weight) * ordered[n - depth] + weight * ordered[n - depth - 1]
    return low, high


@lru_cache(maxsize=256)
def _median_depth(n: int, confidence: float) -> tuple[int, float] | None:
    """Return the depth of the outer order statistic, and the weight of the next inner one."""

    def coverage(depth: int) -> float:
        beyond = sum(math.comb(n, below) for below in range(depth))
        return 1 - 2 * (beyond / (1 << n))

    if n < 2 or coverage(1) < confidence:
        return None
    depth = 1
    # At the middle the coverage is 0 or less, so the loop ends there at the latest.
    while coverage(depth + 1) >= confidence:
        depth += 1
    outer, inner = coverage(depth), coverage(depth + 1)
    share = (outer - confidence) / (outer - inner)
    return depth, (n - depth) * share / (depth + (n - 2 * depth) * share)


def boot_level_interval(
    values: ArrayLike, confidence: float, seed: int, resamples: int = RESAMPLES
) -> tuple[float, float]:
    """Return the bootstrap interval of the median over boots.

    Boots are resampled whole, never samples within them; a boot's maximum is one value. (The
    greatest over all boots has no honest bootstrap interval: no resample can exceed it.) The
    percentiles taken are those of Student's t with n − 1 degrees of freedom, not the normal
    ones, without which few boots give too narrow an interval (after Hesterberg 2015, §3.3); as a
    resampled median takes few values, 95 % becomes 95 to 98 %. `median_interval` is closer.

    Args:
        values: One value per boot, shape ``(n,)`` with n ≥ 2.
        confidence: Nominal coverage.
        seed: Seed of the draws.
        resamples: Number of resamples.
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    below, above = _median_ranks(ordered.size, seed, resamples)
    medians = (ordered[below] + ordered[above]) / 2
    # The normal probability beyond the t-quantile.
    tail = math.erfc(t_quantile(confidence, ordered.size - 1) / math.sqrt(2)) / 2
    low, high = tail_quantiles(medians, tail)
    return float(low), float(high)


@lru_cache(maxsize=16)
def _median_ranks(
    size: int, seed: int, resamples: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the two order statistics around each resample's median (0-based).

    A resample's median depends on the draws alone, so metrics of equally many boots share them.
    """
    draws = np.random.default_rng(seed).integers(0, size, size=(resamples, size))
    draws.sort(axis=1)
    return draws[:, (size - 1) // 2], draws[:, size // 2]
