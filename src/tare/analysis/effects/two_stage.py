"""Effects of a run whose first blocks said how many there would be: the interval that goes with it.

How many blocks there are hangs on the first ones' spread, so the spread of all of them is no
estimate that knows nothing of their number: where it came out small by chance, the run ended early.
The first blocks' spread alone, with their degrees of freedom, makes an interval that covers exactly
(Stein 1945), and that is never wider than what was asked for.
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
        first: The values that said how many there would be; independent, normal, 2 or more.
        count: How many there are in all.
        confidence: Nominal coverage.
    """
    return t_quantile(confidence, len(first) - 1) * deviation(first) / math.sqrt(count)


def in_two_stages(
    pairs: Sequence[Pair], estimates: Sequence[Estimate], first: int, confidence: float
) -> tuple[Estimate, ...]:
    """Return the estimates with Stein's intervals for typical values.

    Where a pair lacks most of the first blocks it keeps the ordinary interval; tails and maxima do,
    for their order statistics take nothing from a spread.

    Args:
        pairs: The pairs.
        estimates: Their estimates, with ordinary intervals.
        first: The least blocks, which said how many there would be.
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
