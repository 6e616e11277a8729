"""Trimmed means: the mean of typical blocks, without a fifth of the blocks at either end.

One boot in twenty that is three times slower moves a mean, and widens its interval so far that
true differences are missed. A trimmed mean leaves such boots out. Without such boots it loses
little. Its interval is Student's t with winsorised squares (Tukey & McLaughlin 1963, Yuen 1974).

Tests compare the same statistic under exchanges of names, so they are exact for any noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tare.analysis.statistics.logratio import MeanInterval, t_quantile

Floats = NDArray[np.float64]

SHARE = 0.2
"""The share of blocks that is left out at either end, rounded down, but at least one block."""
COST = 1.05
"""The standard deviation of a trimmed mean of normal noise, relative to that of the mean.

It is √1.145 = 1.07 for many blocks (winsorised variance ÷ (1 − 2 · 0.2)²). It is less for few
blocks, because the share that is left out is then below a fifth.
"""
_SHOWN = 0.95
LEAST_BLOCKS = 5
"""Fewest blocks that leave three after trimming; with fewer, none is left out."""


class _Trimmed(NamedTuple):
    """The trimmed mean of each row, and the winsorised sum of squares about its own mean."""

    mean: Floats
    squares: Floats


def left_out(blocks: int) -> int:
    """Return how many of ``blocks`` blocks are left out at either end."""
    return max(1, int(SHARE * blocks)) if blocks >= LEAST_BLOCKS else 0


def degrees(blocks: int) -> int:
    """Return the degrees of freedom of a trimmed mean's interval."""
    return blocks - 2 * left_out(blocks) - 1


def spread_of_trimmed(blocks: int) -> float:
    """Return the factor by which trimming increases the noise, in its effect on a test's power.

    A trimmed mean varies a little more than a mean, and its interval has fewer degrees of freedom.
    """
    return COST * t_quantile(_SHOWN, degrees(blocks)) / t_quantile(_SHOWN, blocks - 1)


def trimmed_interval(values: ArrayLike, confidence: float) -> MeanInterval:
    """Return trimmed means and their intervals over the last axis.

    Args:
        values: Shape ``(..., n)``: n ≥ 2 blocks; for effects, log-ratios.
        confidence: Nominal coverage.
    """
    sample = np.asarray(values, dtype=np.float64)
    mean, error = _mean_and_error(sample)
    half = t_quantile(confidence, degrees(sample.shape[-1])) * error
    return MeanInterval(mean, mean - half, mean + half)


def error_of_trimmed(values: Sequence[float]) -> tuple[float, float]:
    """Return the trimmed mean of two or more values, and its standard error."""
    mean, error = _mean_and_error(np.asarray(values, dtype=np.float64))
    return float(mean), float(error)


def _mean_and_error(values: Floats) -> tuple[Floats, Floats]:
    free = degrees(values.shape[-1])
    found = _trimmed(values)
    return found.mean, np.sqrt(found.squares / (free * (free + 1)))


def trimmed_shares(values: Floats, added: float) -> Floats:
    """Return how extreme the trimmed mean of each row is, as a squared correlation from 0 to 1.

    With d degrees of freedom, ``d·r² ÷ (1 − r²)`` is the square of the interval's t.

    Args:
        values: One row for each exchange of names, one column a block.
        added: The sum of squares that a prior adds.
    """
    found = _trimmed(values)
    along = (degrees(values.shape[1]) + 1) * found.mean**2
    whole = along + found.squares + added
    shares: Floats = np.divide(along, whole, out=np.zeros_like(along), where=whole > 0)
    return shares


def invariant_squares(values: ArrayLike) -> float:
    """Return the mean winsorised sum of squares about 0, which no exchange of names changes.

    An exchange that puts half of the values at either end would winsorise twice as many sizes.

    Args:
        values: The differences of a metric under all ways to name boots, ``(ways, blocks)``; ways
            that only have the other sign may be absent.
    """
    given = np.asarray(values, dtype=np.float64)
    sizes, ways, blocks = np.sort(np.abs(given), axis=None), len(given), given.shape[1]
    most = sizes[sizes.size - 1 - 2 * ways * left_out(blocks)]
    return float((np.minimum(sizes, most) ** 2).sum()) / ways


def _trimmed(values: Floats) -> _Trimmed:
    blocks = values.shape[-1]
    cut = left_out(blocks)
    ordered = np.sort(values, axis=-1)
    inner = ordered[..., cut : blocks - cut]
    mean = inner.mean(axis=-1)
    # The values that were left out count as the nearest ones that were not.
    ends = inner[..., 0], inner[..., -1]
    middle = (inner.sum(axis=-1) + cut * (ends[0] + ends[1])) / blocks
    squares = ((inner - middle[..., None]) ** 2).sum(axis=-1)
    squares = squares + cut * sum((end - middle) ** 2 for end in ends)
    return _Trimmed(mean, squares)
