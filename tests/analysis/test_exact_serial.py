"""Autocorrelation of blocks, by loops over the same shuffles, and how much it widens intervals."""

from __future__ import annotations

import itertools
import math
import statistics

import numpy as np
import pytest
from scipy import stats

from tare.analysis.statistics import serial as module
from tare.analysis.statistics.serial import held, open_correlation, ranks, serial, widening

SLACK = 1e-12


def scaled(row: list[float]) -> list[float]:
    mean = statistics.fmean(row)
    size = math.sqrt(sum((value - mean) ** 2 for value in row))
    return [(value - mean) / size if size else 0.0 for value in row]


def lag_of(row: list[float]) -> float:
    return sum(a * b for a, b in itertools.pairwise(row))


def by_definition(
    rows: list[list[float]], seed: int
) -> tuple[list[float], list[float], list[float], list[float], float]:
    n = len(rows[0])
    shapes = [scaled(row) for row in rows]
    time = scaled([float(place) for place in range(n)])
    orders = np.random.default_rng(seed).random((999, n)).argsort(axis=1).tolist()

    def drift_of(row: list[float]) -> float:
        return sum(a * b for a, b in zip(row, time, strict=True))

    lag, drift = [lag_of(row) for row in shapes], [drift_of(row) for row in shapes]
    alike, drifting, sums = [1] * len(rows), [1] * len(rows), 1
    for order in orders:
        shuffled = [[row[place] for place in order] for row in shapes]
        lags = [lag_of(row) for row in shuffled]
        most = max(abs(drift_of(row)) for row in shuffled)
        sums += sum(lags) >= sum(lag) - SLACK
        for metric in range(len(rows)):
            alike[metric] += max(lags) >= lag[metric] - SLACK
            drifting[metric] += most >= abs(drift[metric]) - SLACK
    return lag, [p / 1000 for p in alike], drift, [p / 1000 for p in drifting], sums / 1000


WAVE = [2.0, 2.5, 2.2, 1.0, 0.2, 0.9, 1.4, 2.6]
FALLING = [8.0, 7.0, 7.5, 5.0, 6.0, 3.0, 2.0, 2.5]
SCATTERED = [1.0, 4.0, 2.0, 3.0, 1.5, 3.5, 2.5, 4.5]


