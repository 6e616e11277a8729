"""Student-t intervals over blocks: of raw values, and of block-paired log-ratios.

Sources: Student's t for the mean of n independent blocks, E = t(α/2)·s/√n as in hwang2013. Effects
are log-ratios within a block, so that influences on the whole block cancel out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tare.analysis.statistics.distributions import student_quantile

Floats = NDArray[np.float64]


class MeanInterval(NamedTuple):
    """Mean and interval ends, each with the shape of the values without their last axis."""

    mean: Floats
    low: Floats
    high: Floats


@lru_cache(maxsize=256)
def t_quantile(confidence: float, degrees: int) -> float:
    """Return t(α/2): the half-width, in standard errors, of a two-sided Student-t interval.

    Args:
        confidence: Nominal coverage, between 0 and 1.
        degrees: Degrees of freedom, at least 1.

    Raises:
        ValueError: The confidence is not between 0 and 1, or there is no degree of freedom.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence is between 0 and 1, not {confidence}")
    if degrees < 1:
        raise ValueError("a t-interval needs at least two blocks")
    return student_quantile(confidence, degrees)


def error_of_mean(values: ArrayLike, confidence: float) -> float:
    """Return hwang2013's E = t(α/2)·s/√n: the mean is known to ± E, in the values' unit.

    Args:
        values: One value per block, shape ``(n,)`` with n ≥ 2.
        confidence: Nominal coverage; hwang2013 takes 0.99 for CPU and memory, 0.95 for disk
            and network.
    """
    sample: list[float] = np.asarray(values, dtype=np.float64).tolist()
    n = len(sample)
    return t_quantile(confidence, n - 1) * deviation(sample) / math.sqrt(n)


def deviation(values: Sequence[float]) -> float:
    """Return the standard deviation with n − 1 of at least two values.

    It is plain Python: there are few blocks and many metrics, and a call into an array library
    costs more than eight additions.
    """
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def mean_interval(values: ArrayLike, confidence: float) -> MeanInterval:
    """Return means and Student-t intervals over the last axis.

    Args:
        values: Shape ``(..., n)``: n ≥ 2 blocks; for effects, log-ratios.
        confidence: Nominal coverage.
    """
    sample = np.asarray(values, dtype=np.float64)
    n = sample.shape[-1]
    mean = sample.mean(axis=-1)
    half = t_quantile(confidence, n - 1) * sample.std(axis=-1, ddof=1) / math.sqrt(n)
    return MeanInterval(mean, mean - half, mean + half)


def relative_half_width(low_log: float, high_log: float) -> float:
    """Return √(high ÷ low) − 1 of an interval given by the logs of its ends.

    This is the relative half-width of a ratio's interval about its geometric centre. Precision is
    stated as this figure: 0.05 means "known to about ± 5 %".
    """
    return math.expm1(min((high_log - low_log) / 2, 700.0))
