"""Block lengths, variances over time and sizes of samples, in plain loops."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from scipy.stats import beta, norm, t

from tare.analysis.statistics import dependence
from tare.analysis.statistics.dependence import (
    SharePrecision,
    block_length,
    mean_variance,
    share_ends,
    size_of,
    size_over_boots,
)


def covariances(series: list[float]) -> list[float]:
    """Return the covariances at all lags that are considered: up to half the series."""
    n, mean = len(series), statistics.fmean(series)
    off = [value - mean for value in series]
    return [sum(off[i] * off[i + lag] for i in range(n - lag)) / n for lag in range(n // 2 + 1)]


def last_correlated(found: list[float], n: int) -> int:
    """The lag before the first five in a row that are within two standard errors of none."""
    least = 2 * math.sqrt(math.log10(n) / n)
    small = [abs(each / found[0]) < least for each in found]
    for lag in range(len(found) - 5):
        if all(small[lag + 1 : lag + 6]):
            return lag
    return len(found) - 1


def plain_length(series: list[float]) -> float:
    """Politis & White 2004 with the circular block bootstrap's D of 4/3·g(0)² (Patton 2009)."""
    n = len(series)
    most = math.ceil(min(3 * math.sqrt(n), n / 3))
    found = covariances(series)
    reach = min(2 * max(1, last_correlated(found, n)), len(found) - 1)
    spectrum, slope = found[0], 0.0
    for lag in range(1, reach + 1):
        share = lag / reach
        weight = 1 if share <= 0.5 else 2 * (1 - share)
        spectrum += 2 * weight * found[lag]
        slope += 2 * weight * lag * found[lag]
    if spectrum <= 0:
        return most
    ratio = 2 * slope**2 / (4 / 3 * spectrum**2)
    return min(most, max(1.0, math.cbrt(ratio * n)))


def series_of(kind: str, n: int) -> list[float]:
    rng = np.random.default_rng(n)
    noise = rng.standard_normal(n)
    if kind == "noise":
        return [float(value) for value in noise]
    if kind == "walk":
        return [float(value) for value in np.cumsum(noise)]
    if kind == "waves":
        return [float(value) for value in np.sin(np.arange(n) / 2) + noise / 2]
    lag, found = (0.7 if kind == "alike" else -0.6), [0.0]
    for value in noise[1:]:
        found.append(lag * found[-1] + float(value))
    return found


KINDS = ("noise", "walk", "waves", "alike", "unlike")


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_are_as_long_as_correlation_asks(kind: str) -> None:
    for n in (2, 3, 4, 5, 6, 7, 9, 12, 16, 17, 30, 64, 100, 250):
        series = series_of(kind, n)
        assert block_length(series) == pytest.approx(plain_length(series), rel=1e-6), n
        small = [1e-3 * value for value in series]
        assert block_length(small) == pytest.approx(block_length(series), rel=1e-6)


def test_the_test_series_have_all_kinds_of_blocks() -> None:
    found = [plain_length(series_of(kind, n)) for kind in KINDS for n in (9, 30, 250)]
    bounds = [math.ceil(min(3 * math.sqrt(n), n / 3)) for _ in KINDS for n in (9, 30, 250)]
    assert 1 in found
    assert sum(length == bound for length, bound in zip(found, bounds, strict=True)) >= 2
    between = zip(found, bounds, strict=True)
    assert sum(1 < length < bound for length, bound in between) >= 4


def test_constant_series_have_blocks_of_one_and_zero_spectra_the_longest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with np.errstate(all="raise"):
        assert block_length([5.0]) == block_length([0.5] * 40) == 1
        # With such covariances the flat-top window leaves 1 − 2 · ½.
        flat = np.array([1, -0.5, 0, 0, 0, 0, 0, 0, 0])
        monkeypatch.setattr(dependence, "_covariances", lambda series: flat)
        assert block_length(np.arange(16)) == 6


def test_covariances_are_those_of_the_definition() -> None:
    for n in (1, 2, 7, 16):
        series = series_of("alike", n)
        assert dependence._covariances(np.array(series)) == pytest.approx(covariances(series))


