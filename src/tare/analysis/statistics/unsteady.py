"""Whether what a series does over time is more than its neighbours being alike.

Change points are found in any series whose neighbours are alike: of steady ones with an
autocorrelation of 0.9 to 0.99 most were told as warming up. What a boot does by chance another does
not do again. So with enough boots they are asked, one value each; with few, a change must stand out
of what the steady part's own autocorrelation makes of means.
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
"""Parts of a series, one in so many, whose beginning is held against its second half."""


def stand_out(
    series: Sequence[Floats], trends: Sequence[Trend], boots: Sequence[Hashable]
) -> list[Shape]:
    """Return the shapes of series, flat where chance explains what they did.

    Args:
        series: Durations in order of time, one array each.
        trends: Their trends.
        boots: The boot that each is from.
    """
    if len(set(boots)) < LEAST_BOOTS:
        return [
            trend.shape if _stands_out(values, trend, len(series)) else "flat"
            for values, trend in zip(series, trends, strict=True)
        ]
    warm = max(_agree(_by_boot(series, boots, part), slower=True) for part in STARTS)
    slow = max(_agree(_by_boot(series, boots, part), slower=False) for part in STARTS)
    ends = _by_boot(series, boots, None)
    known = {
        "warm-up": warm,
        "slowdown": slow,
        "no steady state": _agree(ends, slower=True) or _agree(ends, slower=False),
    }
    return [trend.shape if known.get(trend.shape) else "flat" for trend in trends]


def _by_boot(series: Sequence[Floats], boots: Sequence[Hashable], part: int | None) -> Floats:
    """Return by boot how much slower its beginning is, or its third quarter, than what follows."""
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
    # Each of two starts and of two directions takes its part of the level.
    return mean > t_quantile(1 - LEVEL / len(STARTS), n - 1) * error


def _stands_out(values: Floats, trend: Trend, tests: int) -> bool:
    """Return whether a series' change is more than chance makes of one whose neighbours are alike.

    The second half tells what neighbours have in common; the place was chosen, so little is
    believed.
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
