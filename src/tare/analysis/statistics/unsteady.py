"""A test of whether a series changes over time by more than its autocorrelation explains.

Autocorrelated series have change points even if they are steady: with an autocorrelation of 0.9 to
0.99 most were reported as warming up. A change by chance in one boot does not recur in another. So
with enough boots the test is over boots, one value each. With few boots, a change must exceed the
variation of means that the steady part's autocorrelation causes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from tare.analysis.statistics.dependence import LEAST_WINDOWS, mean_variance
from tare.analysis.statistics.logratio import t_quantile
from tare.analysis.statistics.warmup import Shape, Trend

Floats = NDArray[np.float64]

LEAST_BOOTS = 6
LEVEL = 0.01
STARTS = (16, 4)
"""The number of parts of a series; its first part is compared with its second half."""


def stand_out(
    series: Sequence[Floats], trends: Sequence[Trend], boots: Sequence[Hashable]
) -> list[Shape]:
    """Return the shapes of series; flat if chance explains the change.

    Args:
        series: Durations in order of time, one array each.
        trends: Their trends.
        boots: The boot of each series.
    """
    if len(set(boots)) < LEAST_BOOTS:
        return [
            trend.shape if _exceeds_chance(values, trend, len(series)) else "flat"
            for values, trend in zip(series, trends, strict=True)
        ]
    warm = max(_agree(_slowdowns_by_boot(series, boots, part), slower=True) for part in STARTS)
    slow = max(_agree(_slowdowns_by_boot(series, boots, part), slower=False) for part in STARTS)
    ends = _slowdowns_by_boot(series, boots, None)
    known = {
        "warm-up": warm,
        "slowdown": slow,
        "no steady state": _agree(ends, slower=True) or _agree(ends, slower=False),
    }
    return [trend.shape if known.get(trend.shape) else "flat" for trend in trends]


def _slowdowns_by_boot(
    series: Sequence[Floats], boots: Sequence[Hashable], part: int | None
) -> Floats:
    """Return for each boot how much slower its beginning, or third quarter, is than the rest."""
    found: dict[Hashable, list[float]] = defaultdict(list)
    for values, boot in zip(series, boots, strict=True):
        quarter = values.size // 4
        if quarter == 0:
            continue
        if part is None:
            before, after = values[2 * quarter : 3 * quarter], values[3 * quarter :]
        else:
            before, after = values[: max(1, values.size // part)], values[2 * quarter :]
        level = float(after.mean())
        if level != 0:
            found[boot].append(float(before.mean()) / level - 1)
    return np.array([np.mean(each) for each in found.values()])


def _agree(differences: Floats, *, slower: bool) -> bool:
    """Return whether boots agree that they differ, in one direction."""
    n = differences.size
    if n < LEAST_BOOTS:
        return False
    mean = float(differences.mean()) if slower else -float(differences.mean())
    error = float(differences.std(ddof=1)) / math.sqrt(n)
    # Two starts and two directions share the level.
    return mean > t_quantile(1 - LEVEL / len(STARTS), n - 1) * error


def _exceeds_chance(values: Floats, trend: Trend, tests: int) -> bool:
    """Return whether a series' change exceeds what its autocorrelation can cause by chance.

    The autocorrelation is estimated from the second half. The level is small, because the position
    was chosen from the data.
    """
    if trend.shape == "flat" or values.size < 4 * LEAST_WINDOWS:
        return trend.shape != "flat"
    half = values.size // 2
    at = trend.segments[-1].start if trend.steady_from is None else trend.steady_from
    steady = values[half:] if at <= half else values[:half]
    variance, degrees = mean_variance(steady)
    before, after = values[:at], values[at:]
    spread = variance * steady.size * (1 / before.size + 1 / after.size)
    bound = t_quantile(1 - LEVEL / 10 / tests, max(1, math.floor(degrees)))
    return abs(float(before.mean() - after.mean())) > bound * math.sqrt(spread)
