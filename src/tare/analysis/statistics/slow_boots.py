"""Boots in another mode: far slower than the others of their arm, beyond what noise explains."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

LEAST_FACTOR = 1.5
"""A boot is only told as another mode if it is so many times off the typical one …"""
FALSE_ALARMS = 0.005
"""… and so many robust standard deviations (1.4826 · MAD) that the greatest of so many normal
boots is further off in only this share of arms."""
LEAST_BOOTS = 6

_DRAWS = 40_000


def slow_boots(logs: ArrayLike) -> NDArray[np.bool_]:
    """Return which boots of which arm are slow.

    A boot must be off from its arm's others, and from the other arms of its block (their median;
    of two arms what is nearer to 0), so that a slow *block* is nobody's slow boot.

    Args:
        logs: Logs of values of which more is worse, shape ``(arms, blocks)``; NaN where missing.

    Returns:
        Shape ``(arms, blocks)``; nothing in arms of fewer than 6 boots.
    """
    given = np.asarray(logs, dtype=np.float64)
    there = ~np.isnan(given)
    found = np.zeros(given.shape, dtype=np.bool_)
    if given.size == 0 or not there.any():
        return found
    typical = np.array([np.median(row[~np.isnan(row)]) if t.any() else np.nan
                        for row, t in zip(given, there, strict=True)])  # fmt: skip
    off = given - typical[:, None]
    own = off - np.array([_common(column[~np.isnan(column)]) for column in off.T])
    for arm, row in enumerate(off):
        known = row[there[arm]]
        if known.size < LEAST_BOOTS:
            continue
        bar = _reach(known.size) * 1.4826 * float(np.median(np.abs(known)))
        far = np.nan_to_num(row, nan=0.0) > bar
        found[arm] = far & (np.nan_to_num(own[arm], nan=0.0) > math.log(LEAST_FACTOR))
    return found


@lru_cache(maxsize=64)
def _reach(boots: int) -> float:
    """Return how many robust deviations off the greatest of so many normal boots may be.

    By simulation with a fixed seed: with few boots the deviation itself is so uncertain that no
    normal quantile will do (8 boots: 13 deviations).
    """
    drawn = np.random.default_rng(boots).standard_normal((_DRAWS, boots))
    middle = np.median(drawn, axis=1)
    spread = 1.4826 * np.median(np.abs(drawn - middle[:, None]), axis=1)
    return float(np.quantile((drawn.max(axis=1) - middle) / spread, 1 - FALSE_ALARMS))


def _common(column: NDArray[np.float64]) -> float:
    if column.size < 2:
        return 0.0
    if column.size == 2:
        return float(column[np.argmin(np.abs(column))])
    return float(np.median(column))
