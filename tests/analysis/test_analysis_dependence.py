"""Quantiles of samples whose neighbours are alike: intervals over time, and over boots."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import lfilter
from scipy.stats import binom, norm, t

from tare.analysis.series.summaries import quantiles_of
from tare.analysis.statistics.dependence import (
    SharePrecision,
    block_length,
    mean_variance,
    share_ends,
    size_of,
)
from tare.analysis.statistics.histogram import Counter, Histogram

SCALE, MIDDLE = 1_000, 50_000


def autoregressive(rng: np.random.Generator, n: int, lag: float) -> np.ndarray:
    noise = rng.standard_normal(n + 2000)
    return cast("np.ndarray", lfilter([math.sqrt(1 - lag**2)], [1, -lag], noise))[2000:]


def counted(samples: np.ndarray) -> Histogram:
    counter = Counter()
    counter.add(samples)
    return counter.histogram()


def nanoseconds(values: np.ndarray) -> np.ndarray:
    whole: np.ndarray = np.rint(MIDDLE + SCALE * values).astype(np.uint32)
    return whole


@pytest.mark.parametrize(("lag", "least"), [(0.0, 0.92), (0.9, 0.91), (0.99, 0.89)])
def test_quantiles_of_one_boot_are_covered_though_neighbours_are_alike(
    lag: float, least: float
) -> None:
    """By more studies 91 to 97 % (`tare help statistics`); here with three errors' slack."""
    rng = np.random.default_rng(1)
    inside, shown, naive = 0, 0, 0
    for _ in range(100):
        samples = nanoseconds(autoregressive(rng, 20_000, lag))

        def pieces(width: int, samples: np.ndarray = samples) -> Iterator[np.ndarray]:
            step = 5 * width
            yield from (samples[at : at + step] for at in range(0, samples.size, step))

        for found in quantiles_of([counted(samples)], pieces, 0.95):
            truth = MIDDLE + SCALE * norm.ppf(found.q)
            inside += found.interval.low <= truth <= found.interval.high
            shown += 1
        # The order statistics that would bound it, were neighbours independent.
        ranks = np.asarray(binom.ppf([0.025, 0.975], samples.size, 0.9), dtype=int)
        low, high = np.sort(samples)[ranks]
        naive += low <= MIDDLE + SCALE * norm.ppf(0.9) <= high
    assert shown >= 200
    assert inside / shown >= least
    if lag == 0.99:
        assert naive / 100 < 0.4


def test_quantiles_from_one_cluster_of_samples_are_not_shown() -> None:
    """Twenty larger samples, all in one stretch of time, do not determine a higher quantile."""
    rng = np.random.default_rng(2)
    samples = nanoseconds(rng.standard_normal(20_000))
    samples[7000:7030] += 100_000
    (*_, last) = quantiles_of([counted(samples)], lambda _: [samples], 0.95)
    assert last.q == 0.99
    spread = samples.copy()
    spread[7000:7030] -= 100_000
    spread[::600] += 100_000
    (*_, last) = quantiles_of([counted(spread)], lambda _: [spread], 0.95)
    assert last.q == pytest.approx(0.999)


def test_without_their_order_samples_give_no_interval() -> None:
    (median, *_) = quantiles_of([counted(nanoseconds(np.linspace(-2, 2, 1000)))], None, 0.95)
    assert median.value == pytest.approx(MIDDLE, abs=5)
    assert (median.interval.low, median.interval.high) == (-math.inf, math.inf)


def test_the_populations_quantile_is_not_the_typical_boots() -> None:
    """A quarter of the boots is three times slow: the typical boot's P90 does not show it."""
    rng = np.random.default_rng(3)
    boots = [
        counted((1 + 2 * (number % 4 == 0)) * nanoseconds(rng.standard_normal(500)))
        for number in range(60)
    ]
    found = {round(q.q, 6): q for q in quantiles_of(boots, None, 0.95)}
    assert found[0.9].value < 1.2 * MIDDLE
    assert found[0.9].population is not None and found[0.9].population > 2.5 * MIDDLE
    interval = found[0.9].population_interval
    assert interval is not None and interval.low > 2.5 * MIDDLE
    # One slow boot of eight may be one of three or of a hundred: no figure is given for it.
    few = quantiles_of([boots[0], *boots[1:4], *boots[5:8], boots[9]], None, 0.95)
    assert [one.population for one in few if one.q > 0.6] == [None] * (len(few) - 1)


def test_the_populations_quantiles_are_covered_over_boots() -> None:
    rng = np.random.default_rng(4)
    inside = 0
    truth = MIDDLE + SCALE * math.sqrt(1.09) * norm.ppf(0.9)
    for _ in range(120):
        boots = [
            counted(nanoseconds(0.3 * rng.standard_normal() + rng.standard_normal(500)))
            for _ in range(10)
        ]
        found = quantiles_of(boots, None, 0.95)[1]
        assert found.population_interval is not None
        inside += found.population_interval.low <= truth <= found.population_interval.high
    assert inside / 120 >= 0.88


def test_block_lengths_follow_the_correlation() -> None:
    rng = np.random.default_rng(5)
    free, bound = (block_length(autoregressive(rng, 4000, lag)) for lag in (0.0, 0.9))
    assert free < 5 < 20 < bound
    assert block_length(np.ones(100)) == 1
    variance, degrees = mean_variance(autoregressive(rng, 50_000, 0.9))
    # The variance of an autoregressive mean: (1 + lag) ÷ (1 − lag) ÷ n.
    assert variance == pytest.approx(19 / 50_000, rel=0.35)
    assert degrees > 20


@pytest.mark.parametrize(("n", "most"), [(9, 3), (80, 27), (200, 43), (400, 60), (1000, 95)])
def test_no_block_is_longer_than_three_roots_or_a_third_of_the_series(n: int, most: int) -> None:
    """Politis & White 2004, as Patton corrected it: the bound that their own programs have."""
    alternating = np.arange(n) % 2
    assert block_length(alternating) == most
    walk = np.cumsum(np.random.default_rng(1).standard_normal(n))
    assert block_length(walk) <= most
    if n >= 200:
        assert block_length(walk) == most


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.floats(0, 1), min_size=2, max_size=200),
    st.floats(0.01, 0.999),
    st.floats(0.5, 0.99),
)
def test_any_shares_give_ends_around_the_share(
    shares: list[float], share: float, confidence: float
) -> None:
    known = size_of(shares, share, 10_000)
    assert 0 <= known.size <= 10_000
    low, high = share_ends(share, known._replace(size=max(known.size, 1e-6)), confidence)
    assert 0 <= low <= share + 1e-9 and share - 1e-9 <= high <= 1


@pytest.mark.parametrize(("degrees", "counted"), [(0.7, 1), (1.9, 1), (2.0, 2), (17.3, 17)])
def test_a_size_that_is_not_well_known_counts_as_less(degrees: float, counted: int) -> None:
    # Korn & Graubard 1998: the squared ratio of the normal's quantile to Student's.
    less = (norm.ppf(0.975) / t.ppf(0.975, counted)) ** 2
    found = share_ends(0.9, SharePrecision(200, degrees), 0.95)
    assert found == pytest.approx(share_ends(0.9, SharePrecision(200 * less, math.inf), 0.95))


def test_independent_samples_give_clopper_and_pearsons_ends() -> None:
    from tare.analysis.statistics.shares import exact_share

    low, high = share_ends(0.9, SharePrecision(200, math.inf), 0.95)
    exact = exact_share(180, 200, 0.95)
    assert (low, high) == pytest.approx((exact.low, exact.high))
