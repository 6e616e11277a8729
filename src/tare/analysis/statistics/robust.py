"""A robust estimate in addition to the mean: a few outlying boots do not move it."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tare.analysis.statistics.distributions import normal_quantile

Floats = NDArray[np.float64]


class Centres(NamedTuple):
    """Robust centres and their intervals, shape ``(metrics,)``; infinite if there is no bound."""

    centre: Floats
    low: Floats
    high: Floats


def hodges_lehmann(values: ArrayLike, confidence: float) -> Centres:
    """Return the median of all pairs' means with Wilcoxon's interval, row by row.

    Source: Hodges & Lehmann 1963. The ends of the interval are order statistics of the pairs' means
    (Walsh averages), by the exact distribution of Wilcoxon's signed ranks, normal from 50 on.

    Args:
        values: Shape ``(metrics, blocks)``: one value per block, at least one.
        confidence: Nominal coverage; reached or exceeded.
    """
    sample = np.array(values, dtype=np.float64, ndmin=2)
    metrics, n = sample.shape
    left, right = np.triu_indices(n)
    walsh = np.sort((sample[:, left] + sample[:, right]) / 2, axis=1)
    pairs = walsh.shape[1]
    centre = (walsh[:, (pairs - 1) // 2] + walsh[:, pairs // 2]) / 2
    depth = _depth(n, confidence)
    if depth < 1:
        return Centres(centre, np.full(metrics, -np.inf), np.full(metrics, np.inf))
    return Centres(centre, walsh[:, depth - 1], walsh[:, -depth])


@lru_cache(maxsize=256)
def _depth(n: int, confidence: float) -> int:
    """Return the depth of the outermost pair mean that bounds the centre; 0: none does."""
    tail = (1 - confidence) / 2
    if n >= 50:
        spread = math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
        return max(0, math.floor(n * (n + 1) / 4 + normal_quantile(tail) * spread))
    chances = np.ones(1)
    for rank in range(1, n + 1):
        longer = np.zeros(chances.size + rank)
        longer[: chances.size] += chances / 2
        longer[rank:] += chances / 2
        chances = longer
    return int(np.searchsorted(np.cumsum(chances), tail, side="right"))
