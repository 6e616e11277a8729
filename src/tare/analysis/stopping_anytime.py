"""Whether one metric needs no more blocks, by evidence that may be looked at after each of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median
from typing import NamedTuple

from tare.analysis.statistics.anytime import (
    mean_ends,
    mean_evidence,
    median_ends,
    median_evidence,
    sign_evidence,
)
from tare.analysis.statistics.logratio import deviation, relative_half_width
from tare.analysis.statistics.maxt import least_blocks
from tare.analysis.verdict import LEVEL
from tare.events.metric import Kind


class Look(NamedTuple):
    """What is asked at one look.

    Args:
        margin: The practical margin, a share.
        precision: Asked relative half-width.
        confidence: Of intervals.
        tests: Metrics of the arm's family, which the level is shared among.
    """

    margin: float
    precision: float
    confidence: float
    tests: int


def settled(ratios: Sequence[float], kind: Kind, look: Look) -> bool:
    """Return whether a metric is decided, or known as precisely as asked.

    Args:
        ratios: Log-ratio of each block.
        kind: Of the metric; tails are decided by their median.
        look: What is asked.
    """
    if len(ratios) < least_blocks(LEVEL):
        return False
    typical = kind == "typical"
    ends = (mean_ends if typical else median_ends)(ratios, look.confidence)
    if ends is None or math.isinf(ends[0]):
        return False
    low, high = ends
    if relative_half_width(low, high) <= look.precision:
        return True
    if -math.log1p(look.margin) <= low and high <= math.log1p(look.margin):
        return True
    evidence = (mean_evidence if typical else median_evidence)(ratios)
    centre = fmean(ratios) if typical else median(ratios)
    return evidence >= look.tests / LEVEL and abs(centre) > math.log1p(look.margin)


def settled_difference(arm: Sequence[float], baseline: Sequence[float], look: Look) -> bool:
    """Return the same of a metric that is zero at times, by its differences.

    Counts are not normal: where few values are there at all, differences that are alike by chance
    would be endless evidence. Their signs assume nothing but that arms may change names.

    Args:
        arm: The arm's value in each block.
        baseline: The baseline's.
        look: What is asked.
    """
    differences = [a - b for a, b in zip(arm, baseline, strict=True)]
    scale = max(abs(fmean(arm)), abs(fmean(baseline)))
    if len(differences) < least_blocks(LEVEL) or deviation(differences) == 0 or scale == 0:
        return False
    low, high = mean_ends(differences, look.confidence)
    if (high - low) / 2 <= look.precision * scale:
        return True
    if -look.margin * scale <= low and high <= look.margin * scale:
        return True
    decided = sign_evidence(differences) >= look.tests / LEVEL
    return decided and abs(fmean(differences)) > look.margin * scale