@pytest.mark.parametrize(
    ("large", "expected"),
    [
        ((), 0),
        ((1,), 1),
        ((1, 2, 4), 4),
        ((6,), 0),
        ((1, 7), 1),
        ((1, 6), 6),
        ((5,), 5),
        ((4, 9), 9),
    ],
)
def test_correlation_ends_before_five_lags_that_are_small(
    large: tuple[int, ...], expected: int
) -> None:
    """With 10⁴ values, those below 2 · √(4 ÷ 10⁴) = 0.04 are: 0.04 is not."""
    covariance = np.full(15, 2 * 0.0399)
    covariance[0] = 2
    covariance[list(large)] = -2 * 0.04
    assert dependence._last_correlated(covariance, 10_000) == expected
    few = np.array([2.0, 0.0, 0.0, 0.0, 0.0])
    assert dependence._last_correlated(few, 10_000) == 4


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [2, 4, 5, 16, 60])
def test_the_variance_of_a_mean_is_that_of_all_blocks_on_a_circle(kind: str, n: int) -> None:
    series = series_of(kind, n)
    length, mean = math.ceil(plain_length(series)), statistics.fmean(series)
    squares = [
        (statistics.fmean(series[(start + i) % n] for i in range(length)) - mean) ** 2
        for start in range(n)
    ]
    # A resample has n ÷ length blocks; with the whole circle, one block less carries information.
    expected = statistics.fmean(squares) * length / n / (1 - length / n)
    variance, degrees = mean_variance(series)
    assert variance == pytest.approx(expected)
    assert degrees == pytest.approx(max(1.0, n / length - 1))


def test_a_size_is_of_samples_whose_share_would_vary_as_much() -> None:
    for n in (16, 60):
        series = [0.3 + 0.1 * math.sin(value) for value in series_of("alike", n)]
        variance, degrees = mean_variance(series)
        size = 0.3 * 0.7 / variance
        found = size_of(series, 0.3, 10**9)
        assert (found.size, found.degrees) == pytest.approx((size, degrees))
        assert size_of(series, 0.3, 20) == SharePrecision(20, degrees)


def test_series_without_dependence_keep_all_their_samples() -> None:
    series = [0.3, 0.1, 0.6] * 6
    assert size_of(series[:16], 0.3, 10**9).size < 10**9
    every = SharePrecision(10**9, math.inf)
    assert size_of(series[:15], 0.3, 10**9) == every
    assert size_of(series, 0.0, 10**9) == size_of(series, 1.0, 10**9) == every
    assert size_of([0.5] * 16, 0.5, 10**9) == every


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("size", [3.0, 50.5])
@pytest.mark.parametrize("degrees", [0.4, 1.0, 1.9, 6.7, math.inf])
@pytest.mark.parametrize("confidence", [0.95, 0.6])
def test_ends_are_clopper_and_pearsons_of_so_many_samples_less_what_is_not_known_of_them(
    share: float, size: float, degrees: float, confidence: float
) -> None:
    at = 0.5 + confidence / 2
    less = 1.0
    if degrees < math.inf:
        less = float(norm.ppf(at) / t.ppf(at, max(1, math.floor(degrees)))) ** 2
    below, above = share * size * less, (1 - share) * size * less
    low = float(beta.ppf(1 - at, below, above + 1)) if share > 0 else 0.0
    high = float(beta.ppf(at, below + 1, above)) if share < 1 else 1.0
    found = share_ends(share, SharePrecision(size, degrees), confidence)
    assert found == pytest.approx((low, high), rel=1e-7)


def test_boots_are_clusters_of_samples() -> None:
    """Cochran 1977, §6.3: the ratio estimator's variance of unequal clusters."""
    shares, counts = [0.2, 0.5, 0.4, 0.1], [10, 30, 25, 5]
    total = sum(counts)
    share = sum(p * n for p, n in zip(shares, counts, strict=True)) / total
    apart = [(n * (p - share)) ** 2 for p, n in zip(shares, counts, strict=True)]
    variance = sum(apart) / 3 * 4 / total**2
    found = size_over_boots(shares, counts)
    assert found.size == pytest.approx(share * (1 - share) / variance) and found.size < total
    assert found.degrees == 3
    # Boots that differ by less than chance has them are no more samples than there are.
    assert size_over_boots([0.29, 0.3, 0.31], [100] * 3) == SharePrecision(300, 2)
    with np.errstate(all="raise"):
        assert size_over_boots([0.25, 0.25], [8, 8]) == SharePrecision(16, 1)
