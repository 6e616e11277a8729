"""Evidence and intervals that hold at every look, however often one looks, and whenever one stops.

An ordinary interval covers at a number of blocks fixed beforehand. A confidence sequence covers at
all of them at once (Ville 1939; Robbins 1970), so a run may stop as soon as it tells what is asked.

- Of a mean of normal values: the t-statistic's likelihood, mixed over effects that are normal with
  a standard deviation of one of the values' own, against no effect (Lai 1976; Gönen et al. 2005;
  Wang & Ramdas 2023). It does not depend on the values' spread.
- Of a median: how many values lie above it, the chance of that mixed uniformly against one half
  (Robbins 1970). It assumes no distribution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tare.analysis.statistics.logratio import deviation

EFFECT = 1.0
"""Standard deviation of the effects that are mixed over, in standard deviations of a value: what 8
to 30 blocks decide best."""


def mean_evidence(values: Sequence[float], null: float = 0.0) -> float:
    """Return how many times likelier the values are with some effect than with ``null``.

    If ``null`` is the mean, it ever exceeds 1 ÷ level in at most a share ``level`` of experiments.

    Args:
        values: Independent, normal, in order; one value tells nothing.
        null: The mean that is held against.
    """
    n = len(values)
    if n < 2:
        return 1.0
    spread = deviation(values)
    offset = math.fsum(values) / n - null
    if spread == 0:
        return 1.0 if offset == 0 else math.inf
    ratio = (offset / spread) ** 2 * n / (n - 1)
    more = 1 + n * EFFECT**2
    log = n / 2 * (math.log1p(ratio) - math.log1p(ratio / more)) - math.log(more) / 2
    return math.exp(min(log, 700.0))


def mean_ends(values: Sequence[float], confidence: float) -> tuple[float, float]:
    """Return the ends of the means against which there is too little evidence.

    Args:
        values: As for `mean_evidence`.
        confidence: How likely the true mean lies within at all looks.

    Returns:
        Infinite ends where so few values bound nothing.
    """
    n = len(values)
    if n < 2:
        return -math.inf, math.inf
    half = t_that_tells(n, 1 - confidence) * deviation(values) / math.sqrt(n)
    if math.isnan(half):
        return -math.inf, math.inf
    mean = math.fsum(values) / n
    return mean - half, mean + half


def t_that_tells(n: int, level: float) -> float:
    """Return the t-statistic of so many values whose evidence is 1 ÷ level; infinite if none has.

    Args:
        n: How many values, 2 or more.
        level: How often the evidence may be so great at any look where there is no effect.
    """
    more = 1 + n * EFFECT**2
    bound = (math.sqrt(more) / level) ** (2 / n)
    if bound >= more:
        return math.inf
    return math.sqrt((bound - 1) / (1 - bound / more) * (n - 1))


def median_evidence(values: Sequence[float], null: float = 0.0) -> float:
    """Return how many times likelier as many values lie above ``null`` if it is not the median.

    Args:
        values: Independent, in any order.
        null: The median that is held against. Values equal to it count to whichever side leaves
            the least evidence.
    """
    above = sum(value > null for value in values)
    even = sum(value == null for value in values)
    return _evidence_of_count(len(values), min(max(len(values) // 2, above), above + even))


def sign_evidence(values: Sequence[float]) -> float:
    """Return how many times likelier the signs are if one is likelier than the other.

    What is zero says nothing of that, and is left out.

    Args:
        values: Independent differences, in any order.
    """
    above, below = sum(value > 0 for value in values), sum(value < 0 for value in values)
    return _evidence_of_count(above + below, above)


def _evidence_of_count(n: int, above: int) -> float:
    log = n * math.log(2) - math.log(n + 1) - math.log(math.comb(n, above))
    return math.exp(min(log, 700.0))


def median_ends(values: Sequence[float], confidence: float) -> tuple[float, float] | None:
    """Return the ends of the medians against which there is too little evidence.

    Args:
        values: As for `median_evidence`.
        confidence: How likely the true median lies within at all looks.

    Returns:
        None where so few values bound nothing; 8 do for 95 %.
    """
    ordered, n = sorted(values), len(values)
    depth = 0
    while depth < n // 2 and _evidence_of_count(n, depth) >= 1 / (1 - confidence):
        depth += 1
    return (ordered[depth - 1], ordered[n - depth]) if depth else None
