"""Two-humped values: Hartigan & Hartigan's dip test (1985)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

LEAST_VALUES = 16
MOST_VALUES = 2000
LEVEL = 0.01


class Humps(NamedTuple):
    """The dip statistic, its p-value, and whether two humps are flagged."""

    dip: float
    p: float
    flagged: bool


def two_humped(values: ArrayLike, level: float = LEVEL) -> Humps:
    """Test whether values have more than one hump.

    More than 2000 values are thinned to 2000 evenly spaced quantiles: humps too small to show in
    those are no reason to mistrust a mean. Equal values are spread evenly between their
    neighbours, for the test takes values that a clock rounded for many humps.

    Args:
        values: Shape ``(n,)``; fewer than 16 are never flagged.
        level: p-value below which two humps are flagged.
    """
    given = np.asarray(values, dtype=np.float64)
    if given.size < LEAST_VALUES:
        return Humps(0.0, 1.0, False)
    sample = np.sort(given)
    if sample[0] == sample[-1]:
        return Humps(0.0, 1.0, False)
    # Loading it takes longer than most tests, and most values are too few to need it.
    from diptest import diptest

    sample = _spread_ties(sample)
    if sample.size > MOST_VALUES:
        shares = (np.arange(MOST_VALUES) + 0.5) / MOST_VALUES
        sample = np.quantile(sample, shares)
    dip, p = diptest(sample)
    return Humps(float(dip), float(p), bool(p < level))


def _spread_ties(ordered: np.ndarray) -> np.ndarray:
    if (ordered[1:] > ordered[:-1]).all():
        return ordered
    distinct, counts = np.unique(ordered, return_counts=True)
    width = np.diff(distinct).min()
    within = np.concatenate([(np.arange(count) + 0.5) / count - 0.5 for count in counts])
    spread: np.ndarray = np.repeat(distinct, counts) + within * width
    return spread
