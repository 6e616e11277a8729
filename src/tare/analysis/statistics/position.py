"""The mean of block differences, adjusted for the positions of the arms in the block."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tare.analysis.statistics.logratio import t_quantile
from tare.analysis.statistics.maxt import LEAST_FOR_POSITION


class Adjusted(NamedTuple):
    """The mean at equal positions, and the half-width of its t-interval."""

    mean: float
    half_width: float


def adjust_for_position(
    differences: Sequence[float], later_by: Sequence[float], confidence: float
) -> Adjusted | None:
    """Return the intercept of differences over differences of position (least squares).

    Args:
        differences: One per block.
        later_by: The arm's position in each block minus the baseline's.
        confidence: Nominal coverage of the interval, by Student's t with n − 2 degrees.

    Returns:
        None with fewer than 5 blocks, or if all differences of position are equal.
    """
    d, x = np.asarray(differences, dtype=np.float64), np.asarray(later_by, dtype=np.float64)
    n = d.size
    squares = float(x @ x)
    # The intercept's own share of the design: 0 if position and arm cannot be separated.
    own = n - float(x.sum()) ** 2 / squares if squares > 0 else 0.0
    if n < LEAST_FOR_POSITION or own <= 1e-9 * n:
        return None
    slope_free = d - x * (float(x @ d) / squares)
    mean = float(slope_free.sum()) / own
    rest = d - mean - x * (float(x @ (d - mean)) / squares)
    error = math.sqrt(float(rest @ rest) / (n - 2) / own)
    return Adjusted(mean, t_quantile(confidence, n - 2) * error)
