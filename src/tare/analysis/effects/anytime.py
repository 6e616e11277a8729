"""Effects of a run that stopped as soon as all was decided: what holds at every look."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from tare.analysis.effects.estimates import Estimate, Pair, outward
from tare.analysis.effects.families import Tested
from tare.analysis.statistics.anytime import (
    mean_ends,
    mean_evidence,
    median_ends,
    median_evidence,
    sign_evidence,
)
from tare.analysis.statistics.logratio import deviation


def at_any_time(
    pairs: Sequence[Pair],
    families: Sequence[object],
    estimates: Sequence[Estimate],
    confidence: float,
) -> tuple[tuple[Estimate, ...], tuple[Tested, ...]]:
    """Return estimates with confidence sequences, and p-values that looking early leaves right.

    Shuffles tell nothing of when one stopped, so a family shares its level equally (Bonferroni).

    Args:
        pairs: The pairs.
        families: What each belongs to.
        estimates: Their estimates, with ordinary intervals.
        confidence: Nominal coverage, at all looks.
    """
    sizes = Counter(families)
    found = [
        (_estimate(pair, estimate, confidence), _tested(pair, sizes[family]))
        for pair, family, estimate in zip(pairs, families, estimates, strict=True)
    ]
    return tuple(one for one, _ in found), tuple(two for _, two in found)


def _estimate(pair: Pair, estimate: Estimate, confidence: float) -> Estimate:
    ends = (mean_ends if pair.typical else median_ends)(pair.differences, confidence)
    alike = pair.scale == "difference" and deviation(pair.differences) == 0
    if (ends is not None and math.isinf(ends[0])) or alike:
        # Counts that are alike in a few blocks bound nothing.
        ends = None
    interval = outward(pair, ends, "anytime", confidence)
    if pair.typical:
        return replace(estimate, student_t=interval)
    return replace(estimate, order=interval)


def _tested(pair: Pair, tests: int) -> Tested:
    if len(pair.differences) < 2:
        return Tested(None, None, 0)
    # What is zero at times is not normal; the signs of its differences assume nothing.
    if pair.scale == "difference":
        evidence = sign_evidence(pair.differences)
    else:
        evidence = (mean_evidence if pair.typical else median_evidence)(pair.differences)
    return Tested(min(1.0, 1 / evidence), min(1.0, tests / evidence), tests)
