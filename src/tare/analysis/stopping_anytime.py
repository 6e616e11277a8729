"""Whether one metric needs no more blocks, by evidence that may be looked at after each of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median

from tare.analysis.results import Kind
from tare.analysis.statistics.anytime import (
    mean_ends,
    mean_evidence,
    median_ends,
    median_evidence,
)
from tare.analysis.statistics.logratio import relative_half_width
from tare.analysis.statistics.maxt import least_blocks
from tare.analysis.verdict import LEVEL


def settled(
    ratios: Sequence[float],
    kind: Kind,
    margin: float,
    precision: float,
    confidence: float,
    tests: int,
) -> bool:
    """Return whether a metric is decided, or known as precisely as asked.

    Args:
        ratios: Log-ratio of each block.
        kind: Of the metric; tails are decided by their median.
        margin: The practical margin, a share.
        precision: Asked relative half-width.
        confidence: Of intervals.
        tests: Metrics of the arm's family, which the level is shared among.
    """
    if len(ratios) < least_blocks(LEVEL):
        return False
    typical = kind == "typical"
    ends = (mean_ends if typical else median_ends)(ratios, confidence)
    if ends is None or math.isinf(ends[0]):
        return False
    low, high = ends
    if relative_half_width(low, high) <= precision:
        return True
    if -math.log1p(margin) <= low and high <= math.log1p(margin):
        return True
    evidence = (mean_evidence if typical else median_evidence)(ratios)
    centre = fmean(ratios) if typical else median(ratios)
    return evidence >= tests / LEVEL and abs(centre) > math.log1p(margin)
