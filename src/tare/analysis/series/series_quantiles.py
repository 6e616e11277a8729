"""Quantiles of samples in time: of the typical boot, and of all samples taken together."""

from __future__ import annotations

import math
import operator
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tare.analysis.effects.results import Interval
from tare.analysis.series.series_data import Quantile
from tare.analysis.statistics.dependence import Share, share_ends, size_of, size_over_boots
from tare.analysis.statistics.histogram import Histogram, merge
from tare.analysis.statistics.tails import median_interval

Floats = NDArray[np.float64]

WINDOWS = 4096
"""Stretches of time in which samples below a quantile are counted."""
LEAST_BEYOND = 5
"""Fewer independent samples beyond a quantile make it the maximum by another name."""
MANY_BEYOND = 200
"""With so many samples beyond, it shows whether they come in clusters."""
_MOST_NINES = 8

Pieces = Callable[[int], Iterable[NDArray[np.uint32]]]
"""Samples in order of time, in pieces of as many as asked."""


def quantiles_of(
    boots: Sequence[Histogram], pieces: Pieces | None, confidence: float
) -> tuple[Quantile, ...]:
    """Return the quantiles that the samples carry: 0.5, 0.9, 0.99 and so on.

    Args:
        boots: The samples of each boot.
        pieces: The samples of the one boot in order of time; None where it is not known.
        confidence: Nominal coverage of the intervals.
    """
    fewest = min(histogram.total for histogram in boots)
    asked = [0.5, *(1 - 10.0**-nines for nines in range(1, _MOST_NINES + 1))]
    carried = [q for q in asked if fewest * (1 - q) >= LEAST_BEYOND]
    if len(boots) > 1:
        return _of_several(boots, carried, confidence)
    (boot,) = boots
    if pieces is None:
        return tuple(_of_unordered(boot, q, confidence) for q in carried)
    values = [boot.quantile(q) for q in carried]
    shares = _shares_below(pieces, boot.total, values)
    found: list[Quantile] = []
    before = math.inf
    for q, value, below in zip(carried, values, shares, strict=True):
        known = size_of(below, q, boot.total)
        if boot.total * (1 - q) < MANY_BEYOND:
            # Few that come in clusters look like single ones: never much better known than the
            # quantile before.
            known = known._replace(size=min(known.size, 2 * before))
        if known.size * (1 - q) < LEAST_BEYOND:
            break
        before = known.size
        ends = _ends(boot, q, known, confidence)
        found.append(Quantile(q, value, Interval(*ends, "block-bootstrap", confidence)))
    return tuple(found)


def _of_unordered(boot: Histogram, q: float, confidence: float) -> Quantile:
    """Return a quantile without an interval: how far neighbours are alike is not known."""
    nothing = Interval(-math.inf, math.inf, "block-bootstrap", confidence)
    return Quantile(q, boot.quantile(q), nothing)


def _of_several(
    boots: Sequence[Histogram], asked: Sequence[float], confidence: float
) -> tuple[Quantile, ...]:
    found = []
    samples = [boot.total for boot in boots]
    whole, before = merge(boots), math.inf
    for q in asked:
        values = [boot.quantile(q) for boot in boots]
        typical = median_interval(values, confidence) or (-math.inf, math.inf)
        interval = Interval(*typical, "order-statistic", confidence)
        one = Quantile(q, float(np.median(values)), interval)
        value = whole.quantile(q)
        size = size_over_boots([boot.share_within(value) for boot in boots], samples).size
        # If boots differ, rare samples come from rare boots, and only a few of these were seen.
        before = min(size, 2 * before)
        if before * (1 - q) >= LEAST_BEYOND:
            ends = Interval(*_ends_over_boots(boots, q, confidence), "over-boots", confidence)
            one = replace(one, population=value, population_interval=ends)
        found.append(one)
    return tuple(found)


def _ends_over_boots(
    boots: Sequence[Histogram], q: float, confidence: float
) -> tuple[float, float]:
    """Return the values that may have the share ``q`` of all samples below them.

    Each is asked by itself (Francisco & Fuller 1991): where one boot of eight is slow, how well the
    share is known at the quantile says nothing of how well it is at the other boots' values.
    """
    samples = [boot.total for boot in boots]
    ends = np.unique(np.concatenate([boot.low + boot.width for boot in boots]))

    def limits(at: int) -> tuple[float, float]:
        shares = [boot.share_within(float(ends[at])) for boot in boots]
        share = sum(map(operator.mul, shares, samples)) / sum(samples)
        return share_ends(share, size_over_boots(shares, samples), confidence)

    first = bisect_left(range(ends.size), True, key=lambda at: limits(at)[1] >= q)
    beyond = bisect_left(range(ends.size), True, key=lambda at: limits(at)[0] > q)
    return (
        float(ends[first]) if first < ends.size and limits(0)[1] < q else -math.inf,
        float(ends[beyond]) if beyond < ends.size else math.inf,
    )


def _ends(samples: Histogram, q: float, known: Share, confidence: float) -> tuple[float, float]:
    low, high = share_ends(q, known, confidence)
    total = samples.total
    first, last = math.floor(low * total), math.ceil(high * total)
    return (
        samples.bin_ends(first)[0] if first >= 1 else -math.inf,
        samples.bin_ends(last)[1] if high * total <= total - 0.5 else math.inf,
    )


def _shares_below(pieces: Pieces, total: int, values: Sequence[float]) -> list[Floats]:
    """Return by quantile which share of each stretch of time is at or below its value."""
    width = max(1, -(-total // WINDOWS))
    found: list[list[Floats]] = [[] for _ in values]
    for samples in pieces(width):
        whole = samples.size // width * width
        windows = samples[:whole].reshape(-1, width)
        for shares, value in zip(found, values, strict=True):
            shares.append((windows <= value).mean(axis=1))
    return [np.concatenate(shares) if shares else np.empty(0) for shares in found]
