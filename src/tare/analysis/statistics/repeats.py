"""The repeats at each level, from a pilot and the cost of each level.

Source: Kalibera & Jones, "Rigorous Benchmarking in Reasonable Time" (ISMM 2013), §6, with the
corrected estimator T²ᵢ = S²ᵢ − S²ᵢ₋₁ ÷ rᵢ₋₁: the variance of means one level down is divided by
the number of values in those means.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from tare.analysis.statistics.logratio import t_quantile

MOST_BLOCKS = 100_000


@dataclass(frozen=True)
class RepeatAdvice:
    """The advice from a pilot.

    Args:
        per_level: Repeats at each level below the block, lowest (iterations) first.
        blocks: Blocks needed for the asked half-width; None if none was asked.
        variance: T² of each level, lowest first, the block's last; in squared units of the
            pilot's values. An estimate of a variance of 0 may be negative and is kept.
        half_width: The half-width to expect with ``blocks``.
        cost_s: Seconds the whole experiment would take; None without ``blocks``.
    """

    per_level: tuple[int, ...]
    blocks: int | None
    variance: tuple[float, ...]
    half_width: float | None
    cost_s: float | None


def level_variances(pilot: ArrayLike) -> tuple[float, ...]:
    """Return the unbiased variance T² that each level adds, lowest level first.

    Args:
        pilot: Balanced values, highest level first: shape ``(blocks, repeats, iterations)``, or
            any number of axes ≥ 1, each at least 2 long.

    Raises:
        ValueError: An axis is shorter than 2: its variance cannot be estimated.
    """
    values = np.asarray(pilot, dtype=np.float64)
    if values.ndim < 1 or min(values.shape) < 2:
        raise ValueError("a pilot needs at least two of everything at every level")
    variances: list[float] = []
    below = 0.0
    while values.ndim:
        # S² of this level: the mean variance among siblings.
        spread = float(values.var(axis=-1, ddof=1).mean())
        variances.append(spread - below)
        below = spread / values.shape[-1]
        values = values.mean(axis=-1)
    return tuple(variances)


def choose_repeats(
    pilot: ArrayLike,
    costs_s: ArrayLike,
    *,
    half_width: float | None = None,
    confidence: float = 0.95,
    most: int = 100,
    least_blocks: int = 8,
) -> RepeatAdvice:
    """Return the repeats that reach a precision in the least time.

    rᵢ = √(cᵢ₊₁ ÷ cᵢ · T²ᵢ ÷ T²ᵢ₊₁), rounded up. The noisier and cheaper a level is, compared with
    the level above, the more it is repeated.

    Args:
        pilot: As in `level_variances`; logs of values, for a precision of ratios.
        costs_s: Additional seconds for one more of each level, lowest level first: an iteration;
            starting a repeat with its warm-up; booting a block's machine.
        half_width: Asked half-width of the mean, in the pilot's unit.
        confidence: The confidence of that half-width.
        most: Most repeats of a level, used if no level above it varies.
        least_blocks: Least blocks; eight are the least that reach p < 0.01.

    Raises:
        ValueError: A cost is not above 0, or the number of costs is not the number of levels.
    """
    values = np.asarray(pilot, dtype=np.float64)
    costs = np.asarray(costs_s, dtype=np.float64)
    variances = level_variances(values)
    if costs.shape != (len(variances),) or not np.all(costs > 0):
        raise ValueError(f"{len(variances)} levels need as many costs, each above 0 s")
    per_level = tuple(_repeats_of(i, variances, costs, most) for i in range(len(variances) - 1))
    if half_width is None:
        return RepeatAdvice(per_level, None, variances, None, None)
    spread = _block_variance(variances, per_level)
    blocks = _blocks_for(spread, half_width, confidence, least_blocks)
    price = _price(costs, per_level)
    reached = _reach(spread, blocks, confidence)
    return RepeatAdvice(per_level, blocks, variances, reached, blocks * price)


def _repeats_of(level: int, variances: tuple[float, ...], costs: np.ndarray, most: int) -> int:
    own = variances[level]
    if own <= 0:
        return 1
    price = 0.0
    # A level above that does not vary is never repeated: its price adds to the next one's.
    for above in range(level + 1, len(variances)):
        price += float(costs[above])
        if variances[above] > 0:
            optimum = math.sqrt(price / float(costs[level]) * own / variances[above])
            # The slack keeps a product that is whole, except for rounding, from being rounded up.
            return min(most, max(1, math.ceil(optimum - 1e-9)))
    return most


def _block_variance(variances: tuple[float, ...], per_level: tuple[int, ...]) -> float:
    """Return the variance of one block's mean with these repeats."""
    total, size = 0.0, 1
    for variance, repeats in zip(reversed(variances), (*reversed(per_level), 1), strict=True):
        total += max(variance, 0.0) / size
        size *= repeats
    return total


def _blocks_for(spread: float, half_width: float, confidence: float, least: int) -> int:
    """Return the fewest blocks whose mean has the asked precision; more blocks are more precise.

    Trying one number after the other would take minutes if many blocks are needed.
    """
    reaches = range(least, MOST_BLOCKS)
    return least + bisect_left(
        reaches, True, key=lambda blocks: _reach(spread, blocks, confidence) <= half_width
    )


def _reach(spread: float, blocks: int, confidence: float) -> float:
    return t_quantile(confidence, blocks - 1) * math.sqrt(spread / blocks)


def _price(costs: np.ndarray, per_level: tuple[int, ...]) -> float:
    """Return the seconds that one block takes: its own cost, and the costs of all repeats in it."""
    price = float(costs[0])
    for repeats, cost in zip(per_level, costs[1:], strict=True):
        price = repeats * price + float(cost)
    return price
