"""Two-humped values: Hartigan & Hartigan's dip test (1985)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

LEAST_VALUES = 6
"""The fewest boots that have any verdict.

The test's error rate sets no limit. It was simulated for 4 to 20 values (2,000 samples each of
uniform, normal, exponential, log-normal, Student-t and rounded values). It flags one hump as two in
1 % of uniform samples, its worst case, and in 0.5 % or fewer of all others. Few values only limit
the humps that it can find: `tare help samples` has the table.
"""
MOST_VALUES = 2000
LEVEL = 0.01


class DipTest(NamedTuple):
    """The dip statistic, its p-value, and whether two humps are flagged."""

    dip: float
    p: float
    flagged: bool


def detect_two_humps(values: ArrayLike, level: float = LEVEL, step: float = 0.0) -> DipTest:
    """Test whether values have more than one hump.

    More than 2000 values are thinned to 2000 evenly spaced quantiles: humps that are too small to
    show in those do not make a mean doubtful. Equal values are spread evenly over one step of the
    clock that rounded them, because the test would see a hump in each rounded value.

    Args:
        values: Shape ``(n,)``; fewer than `LEAST_VALUES` are never flagged.
        level: p-value below which two humps are flagged.
        step: The clock's step, in the values' unit; 0: the least difference between two values.
    """
    given = np.asarray(values, dtype=np.float64)
    if given.size < LEAST_VALUES:
        return DipTest(0.0, 1.0, False)
    sample = np.sort(given)
    if sample[0] == sample[-1]:
        return DipTest(0.0, 1.0, False)
    # Loading it takes longer than most tests, and most values are too few to need it.
    from diptest import diptest

    sample = _spread_ties(sample, step)
    if sample.size > MOST_VALUES:
        shares = (np.arange(MOST_VALUES) + 0.5) / MOST_VALUES
        sample = np.quantile(sample, shares)
    dip, p = diptest(sample)
    return DipTest(float(dip), float(p), bool(p < level))


def _spread_ties(ordered: np.ndarray, step: float = 0.0) -> np.ndarray:
    if (ordered[1:] > ordered[:-1]).all():
        return ordered
    distinct, counts = np.unique(ordered, return_counts=True)
    width = np.diff(distinct).min()
    if step > 0:
        # Two values that repeat show their distance, but not how finely they were rounded.
        width = min(width, step)
    within = np.concatenate([(np.arange(count) + 0.5) / count - 0.5 for count in counts])
    spread: np.ndarray = np.repeat(distinct, counts) + within * width
    return spread
