"""Slow boots: slower than the others of their arm by more than noise explains."""

from __future__ import annotations

import math
import statistics
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

LEAST_FACTOR = 1.2
"""A boot is reported as slow only if it takes this many times as long as the typical one."""
FALSE_ALARMS = 0.005
"""A slow boot must also exceed a bar in robust standard deviations (1.4826 · MAD). In only this
share of arms does the greatest of as many normal boots exceed the bar."""
LEAST_BOOTS = 6

_DRAWS = 40_000
# fmt: off
_USUAL = (
    10.349175875871966, 11.406594430172998, 8.011358043918268, 8.400158816758204,
    7.216871097219343, 7.171513567710215, 6.336096117364124, 6.598626940353327, 5.863008018235483,
    5.942332376079306, 5.759669598004811, 5.754276000213259, 5.487344611147645, 5.432452753123728,
    5.250727425099358, 5.342957304399494, 5.0752084713521395, 5.218493935859781, 5.088573763343801,
    5.070012581947466, 4.943900807645494, 4.940693322319785, 4.8252199616811104, 4.897218970735691,
    4.791306458606034, 4.805626858334333, 4.728575729790902, 4.864239549500892, 4.6744097987891635,
    4.741407219000328, 4.6838520904265435, 4.6805756269937895, 4.666177563665441,
    4.612263099560583, 4.607422607375631,
)
# fmt: on
"""The results of :func:`_simulated` for 6 boots and more. Drawing them each time would take a
twentieth of a small report's time."""


def slow_boots(logs: ArrayLike) -> NDArray[np.bool_]:
    """Return the slow boots of each arm.

    A boot must differ from its arm's other boots, and from the other arms of its block (their
    median; with two arms the value nearer to 0). So a slow *block* is not a slow boot of any arm.

    Args:
        logs: Logs of values, more being worse, shape ``(arms, blocks)``; NaN if missing.

    Returns:
        Shape ``(arms, blocks)``; all false in arms of fewer than 6 boots.
    """
    given = np.asarray(logs, dtype=np.float64)
    there = ~np.isnan(given)
    found = np.zeros(given.shape, dtype=np.bool_)
    if not there.any():
        return found
    typical = np.array([_middle(row[t]) if t.any() else np.nan
                        for row, t in zip(given, there, strict=True)])  # fmt: skip
    off = given - typical[:, None]
    own = off - np.array([_common(column[~np.isnan(column)]) for column in off.T])
    for arm, row in enumerate(off):
        measured = there[arm]
        known = row[measured]
        if known.size < LEAST_BOOTS:
            continue
        bar = _reach(known.size) * 1.4826 * _middle(np.abs(known))
        found[arm, measured] = (known > bar) & (own[arm, measured] > math.log(LEAST_FACTOR))
    return found


def _reach(boots: int) -> float:
    """Return the bar for slow boots: robust deviations that normal boots rarely exceed."""
    place = boots - LEAST_BOOTS
    return _USUAL[place] if 0 <= place < len(_USUAL) else _simulated(boots)


@lru_cache(maxsize=64)
def _simulated(boots: int) -> float:
    """Find the reach by simulation with a fixed seed.

    With few boots the deviation itself is so uncertain that no normal quantile is large enough (8
    boots: 13 deviations).
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
    return _middle(column)


def _middle(values: NDArray[np.float64]) -> float:
    # NumPy's own loads a library at its first use, and is slow for few values.
    return float(statistics.median(values.tolist()))
