"""Tails with given figures, for tests of their summaries."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tare.analysis.statistics import pareto
from tare.analysis.statistics.histogram import Histogram


def counted(counts: dict[float, int]) -> Histogram:
    """One bin of a width of 1 about each value."""
    values = np.array(sorted(counts), dtype=np.float64)
    count = np.array([counts[value] for value in sorted(counts)], dtype=np.int64)
    return Histogram(values - 0.5, np.ones(values.size), count)


def fit_of(
    shape: Sequence[float],
    scale: Sequence[float] | None = None,
    share: Sequence[float] | None = None,
    at: float = 100.0,
) -> pareto._Fit:
    boots = len(shape) - 1
    return pareto._Fit(
        at,
        np.array(shape),
        np.array(scale or [10.0] * (boots + 1)),
        np.array(share or [0.1] * (boots + 1)),
        np.ones((boots, 4), dtype=np.int64),
        np.array([1.0, 5.0, 20.0, 60.0]),
    )
