"""The resolution of recorded values: their step, and how much it widens intervals."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

_FLOAT = 1e-12
"""A difference of a smaller share of the greatest value is floating-point rounding only."""
_DECADES = 7
"""A decimal step that is this many decades below the greatest value does not matter."""
_DIGITS = 1e-8
"""The tolerance of multiples of a decimal step, in steps."""
LEAST_DISTINCT = 3
"""The least distinct values that show a decimal step, unless values repeat."""
NANOSECOND = 1e-9
"""The step of durations that the agent reports."""


def grid_step(values: ArrayLike, finest: float = 0.0) -> float:
    """Return the step of the grid that values are on; 0 if they are not on one.

    Values of a continuous quantity do not repeat. If at most half of them are distinct, the least
    difference between two values is the step of their clock. If there are only two distinct values,
    such as from two arms that are each constant, their difference may be many steps. The step is
    then the greatest one that both are a multiple of.

    Args:
        values: All values of one metric over all boots and arms.
        finest: The step to return if all values are the same.
    """
    sample = np.asarray(values, dtype=np.float64)
    if sample.size < 4 or 2 * len(set(sample.tolist())) > sample.size:
        return 0.0
    # `np.unique` would load masked arrays, only to check whether this is one.
    steps = np.diff(np.sort(sample))
    steps = steps[steps > _FLOAT * np.abs(sample).max()]
    if not steps.size:
        return finest
    least = float(sample.min())
    if steps.size == 1 and least > 0:
        return _common_step(least, float(sample.max()), finest)
    return float(steps.min())


def decimal_step(values: ArrayLike) -> float:
    """Return the greatest power of ten that all values are a multiple of; 0 if there is none.

    A program that prints few decimals rounds its values, even if they rarely repeat. A value that
    was not rounded is a multiple of such a step with a chance of less than one in a million.

    Args:
        values: All recorded values of one metric over all boots and arms.
    """
    given = np.asarray(values, dtype=np.float64)
    sample = np.array(sorted(set(given.tolist())))
    greatest = float(np.abs(sample).max(initial=0.0))
    repeat = sample.size == LEAST_DISTINCT - 1 and 2 * sample.size <= given.size
    if not (sample.size >= LEAST_DISTINCT or repeat) or not math.isfinite(greatest):
        return 0.0
    highest = math.floor(math.log10(greatest))
    for exponent in range(highest, highest - _DECADES, -1):
        multiples = sample * 10.0**-exponent
        if float(np.abs(multiples - np.round(multiples)).max()) <= _DIGITS:
            return min(10.0**exponent, float(np.diff(sample).min()))
    return 0.0


def _common_step(less: float, more: float, finest: float) -> float:
    """Return the greatest step that two values are multiples of, up to rounding (Euclid)."""
    rounding = max(1.5 * finest, 1e-6 * less)
    step, rest = less, more
    while True:
        left = math.remainder(rest, step)
        if abs(left) <= rounding:
            return min(step, more - less)
        step, rest = abs(left), step


def log_widening(step: float, arm: float, baseline: float) -> float:
    """Return how far each end of a log-ratio's interval moves out for a grid's step.

    Each value may be off by half a step, and by the same amount in all boots: more boots do not
    reduce this. So it is added to the interval's half-width, not to the variance (GUM, JCGM
    100:2008, §4.3.7 for the half step).

    Args:
        step: The grid's step, in the values' unit.
        arm: A typical value of the arm, above 0.
        baseline: A typical value of the baseline, above 0.
    """
    # A value of one step or less is only known to a factor; a half step below it can be zero.
    with np.errstate(over="ignore"):
        half = np.minimum(step / 2 / np.array([arm, baseline]), 0.999)
    return float(-np.log1p(-half).sum())
