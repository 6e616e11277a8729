"""A confidence set for the position of a change point in a sequence.

Each position near the detected one is tested: had the sequence changed there, how often would the
best position fit so much better than the true one? The null sequences consist of the two means
about that position, plus the residuals about the detected position in random order (after Worsley
1986, whose likelihood ratios assume normal noise). Positions that are not rejected are between the
ends. An exchange of values within both parts would be exact, but with few values it cannot reject
the positions next to a change of any size.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

DRAWS = 399
REACH = 64
"""The values used on either side: farther ones have no information on the position."""
ENOUGH = 3
"""The number of rejected positions in a row that ends the search."""
SHARE = 0.5
"""A share of the level, because residuals of few values are smaller than their noise. In
simulations the ends of 95 % covered 92 to 99 % of positions, with normal, exponential and t₄
noise."""


def place_ends(
    values: ArrayLike, place: int, least: int, confidence: float, seed: int = 0
) -> tuple[int, int]:
    """Return the first and the last place at which the sequence may have changed.

    Args:
        values: In order of time, shape ``(n,)``, with one change.
        place: Index of the detected first value after the change.
        least: The least values on either side.
        confidence: The approximate rate at which the true position is within the ends.
        seed: Seed of the shuffles.
    """
    whole = np.asarray(values, dtype=np.float64)
    start, end = max(0, place - REACH), min(whole.size, place + REACH)
    near, at = whole[start:end] - whole[start:end].mean(), place - start
    places = np.arange(least, near.size - least + 1)
    parts = near[:at], near[at:]
    # Each value is a little too close to the mean of its own part.
    off = [(part - part.mean()) * np.sqrt(part.size / (part.size - 1)) for part in parts]
    order = np.random.default_rng(seed).random((DRAWS, near.size)).argsort(axis=1)
    noise = np.concatenate(off)[order]
    fits = _fits(near, places)
    ends = []
    for outward in (range(at - 1, least - 1, -1), range(at + 1, near.size - least + 1)):
        farthest, refused = at, 0
        for tried in outward:
            gain = float(fits.max() - fits[tried - least])
            if _chance(near, tried, gain, noise, places) > SHARE * (1 - confidence):
                farthest, refused = tried, 0
            elif (refused := refused + 1) == ENOUGH:
                break
        ends.append(start + farthest)
    return ends[0], ends[1]


def _chance(
    values: Floats, tried: int, gain: float, noise: Floats, places: NDArray[np.int64]
) -> float:
    """Return how often another position fits so much better if the tried one is true."""
    means = np.repeat([values[:tried].mean(), values[tried:].mean()], [tried, values.size - tried])
    by_chance = _fits(means + noise, places)
    own = by_chance[:, tried - int(places[0])]
    slack = 1e-12 * float(values @ values)
    return float(1 + (by_chance.max(axis=1) - own >= gain - slack).sum()) / (DRAWS + 1)


def _fits(values: Floats, places: NDArray[np.int64]) -> Floats:
    """Return the improvement of two means over one at each position."""
    n = values.shape[-1]
    sums = values.cumsum(axis=-1)
    off = sums[..., places - 1] - sums[..., -1:] * places / n
    result: Floats = off**2 * n / (places * (n - places))
    return result
