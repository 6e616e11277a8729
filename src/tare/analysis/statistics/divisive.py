"""Changes over a sequence of few values: E-divisive (Matteson & James 2014).

The energy distance between the values before and after a position is greatest where the
distribution changes. Its p is the share of shuffled sequences with an equally great distance. Then
each part is searched by itself. The method assumes no distribution of noise, and has no penalty to
choose. All sequences of one family are shuffled together, and each is compared with the greatest of
all (Westfall & Young 1993, single step).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

DRAWS = 1999
LEAST_PART = 3
"""The least values on a side that show a distribution."""
LEAST_VALUES = 8
"""The least values; with fewer, no order has p < 0.05."""


class ChangePoint(NamedTuple):
    """A position at which a sequence changes.

    Args:
        sequence: The index of the sequence.
        start: Index of the first value after the change.
        p: The probability that chance makes any sequence of the family change so much.
    """

    sequence: int
    start: int
    p: float


def changes_of(values: ArrayLike, level: float = 0.05, seed: int = 0) -> tuple[ChangePoint, ...]:
    """Return the changes of a family of sequences, by sequence and place.

    Args:
        values: In order of time, shape ``(sequences, n)``.
        level: The rate at which some sequence without a change is reported as changing.
        seed: Seed of the shuffles.
    """
    rows = np.asarray(values, dtype=np.float64)
    found: list[ChangePoint] = []
    parts = [(0, rows.shape[1], tuple(range(rows.shape[0])))]
    while parts:
        start, end, members = parts.pop()
        if end - start < LEAST_VALUES or not members:
            continue
        here = _greatest_changes(rows[list(members), start:end], seed + start)
        splits: dict[int, list[int]] = {}
        for member, place, p in zip(members, *here, strict=True):
            if p < level:
                found.append(ChangePoint(member, start + int(place), float(p)))
                splits.setdefault(start + int(place), []).append(member)
        for place, of_place in splits.items():
            parts += [(start, place, tuple(of_place)), (place, end, tuple(of_place))]
    return tuple(sorted(_placed_again(rows, found)))


def _placed_again(rows: Floats, found: Sequence[ChangePoint]) -> list[ChangePoint]:
    """Return each change at the best position between its neighbours.

    The first of several was found in all values, including those beyond the next change.
    """
    placed = []
    for member in dict.fromkeys(change.sequence for change in found):
        own = sorted(change for change in found if change.sequence == member)
        start = 0
        for change, following in zip_longest(own, own[1:]):
            end = following.start if following is not None else rows.shape[1]
            part = rows[member, start:end]
            place = _energy(np.abs(part[:, None] - part[None, :])[None])[0].argmax()
            start += LEAST_PART + int(place)
            placed.append(change._replace(start=start))
    return placed


def _greatest_changes(rows: Floats, seed: int) -> tuple[NDArray[np.int64], Floats]:
    """Return for each sequence the position of its greatest change, and its p."""
    distances = np.abs(rows[:, :, None] - rows[:, None, :])
    size = distances.mean(axis=(1, 2), keepdims=True)
    distances = np.divide(distances, size, out=np.zeros_like(distances), where=size > 0)
    observed = _energy(distances)
    places = observed.argmax(axis=1)
    most = observed.max(axis=1)
    rng = np.random.default_rng(seed)
    count = np.ones(rows.shape[0])
    for _ in range(DRAWS):
        order = rng.permutation(rows.shape[1])
        shuffled = _energy(distances[:, order][:, :, order])
        count += shuffled.max() >= most - 1e-9
    return places + LEAST_PART, count / (DRAWS + 1)


def _energy(distances: Floats) -> Floats:
    """Return the scaled energy distance at each position with enough values on both sides."""
    n = distances.shape[1]
    sums = distances.cumsum(axis=1).cumsum(axis=2)
    before = np.arange(LEAST_PART, n - LEAST_PART + 1)
    after = n - before
    whole = sums[:, -1, -1][:, None]
    left = sums[:, before - 1, before - 1]
    across = sums[:, before - 1, -1] - left
    right = whole - left - 2 * across
    within = left / (before * (before - 1)) + right / (after * (after - 1))
    result: Floats = before * after / n * (2 * across / (before * after) - within)
    return result