@pytest.mark.parametrize(
    "rows",
    [
        [WAVE, FALLING, SCATTERED, [1.0] * 8],
        [FALLING],
        [SCATTERED, WAVE],
        [[0.0, 1.0, 0.0, 1.0, 0.0, 1.0]],  # Only two values: ties in nearly all shuffles.
        [[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [6.0, 4.0, 5.0, 3.0, 2.0, 1.0]],
    ],
)
@pytest.mark.parametrize("seed", [0, 5])
def test_p_values_are_shares_of_the_same_shuffles(rows: list[list[float]], seed: int) -> None:
    found = serial(rows) if seed == 0 else serial(rows, seed)
    expected = by_definition(rows, seed)
    for p_value, value in zip(found[:4], expected[:4], strict=True):
        assert np.asarray(p_value).tolist() == pytest.approx(value, abs=1e-13)
    assert found.together == pytest.approx(expected[4], abs=1e-13)


def test_values_that_differ_only_by_rounding_count_as_equal() -> None:
    """Exchanging two values that are nearly the same takes 0.8 or 1.25 slacks off the lag."""
    base = [3.0, 1.0, 1.0, 0.0, 2.0, 5.0]
    squares = sum((value - 2.0) ** 2 for value in base)
    found = []
    for slacks in (0.8, 1.25):
        nearly = [*base]
        nearly[1] += slacks * SLACK * squares / 3
        assert serial([nearly]).lag_p.tolist() == by_definition([nearly], 0)[1]
        found.append(float(serial([nearly]).lag_p[0]))
    assert found[0] > found[1]


@pytest.mark.parametrize(("blocks", "tested"), [(5, False), (6, True)])
def test_six_blocks_are_the_least(blocks: int, tested: bool) -> None:
    found = serial([[float(place) for place in range(blocks)]] * 2)
    assert (found.drift.tolist() == pytest.approx([1.0, 1.0])) is tested
    if not tested:
        assert found.lag.tolist() == found.drift.tolist() == [0.0, 0.0]
        assert found.lag_p.tolist() == found.drift_p.tolist() == [1.0, 1.0]
        assert found.together == 1.0


def test_no_metric_has_no_p() -> None:
    found = serial(np.zeros((0, 8)))
    assert found.lag.size == found.lag_p.size == found.drift.size == found.drift_p.size == 0
    assert found.together == 1.0


def test_shuffles_are_made_in_pieces_that_have_room(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces: list[int] = []
    shuffled = module._shuffled

    def watched(*given: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        pieces.append(len(given[-1]))
        return shuffled(*given)

    monkeypatch.setattr(module, "_shuffled", watched)
    rows = np.random.default_rng(2).standard_normal((3, 8))
    whole = serial(rows)
    assert pieces == [999]
    # More than two million values at once are not.
    pieces.clear()
    serial(np.resize(rows, (300, 8)))
    assert pieces == [(1 << 21) // 2400, 999 - (1 << 21) // 2400]
    for room, expected in ((10 * 24, [*[10] * 99, 9]), (5, [1] * 999)):
        pieces.clear()
        monkeypatch.setattr(module, "_CHUNK", room)
        again = serial(rows)
        assert pieces == expected
        assert [np.asarray(each).tolist() for each in again] == [
            np.asarray(each).tolist() for each in whole
        ]


def test_ranks_are_counted_from_zero_and_ties_share_their_mean() -> None:
    found = ranks([[3.0, 1.0, 3.0, 2.0, 3.0], [4.0, 4.0, 4.0, 4.0, 9.0]])
    assert found.tolist() == [[3, 0, 3, 1, 3], [1.5, 1.5, 1.5, 1.5, 4]]
    values = np.random.default_rng(3).integers(0, 4, (5, 9))
    assert ranks(values).tolist() == (stats.rankdata(values, axis=1) - 1).tolist()


def wider_by_hand(lag: list[float], blocks: int, confidence: float, family: int) -> list[float]:
    corrected = [(each + 1 / blocks) / (1 - 4 / blocks) for each in lag]
    mean = statistics.fmean(corrected)
    found = []
    for each in corrected:
        correlation = min(max(each, mean, 0.0), 1.0)
        count = max(blocks * (1 - correlation) / (1 + correlation), 3.0)
        degrees = max(round(count) - 1, 3)
        t = stats.t.ppf(1 - (1 - confidence) / family / 2, degrees)
        ordinary = stats.t.ppf(0.5 + confidence / 2, blocks - 1)
        # The deviation of correlated values is underestimated by this factor.
        small = (blocks - 1) / (blocks - blocks / count)
        found.append(max(1.0, float(t / ordinary) * math.sqrt(blocks / count * small)))
    return found


@pytest.mark.parametrize(
    "lag",
    [
        [0.5],
        [0.0, 0.1, 0.6],  # The first two are taken for the mean.
        [-0.4, -0.2],  # Below none.
        [0.95],  # Above what can be.
        [0.25, 0.3, 0.2],
        [0.43],
    ],
)
@pytest.mark.parametrize(("blocks", "confidence"), [(8, 0.95), (12, 0.9), (30, 0.95)])
@pytest.mark.parametrize("family", [1, 4])
def test_intervals_widen_as_few_independent_blocks_tell(
    lag: list[float], blocks: int, confidence: float, family: int
) -> None:
    found = (
        widening(lag, blocks, confidence)
        if family == 1
        else widening(lag, blocks, confidence, family)
    )
    expected = wider_by_hand(lag, blocks, confidence, family)
    assert found.tolist() == pytest.approx(expected, rel=1e-12)
    assert min(expected) >= 1.0


def test_the_mean_lag_has_the_spread_that_shuffles_give_it() -> None:
    rows = [WAVE, FALLING, SCATTERED]
    orders = np.random.default_rng(0).random((999, 8)).argsort(axis=1).tolist()
    means = [
        statistics.fmean(lag_of([scaled(row)[place] for place in order]) for row in rows)
        for order in orders
    ]
    assert serial(rows).spread == pytest.approx(statistics.pstdev(means), rel=1e-12)


@pytest.mark.parametrize(
    ("lag", "spread", "blocks", "expected"),
    [
        # Freed of its bias: (-0.1 + 1/8) / 0.5 = 0.05, and the error 0.2.
        ([-0.1], 0.1, 8, 0.05 + 0.5 * 0.2),
        ([-0.2, 0.0], 0.1, 8, 0.05 + 0.5 * 0.2),
        ([-0.1], 0.07, 8, 0.0),  # 0.05 + 1.28 · 0.14 = 0.229 excludes 0.25.
        ([-0.5], 0.4, 8, 0.0),  # Not excluded, but nothing is to be held.
        ([0.9], 0.1, 8, 0.9),
    ],
)
def test_a_correlation_is_open_until_it_is_excluded(
    lag: list[float], spread: float, blocks: int, expected: float
) -> None:
    assert open_correlation(lag, spread, blocks) == pytest.approx(expected)


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("family", [1, 11])
def test_an_interval_that_is_held_allows_for_the_correlation(
    correlation: float, family: int
) -> None:
    shared = min((1 + correlation) / (1 - correlation), 8 / 1.5)
    wider = math.sqrt(shared * 7 / (8 - shared))
    t = stats.t.ppf(1 - 0.025 / family, 7) / stats.t.ppf(0.975, 7)
    assert held(correlation, 8, 0.95, family) == pytest.approx(float(wider * t), rel=1e-9)
