"""Both ends between two quantiles, bit by bit: weights, ends, and zeros of either sign."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tare.analysis.statistics.quantiles import tail_quantiles


def by_hand(row: list[float], q: float) -> float:
    """Hyndman & Fan's seventh, from the nearer of the two neighbours."""
    ordered = sorted(row)
    at = (len(row) - 1) * q
    below = min(math.floor(at), max(len(row) - 2, 0))
    above = min(below + 1, len(row) - 1)
    weight, apart = at - below, ordered[above] - ordered[below]
    if weight < 0.5:
        return ordered[below] + apart * weight
    return ordered[above] - apart * (1 - weight)


# Weights of 0, under and over a half, and of a half exactly.
@pytest.mark.parametrize(
    ("size", "tail"),
    [(1, 0.3), (2, 0.1), (2, 0.5), (3, 0.25), (7, 0.1), (8, 0.09), (11, 0.1), (6, 1e-20)],
)
def test_each_end_is_interpolated_from_the_nearer_neighbour(size: int, tail: float) -> None:
    values = np.random.default_rng(size).standard_normal((40, size)) / 3
    low, high = tail_quantiles(values, tail)
    assert low.tolist() == [by_hand(row, tail) for row in values.tolist()]
    assert high.tolist() == [by_hand(row, 1 - tail) for row in values.tolist()]
    expected = np.quantile(values, [tail, 1 - tail], axis=-1)
    assert np.array([low, high]).tobytes() == expected.tobytes()


@pytest.mark.parametrize("shape", [(9,), (3, 4, 9), (5, 2, 1)])
def test_quantiles_are_taken_over_the_last_axis(shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(2).standard_normal(shape)
    expected = np.quantile(values, [0.1, 0.9], axis=-1)
    assert np.array(tail_quantiles(values, 0.1)).tobytes() == expected.tobytes()


def test_zeros_keep_the_sign_that_numpy_gives_them() -> None:
    rng = np.random.default_rng(1)
    for size in (2, 3, 5, 9, 30):
        values = rng.choice([0.0, -0.0, 1.0, -1.0], size=(60, size))
        for tail in (1e-20, 0.05, 0.25, 0.5):
            expected = np.quantile(values, [tail, 1 - tail], axis=-1)
            assert np.array(tail_quantiles(values, tail)).tobytes() == expected.tobytes()
