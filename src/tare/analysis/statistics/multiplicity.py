"""Correction for testing many metrics at once: Benjamini & Hochberg (1995)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def benjamini_hochberg(p_values: ArrayLike) -> NDArray[np.float64]:
    """Return q-values: declaring all q ≤ level keeps the false discovery rate at the level.

    Args:
        p_values: Shape ``(m,)``; NaN marks tests that could not be made and do not count.

    Returns:
        q-values in the same order, NaN where p is NaN.
    """
    p = np.asarray(p_values, dtype=np.float64)
    q = np.full_like(p, np.nan)
    tested = np.flatnonzero(~np.isnan(p))
    if tested.size == 0:
        return q
    order = tested[np.argsort(p[tested], kind="stable")]
    scaled = p[order] * tested.size / np.arange(1, tested.size + 1)
    q[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)
    return q
