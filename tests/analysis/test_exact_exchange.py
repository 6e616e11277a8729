"""Exchanged names against regressions by their sums of squares, with the same draws."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy.stats import f, rankdata

from tare.analysis.statistics import exchange
from tare.analysis.statistics.exchange import exchanged_p, least_exchanged_p

Array = np.ndarray
NONE = math.nan


def ways(arm: float, one: float, other: float) -> list[float]:
    """Arm less baseline, in all six ways to give three boots three names."""
    if not math.isnan(arm + one + other):
        every = arm + one + other
        return [each - (every - each) / 2 for each in (arm, arm, one, one, other, other)]
    single = arm - (other if math.isnan(one) else one)
    return [single, single, single, -single, -single, -single]


def in_all_ways(values: Array) -> Array:
    """By metric, block and way."""
    return np.array(
        [[ways(*values[:, m, b]) for b in range(values.shape[2])] for m in range(values.shape[1])]
    )


def explained(d: Array, x: Array) -> Array:
    """By how much an intercept makes the residuals' squares less, as a share; by pattern."""
    squares, along = (d**2).sum(axis=1), (x**2).sum(axis=1)
    n = d.shape[1]
    off, away = d - d.mean(axis=1)[:, None], x - x.mean(axis=1)[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        without = squares - np.where(along > 0, (x * d).sum(axis=1) ** 2 / along, 0)
        apart = (away**2).sum(axis=1)
        free = apart > 1e-9 * along
        line = np.where(free, (away * off).sum(axis=1) ** 2 / apart, 0)
        share = 1 - ((off**2).sum(axis=1) - line) / without
    known = (without > 1e-9 * n * squares.max(initial=0)) & (free | (along == 0))
    return np.where(known, share, 0.0)


def plain(
    boots: Array, places: Array | None, ranked: Sequence[bool], seed: int, least: int
) -> tuple[list[float], list[float]]:
    blocks = boots.shape[2]
    chosen = np.random.default_rng(seed).integers(0, 6, size=(blocks, 2048)).T
    chosen[0] = 0
    every = in_all_ways(boots)
    along = np.zeros_like(every) if places is None else np.nan_to_num(in_all_ways(places))
    along[np.abs(along) < 1e-12] = 0
    unlikely: dict[int, Array] = {}
    counts = {}
    for metric, of in enumerate(every):
        there = ~np.isnan(of[:, 0])
        count = counts[metric] = int(there.sum())
        if count < 2:
            continue
        if ranked[metric]:
            sizes = rankdata(np.abs(of[there])).reshape(-1, 6)
            of[there] = np.sign(of[there]) * sizes
        numbers = np.flatnonzero(there)
        d = of[numbers[None, :], chosen[:, there]]
        x = along[metric][numbers[None, :], chosen[:, there]] * (count >= 5)
        degrees = count - 1 - bool((x != 0).any())
        share = np.clip(explained(d, x), 0, 1 - 1e-15)
        unlikely[metric] = -f.logsf(degrees * share / (1 - share), 1, degrees)
    raw, adjusted = [NONE] * len(every), [NONE] * len(every)
    for metric, values in unlikely.items():
        raw[metric] = float((values >= values[0] - 1e-7).mean())
    left = sorted((m for m in unlikely if counts[m] >= least), key=lambda m: -unlikely[m][0])
    highest_p = 0.0
    for at, metric in enumerate(left):
        greatest = np.max([unlikely[other] for other in left[at:]], axis=0)
        highest_p = max(highest_p, float((greatest >= unlikely[metric][0] - 1e-7).mean()))
        adjusted[metric] = highest_p
    return raw, adjusted


def boots_of(seed: int, blocks: int = 8) -> tuple[Array, Array]:
    """Return two arrays of seven metrics: some lack boots, and one never varies."""
    rng = np.random.default_rng(seed)
    boots = rng.exponential(size=(3, 7, blocks))
    boots[0, :4] += 0.8
    boots[2, 1, ::2] = NONE  # no twin
    boots[1, 1, 3] = NONE  # the twin alone
    boots[0, 2, 5:] = NONE  # five blocks
    boots[:, 3, 4:] = NONE  # four
    boots[1:, 4, 2:] = NONE  # two
    boots[0, 5] = NONE
    boots[0, 5, 0] = 1.0  # one
    boots[:, 6] = 2.5
    places = np.stack([rng.permutation(3) for _ in range(blocks)]).T.astype(float) / 300
    along = np.repeat(places[:, None], 7, axis=1)
    along[:, 6] = NONE
    along[:, 2, 1] = NONE
    return boots, along


@pytest.mark.parametrize("scale", [1.0, 1e-8, 1e5])
@pytest.mark.parametrize("with_places", [False, True])
def test_p_is_the_share_of_exchanges_with_as_unlikely_a_t(with_places: bool, scale: float) -> None:
    for seed, least in ((1, 2), (2, 5), (3, 6)):
        boots, places = boots_of(seed)
        along = places if with_places else None
        with np.errstate(invalid="raise", divide="raise"):
            found = exchanged_p(scale * boots, along, seed=seed, least=least)
        raw, adjusted = plain(boots, along, [False] * 7, seed, least)
        assert found.raw.tolist() == pytest.approx(raw, nan_ok=True)
        assert found.adjusted.tolist() == pytest.approx(adjusted, nan_ok=True)
        assert np.isnan(found.raw[5]) and found.raw[6] == 1


def test_metrics_of_as_many_blocks_are_compared_by_their_correlation() -> None:
    boots, places = boots_of(4)
    found = exchanged_p(boots[:, :1], places[:, :1])
    raw, adjusted = plain(boots[:, :1], places[:, :1], [False], 0, 2)
    assert found.raw.tolist() == found.adjusted.tolist() == pytest.approx(raw)
    assert adjusted == raw
    full = np.delete(boots, [1, 2, 3, 4, 5], axis=1)
    found = exchanged_p(full)
    expected = plain(full, None, [False] * 2, 0, 2)
    assert (found.raw.tolist(), found.adjusted.tolist()) == (
        pytest.approx(expected[0]),
        pytest.approx(expected[1]),
    )


def test_ranks_are_of_the_differences_in_all_ways() -> None:
    boots, _ = boots_of(5)
    boots = np.round(10 * boots)
    which = [True, True, False, True, True, False, False]
    found = exchanged_p(boots, ranked=which, seed=5)
    raw, adjusted = plain(boots, None, which, 5, 2)
    assert found.raw.tolist() == pytest.approx(raw, nan_ok=True)
    assert found.adjusted.tolist() == pytest.approx(adjusted, nan_ok=True)
    plainly = exchanged_p(boots, seed=5)
    none = exchanged_p(boots, ranked=[False] * 7, seed=5)
    assert np.array_equal(none.raw, plainly.raw, equal_nan=True)
    assert not np.array_equal(found.raw, plainly.raw, equal_nan=True)


def test_a_metric_of_two_blocks_is_tested_and_of_one_is_not() -> None:
    rng = np.random.default_rng(6)
    two, one = rng.standard_normal((3, 1, 2)), rng.standard_normal((3, 1, 1))
    found = exchanged_p(two)
    assert found.raw.tolist() == found.adjusted.tolist()
    assert found.raw.tolist() == pytest.approx(plain(two, None, [False], 0, 2)[0])
    for nothing in (one, np.full((3, 1, 5), NONE)):
        found = exchanged_p(nothing)
        assert np.isnan(found.raw).all() and np.isnan(found.adjusted).all()


def test_the_least_p_is_of_all_ways_to_choose_arms_or_of_the_draws() -> None:
    assert [least_exchanged_p(blocks) for blocks in (1, 2, 6)] == pytest.approx(
        [1 / 3, 1 / 9, 1 / 729]
    )
    assert least_exchanged_p(7) == least_exchanged_p(30) == 1 / 2048


def test_draws_that_all_families_share_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        exchange._drawn(0, 5)[0, 0] = 1
