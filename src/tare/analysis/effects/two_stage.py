"""Intervals for a run whose first blocks determined the number of blocks (Stein's two stages).

The number of blocks depends on the spread of the first ones. So the spread of all blocks is not
independent of their number: if it was small by chance, the run ended early. An interval from the
spread of the first blocks alone, with their degrees of freedom, covers exactly (Stein 1945). It is
never wider than was asked for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from tare.analysis.effects.estimates import Estimate, Pair, outward
from tare.analysis.statistics.logratio import deviation, t_quantile


def stein_error(first: Sequence[float], count: int, confidence: float) -> float:
    """Return Stein's half-width of the mean of all values.

    Args:
        first: The values that determined the number: independent, normal, two or more.
        count: The number of all values.
        confidence: Nominal coverage.
    """
    return t_quantile(confidence, len(first) - 1) * deviation(first) / math.sqrt(count)


def with_two_stage_intervals(
    pairs: Sequence[Pair], estimates: Sequence[Estimate], first: int, confidence: float
) -> tuple[Estimate, ...]:
    """Return the estimates with Stein's intervals for typical values.

    A pair that lacks most of the first blocks keeps the ordinary interval. Tails and maxima keep
    theirs too, because order statistics do not use a spread.

    Args:
        pairs: The pairs.
        estimates: Their estimates, with ordinary intervals.
        first: The study's least blocks, which determined the number.
        confidence: Nominal coverage.
    """
    found = []
    for pair, estimate in zip(pairs, estimates, strict=True):
        numbered = zip(pair.blocks, pair.differences, strict=True)
        early = [difference for (_, number), difference in numbered if number <= first]
        if not pair.typical or len(early) < 2:
            found.append(estimate)
            continue
        centre = math.fsum(pair.differences) / len(pair.differences)
        error = stein_error(early, len(pair.differences), confidence)
        interval = outward(pair, (centre - error, centre + error), "stein", confidence)
        found.append(replace(estimate, estimate=pair.outward(centre), student_t=interval))
    return tuple(found)
