"""Between which values a sequence changed: how surely the place of a change is known.

Each place near the one that was found is asked: had it changed there, how often would the best
place fit so much better than the true one? Sequences that did are made of the two means about the
place, and of what the values differ from those about the one that was found, drawn in any order
(after Worsley 1986, whose likelihood ratios take noise for normal). Places that are not refused are
between the ends. To exchange values within both parts would be exact, but of few values it cannot
refuse the places beside a change of any size.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

DRAWS = 399
REACH = 64
"""Values on either side that are looked at: farther ones tell nothing of where it changed."""
ENOUGH = 3
"""So many places in a row that are refused end the search."""
SHARE = 0.5
"""Of the level: what few values differ from their own mean is less than their noise. So tried, 92
to 99 % of places are within ends of 95 % where noise is normal, exponential or of 4 degrees."""


def place_ends(
    values: ArrayLike, place: int, least: int, confidence: float, seed: int = 0
) -> tuple[int, int]:
    """Return the first and the last place at which the sequence may have changed.

    Args:
        values: In order of time, shape ``(n,)``, with one change.
        place: Index of the first value of the new, as it was found.
        least: Values that either side has at least.
        confidence: About how often the true place is within the ends.
        seed: Seed of the shuffles.
    """
    whole = np.asarray(values, dtype=np.float64)
    start, end = max(0, place - REACH), min(whole.size, place + REACH)
    near, at = whole[start:end] - whole[start:end].mean(), place - start
    places = np.arange(least, near.size - least + 1)
    parts = near[:at], near[at:]
    # Of its own mean each is a little too near.
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
    """Return how often another place fits so much better where it changed at the one tried."""
    means = np.repeat([values[:tried].mean(), values[tried:].mean()], [tried, values.size - tried])
    by_chance = _fits(means + noise, places)
    own = by_chance[:, tried - int(places[0])]
    slack = 1e-12 * float(values @ values)
    return float(1 + (by_chance.max(axis=1) - own >= gain - slack).sum()) / (DRAWS + 1)


def _fits(values: Floats, places: NDArray[np.int64]) -> Floats:
    """Return by how much two means explain the values better than one, at each place."""
    n = values.shape[-1]
    sums = values.cumsum(axis=-1)
    off = sums[..., places - 1] - sums[..., -1:] * places / n
    result: Floats = off**2 * n / (places * (n - places))
    return result
