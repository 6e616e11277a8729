"""What a clock's grid hides: how far values that sit on few steps may be from the truth."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

_FLOAT = 1e-12
"""Values that differ by a smaller share of the greatest differ by floating-point rounding only."""
_DECADES = 7
"""A decimal step below this many decades of the greatest value hides nothing that matters."""
_DIGITS = 1e-8
"""How far multiples of a decimal step may be off, in steps."""
LEAST_DISTINCT = 3
"""Fewest distinct values that show a decimal step, unless values repeat."""
NANOSECOND = 1e-9
"""The finest step that the agent tells durations in."""


def grid_step(values: ArrayLike, finest: float = 0.0) -> float:
    """Return the step of the grid that values sit on, 0 where they sit on none.

    Values of a continuous quantity do not repeat. Where at most half of them are distinct, the
    least difference between two of them is taken for the step of what counted them. Of only two
    that differ by many steps, as of arms that are each always the same, it is the greatest step
    that both are a multiple of: what lies between them says nothing of how finely they were told.

    Args:
        values: All values of one metric over all boots and arms.
        finest: The step to take where all values are one and the same.
    """
    sample = np.asarray(values, dtype=np.float64)
    if sample.size < 4 or 2 * len(set(sample.tolist())) > sample.size:
        return 0.0
    # `np.unique` would load masked arrays, only to look whether this is one.
    steps = np.diff(np.sort(sample))
    steps = steps[steps > _FLOAT * np.abs(sample).max()]
    if not steps.size:
        return finest
    least = float(sample.min())
    if steps.size == 1 and least > 0:
        return _common_step(least, float(sample.max()), finest)
    return float(steps.min())


def decimal_step(values: ArrayLike) -> float:
    """Return the greatest power of ten that all values are a multiple of; 0 where there is none.

    A program that writes a value with few decimals rounds it, however rarely values repeat. Values
    that were not rounded are multiples of no such step, but for chance of less than one in a
    million for each value.

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
    """Return the greatest step that two values are multiples of, but for rounding (Euclid)."""
    rounding = max(1.5 * finest, 1e-6 * less)
    step, rest = less, more
    while True:
        left = math.remainder(rest, step)
        if abs(left) <= rounding:
            return min(step, more - less)
        step, rest = abs(left), step


def log_widening(step: float, arm: float, baseline: float) -> float:
    """Return by how much each end of a log-ratio's interval moves out for a grid's step.

    Each value may be off by half a step, and in all boots alike: no number of boots takes that
    out. So it is added to the interval's half-width, not to the variance (GUM, JCGM 100:2008,
    §4.3.7 for the half step).

    Args:
        step: The grid's step, in the values' unit.
        arm: A typical value of the arm, above 0.
        baseline: The same of the baseline.
    """
    # A value of a step or less is known to a factor only; a half step below it is no value at all.
    with np.errstate(over="ignore"):
        half = np.minimum(step / 2 / np.array([arm, baseline]), 0.999)
    return float(-np.log1p(-half).sum())
