"""Warm-up by change points, and series without a steady state.

Change points are found by PELT (Killick, Fearnhead & Eckley 2012) on mean and variance. The penalty
is 15·ln n, which Barrett et al. ("Virtual Machine Warmup Blows Hot and Cold", OOPSLA 2017) found
right for iteration times. The search is exact. It is implemented here with whole-array steps: the
general library for it needs 5.8 s for 1000 values, this code 20 ms (the tests compare the two).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Shape = Literal["flat", "warm-up", "slowdown", "no steady state"]

MOST_POINTS = 400
LEAST_POINTS = 16
LEAST_SEGMENT = 2
OUTLIER_WINDOW = 200


@dataclass(frozen=True)
class Segment:
    """One stretch between change points: values ``start`` … ``end`` − 1 of the series."""

    start: int
    end: int
    mean: float
    deviation: float


@dataclass(frozen=True)
class Trend:
    """The shape of a series over time.

    Args:
        shape: ``flat``; ``warm-up`` (slower before it is steady); ``slowdown`` (faster before);
            ``no steady state`` (it still changes in its last quarter).
        segments: The stretches between change points.
        steady_from: Index of the first value of the steady state; None without one.
    """

    shape: Shape
    segments: tuple[Segment, ...]
    steady_from: int | None


def change_points(values: ArrayLike, penalty: float | None = None) -> tuple[int, ...]:
    """Return the positions at which mean or variance change: the first index of each new stretch.

    Args:
        values: Shape ``(n,)``, in order of time; thin a series that is much longer than 400.
        penalty: Cost of one more change; 15·ln n by default.
    """
    series = np.asarray(values, dtype=np.float64)
    return change_points_of_all(series[np.newaxis, :], penalty)[0]


def change_points_of_all(
    values: ArrayLike, penalty: float | None = None
) -> tuple[tuple[int, ...], ...]:
    """Return the change points of several equally long series at once.

    The cost of a stretch is twice its negative normal log-likelihood; it is at least two values
    long. This is optimal partitioning (Jackson et al. 2005), which PELT prunes without changing its
    result. Over many short series, one array operation per end is faster than pruning each.

    Args:
        values: Shape ``(series, n)``.
        penalty: Cost of one more change; 15·ln n by default.
    """
    series = np.asarray(values, dtype=np.float64)
    count, n = series.shape
    spread = series.std(axis=1)
    nothing: tuple[int, ...] = ()
    if n < 2 * LEAST_SEGMENT:
        return (nothing,) * int(count)
    fine = 15 * math.log(n) if penalty is None else penalty
    scaled = (series - series.mean(axis=1, keepdims=True)) / np.where(spread > 0, spread, 1.0)[
        :, np.newaxis
    ]
    floor = np.array([_least_variance(one) for one in scaled])[:, np.newaxis]
    zero = np.zeros((count, 1))
    sums = np.hstack([zero, np.cumsum(scaled, axis=1)])
    squares = np.hstack([zero, np.cumsum(scaled**2, axis=1)])
    best = np.full((count, n + 1), np.inf)
    best[:, 0] = -fine
    last = np.zeros((count, n + 1), dtype=np.int64)
    rows = np.arange(count)
    for end in range(LEAST_SEGMENT, n + 1):
        starts = end - LEAST_SEGMENT + 1
        length = end - np.arange(starts)
        mean = (sums[:, [end]] - sums[:, :starts]) / length
        variance = np.maximum((squares[:, [end]] - squares[:, :starts]) / length - mean**2, 0)
        # The floor is added, not applied as a lower bound, so that splitting never costs more.
        costs = best[:, :starts] + length * np.log(variance + floor)
        least = costs.argmin(axis=1)
        best[:, end], last[:, end] = costs[rows, least] + fine, least
    return tuple(_walk_back(row, n) for row in last)


def _walk_back(last: np.ndarray, n: int) -> tuple[int, ...]:
    found = []
    at = n
    while at > 0:
        at = int(last[at])
        found.append(at)
    return tuple(sorted(point for point in found if point > 0))


def _least_variance(scaled: Floats) -> float:
    """Return the least variance that is distinguishable from the clock's rounding."""
    steps = np.diff(np.unique(scaled))
    quantum = float(steps.min()) if steps.size else 0.0
    return max(1e-4, quantum**2 / 12)


def trend(values: ArrayLike) -> Trend:
    """Classify a series of durations (after Barrett et al., §4.3).

    Stretches are equivalent to the last one when their means differ by at most 1 % of it or by
    one standard deviation of the values in the last one, whichever is more. The series is steady
    from the first of the last equivalent stretches on. It has no steady state if that stretch
    begins in its last quarter.

    Args:
        values: Durations in order of time (less is better), shape ``(n,)``; at least 16, or it
            is called flat.
    """
    return trends([values])[0]


def trends(several: Sequence[ArrayLike]) -> tuple[Trend, ...]:
    """Classify several series, those of one length together, which is much faster.

    Args:
        several: As for `trend`, each of shape ``(n,)``.
    """
    series = [np.asarray(values, dtype=np.float64) for values in several]
    found = [Trend("flat", (), 0)] * len(series)
    for size in {one.size for one in series if one.size >= LEAST_POINTS}:
        places = [place for place, one in enumerate(series) if one.size == size]
        cleaned = np.array([without_outliers(series[place]) for place in places])
        changes = change_points_of_all(cleaned)
        for place, values, points in zip(places, cleaned, changes, strict=True):
            found[place] = _classified(values, points)
    return tuple(found)


def _classified(series: Floats, changes: tuple[int, ...]) -> Trend:
    points = (0, *changes, series.size)
    segments = tuple(
        Segment(start, end, float(series[start:end].mean()), float(series[start:end].std()))
        for start, end in itertools.pairwise(points)
    )
    final = segments[-1]
    slack = max(0.01 * abs(final.mean), final.deviation)
    steady = len(segments) - 1
    while steady > 0 and abs(segments[steady - 1].mean - final.mean) <= slack:
        steady -= 1
    start = segments[steady].start
    if start > series.size * 3 // 4:
        return Trend("no steady state", segments, None)
    if steady == 0:
        return Trend("flat", segments, start)
    slower = all(segment.mean > final.mean - slack for segment in segments[:steady])
    return Trend("warm-up" if slower else "slowdown", segments, start)


def without_outliers(values: ArrayLike) -> Floats:
    """Return the series with lone outliers replaced by the median around them.

    An outlier is further than 3·(P90 − P10) from the median of the 200 values around it
    (Barrett et al., §4.1). If a few outliers were left in, they would form their own stretches.

    Args:
        values: Shape ``(n,)``, in order of time.
    """
    series = np.asarray(values, dtype=np.float64)
    width = min(OUTLIER_WINDOW, series.size)
    windows = np.lib.stride_tricks.sliding_window_view(series, width)
    low, middle, high = np.quantile(windows, [0.1, 0.5, 0.9], axis=1)
    around = np.clip(np.arange(series.size) - width // 2, 0, windows.shape[0] - 1)
    far = np.abs(series - middle[around]) > 3 * (high - low)[around]
    return np.where(far, middle[around], series)


def thinned(values: ArrayLike, most: int = MOST_POINTS) -> Floats:
    """Return means of equally long windows, at most ``most`` of them.

    Args:
        values: Shape ``(n,)``; a remainder shorter than a window is left out.
        most: Most windows.
    """
    series = np.asarray(values, dtype=np.float64)
    width = max(1, -(-series.size // most))
    windows = series.size // width
    result: Floats = series[: windows * width].reshape(windows, width).mean(axis=1)
    return result
