"""What the order of blocks tells: of one metric, and of all metrics of an arm together."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tare.analysis.order import SURE, order_of_each
from tare.analysis.statistics.serial import serial

STUDIES, BLOCKS, METRICS = 120, 8, 5


def alike(rng: np.random.Generator, lag: float) -> NDArray[np.float64]:
    """Draw metrics whose blocks are like the ones before by so much."""
    drawn = rng.standard_normal((METRICS, BLOCKS))
    for block in range(1, BLOCKS):
        drawn[:, block] = lag * drawn[:, block - 1] + np.sqrt(1 - lag**2) * drawn[:, block]
    return drawn


def shares(lag: float) -> tuple[float, float]:
    """Return how often each metric by itself tells it, at the same level, and how often the arm."""
    rng = np.random.default_rng(7)
    by_itself = any_way = 0
    for number in range(STUDIES):
        tests = serial(alike(rng, lag), number)
        by_itself += bool((np.minimum(tests.lag_p, tests.drift_p) < SURE / 2).any())
        any_way += any(order.tells(SURE) for order in order_of_each(tests))
    return by_itself / STUDIES, any_way / STUDIES


def test_metrics_tell_together_what_few_blocks_of_one_do_not() -> None:
    by_itself, together = shares(0.8)
    assert by_itself < 0.4
    assert together > by_itself + 0.15


def test_where_the_order_means_nothing_it_rarely_tells() -> None:
    assert shares(0.0)[1] <= SURE + 3 * np.sqrt(SURE * (1 - SURE) / STUDIES)


def test_few_blocks_tell_nothing() -> None:
    tests = serial(np.arange(10.0).reshape(2, 5))
    assert tests.together == 1.0
    assert not any(order.tells(0.05) for order in order_of_each(tests))
