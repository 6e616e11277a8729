"""Block-paired permutation test: would so clear a difference arise if arm names meant nothing?

Within a block the order of arms is random, so under the null hypothesis arm and baseline could
change names, which flips the sign of the block's (log-)difference. The p-value is the share of
all sign patterns whose sum is at least as large, two-sided (Fisher 1935). Exact up to 16 blocks;
beyond, by drawn patterns with one added to both counts (Phipson & Smyth 2010).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

EXACT_BLOCKS = 16
DRAWS = 20_000
LEAST_BLOCKS = 8
"""The least number of blocks that can reach p < 0.01: 2 ÷ 2⁸ = 0.0078."""

_CHUNK = 8192
_ROWS = 256
"""So many rows at a time take some 17 MB, however many there are."""


def least_p(blocks: int) -> float:
    """Return the least two-sided p that ``blocks`` blocks can reach."""
    if blocks < 1:
        return 1.0
    if blocks <= EXACT_BLOCKS:
        return float(min(1.0, 2.0 / 2**blocks))
    return 1 / (DRAWS + 1)


def sign_flip_p(differences: ArrayLike, seed: int = 0) -> Floats:
    """Return two-sided p-values of block differences.

    Args:
        differences: Shape ``(..., n)``: per block the log-ratio or difference.
        seed: Seed of the drawn patterns; without effect up to 16 blocks.

    Returns:
        P-values of shape ``(...)``: never 0, and 1 where all differences are 0.

    Raises:
        ValueError: There is no block.
    """
    sample = np.asarray(differences, dtype=np.float64)
    n = sample.shape[-1] if sample.ndim else 0
    if n < 1:
        raise ValueError("a permutation test needs at least one block")
    rows = sample.reshape(-1, n)
    # Relative slack: sums that are equal in exact arithmetic must count as equal.
    bar = np.abs(rows.sum(axis=1)) - 1e-9 * np.abs(rows).sum(axis=1)
    exact = n <= EXACT_BLOCKS
    patterns = 2 ** (n - 1) if exact else DRAWS
    count = np.zeros(rows.shape[0], dtype=np.int64)
    for start in range(0, patterns, _CHUNK):
        size = min(_CHUNK, patterns - start)
        signs = _patterns(start, size, n) if exact else _drawn(seed, n)[start : start + size]
        for first in range(0, rows.shape[0], _ROWS):
            part = slice(first, first + _ROWS)
            sums = rows[part] @ signs.T
            count[part] += (np.abs(sums, out=sums) >= bar[part, None]).sum(axis=1)
    p = count / patterns if exact else (count + 1) / (patterns + 1)
    result: Floats = p.reshape(sample.shape[:-1])
    return result


@lru_cache(maxsize=2)
def _drawn(seed: int, n: int) -> Floats:
    """Return the drawn sign patterns, which all metrics of equally many blocks share."""
    rng = np.random.default_rng(seed)
    return np.concatenate(
        [
            rng.choice((-1.0, 1.0), size=(min(_CHUNK, DRAWS - start), n))
            for start in range(0, DRAWS, _CHUNK)
        ]
    )


def _patterns(start: int, size: int, n: int) -> Floats:
    """Return sign patterns ``start`` … with the first sign fixed: the others mirror them."""
    numbers = np.arange(start, start + size)[:, None]
    flipped = (numbers >> np.arange(n)) & 1
    return np.where(flipped == 1, -1.0, 1.0)
