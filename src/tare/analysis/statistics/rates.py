"""The ratio of the means of counts and rates that may be zero."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from tare.analysis.statistics.logratio import deviation, t_quantile


class MeanRatio(NamedTuple):
    """The ratio of two means and its interval; infinite or 0 where a mean is 0."""

    ratio: float
    low: float
    high: float


def mean_ratio(arm: Sequence[float], baseline: Sequence[float], confidence: float) -> MeanRatio:
    """Return the ratio of the means of values of 0 and more, paired by block.

    This is the quasi-Poisson model (McCullagh & Nelder 1989, §4.5 and §9.2). It estimates the log
    of the ratio of totals, with the observed variance between blocks, which may be larger than
    Poisson's. The log is linearised, and Student's t allows for the few blocks.

    Args:
        arm: The arm's values, one per block.
        baseline: The baseline's in the same blocks, as many.
        confidence: Nominal coverage.
    """
    n = len(arm)
    over, under = math.fsum(arm) / n, math.fsum(baseline) / n
    if over <= 0 or under <= 0 or n < 2:
        ratio = math.nan if over == under else over / under if under > 0 else math.inf
        return MeanRatio(ratio, 0.0, math.inf)
    parts = [a / over - b / under for a, b in zip(arm, baseline, strict=True)]
    half = t_quantile(confidence, n - 1) * deviation(parts) / math.sqrt(n)
    ratio = over / under
    spread = math.exp(min(half, 700.0))
    return MeanRatio(ratio, ratio / spread, ratio * spread)
