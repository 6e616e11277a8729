"""Steadiness: rarely denied to what is steady, and denied to what boots do again and again."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from scipy.signal import lfilter

from tare.analysis.series.steadiness import steady_flags
from tare.analysis.statistics import unsteady
from tare.analysis.statistics.dependence import LEAST_WINDOWS
from tare.analysis.statistics.warmup import Segment, Trend, trends


def boots(rng: np.random.Generator, count: int, lag: float) -> list[np.ndarray]:
    noise = rng.standard_normal((count, 1400))
    steady = lfilter([math.sqrt(1 - lag**2)], [1, -lag], noise, axis=1)[:, 1000:]
    return [100 + 5 * np.array(one) for one in steady]


@pytest.mark.parametrize("lag", [0.0, 0.9, 0.97])
def test_autocorrelation_is_not_a_warm_up(lag: float) -> None:
    rng = np.random.default_rng(1)
    former = flagged = few = 0
    for _ in range(60):
        series = boots(rng, 8, lag)
        former += any(trend.shape != "flat" for trend in trends(series))
        flagged += bool(steady_flags(series, range(8)))
        few += bool(steady_flags(series[:1], [0]))
    assert flagged <= 60 * 0.05 + 3 * math.sqrt(60 * 0.0475)
    assert few <= 60 * 0.1 + 3 * math.sqrt(60 * 0.09)
    if lag > 0.9:
        assert former > 45


def test_recurring_drift_of_boots_is_reported() -> None:
    rng = np.random.default_rng(2)
    warm, slow, late = boots(rng, 8, 0.9), boots(rng, 8, 0.9), boots(rng, 8, 0.9)
    for one, two, three in zip(warm, slow, late, strict=True):
        one[:60] += 30
        two[:60] -= 30
        three[350:] += 40
    assert [flag.kind for flag in steady_flags(warm, range(8))] == ["warm-up"]
    assert "of 8 series became slower" in steady_flags(slow, range(8))[0].text
    assert [flag.kind for flag in steady_flags(late, range(8))] == ["no-steady-state"]
    assert [flag.kind for flag in steady_flags(warm[:1], [0])] == ["warm-up"]


@pytest.mark.parametrize(("beyond", "is_reported"), [(0.99, False), (1.01, True)])
def test_boots_are_believed_from_the_level_on(beyond: float, is_reported: bool) -> None:
    # Two starts and two directions share 1 %: Student's t at 0.25 % of one side, six boots.
    spread = np.array([-1.0, -1.0, 0.0, 0.0, 1.0, 1.0])
    bound = stats.t.isf(0.0025, 5) * spread.std(ddof=1) / math.sqrt(6)
    assert unsteady._agree(spread + beyond * bound, slower=True) is is_reported
    assert unsteady._agree(-spread - beyond * bound, slower=False) is is_reported
    assert not unsteady._agree(spread + beyond * bound, slower=False)


@pytest.mark.parametrize(("missing", "believed"), [(0, False), (1, True)])
def test_a_series_too_short_to_tell_chance_is_taken_as_it_went(
    missing: int, believed: bool
) -> None:
    # Alternating values changed nowhere, whatever the trend is.
    values = np.resize([1.0, 2.0], 4 * LEAST_WINDOWS - missing)
    parts = (Segment(0, 8, 1.5, 0.5), Segment(8, values.size, 1.5, 0.5))
    assert unsteady._exceeds_chance(values, Trend("warm-up", parts, 8), 1) is believed
    assert not unsteady._exceeds_chance(values, Trend("flat", parts[:1], 0), 1)


def test_threads_of_a_boot_are_one_boot() -> None:
    """Eight threads of three boots are three values, and no eight."""
    rng = np.random.default_rng(3)
    flagged = 0
    for _ in range(40):
        shared = boots(rng, 3, 0.97)
        threads = [shared[number % 3] + rng.normal(0, 0.1, 400) for number in range(24)]
        flagged += bool(steady_flags(threads, [number % 3 for number in range(24)]))
    assert flagged <= 40 * 0.1 + 3 * math.sqrt(40 * 0.09)
