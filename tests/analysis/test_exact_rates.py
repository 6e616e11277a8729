"""The ratio of means of counts, worked by hand; and where there is none."""

from __future__ import annotations

import math
import statistics

import pytest
from scipy import stats

from tare.analysis.statistics.rates import MeanRatio, mean_ratio


@pytest.mark.parametrize(
    ("arm", "baseline"),
    [((3.0, 0.0, 5.0, 8.0), (1.0, 2.0, 2.0, 4.0)), ((1.0, 2.0), (4.0, 3.0))],
)
def test_the_interval_is_the_linearised_logs(
    arm: tuple[float, ...], baseline: tuple[float, ...]
) -> None:
    n = len(arm)
    over, under = sum(arm) / n, sum(baseline) / n
    parts = [a / over - b / under for a, b in zip(arm, baseline, strict=True)]
    half = stats.t.ppf(0.95, n - 1) * statistics.stdev(parts) / n**0.5
    expected = (over / under, over / under / math.exp(half), over / under * math.exp(half))
    assert mean_ratio(arm, baseline, 0.9) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("arm", "baseline", "ratio"),
    [
        ((6.0,), (3.0,), 2.0),  # One block has a ratio, but no variance.
        ((6.0,), (0.5,), 12.0),
        ((0.0, 0.0, 0.0), (1.0, 2.0, 3.0), 0.0),
        ((1.0, 2.0, 3.0), (0.0, 0.0, 0.0), math.inf),
    ],
)
def test_without_two_means_above_zero_nothing_bounds_the_ratio(
    arm: tuple[float, ...], baseline: tuple[float, ...], ratio: float
) -> None:
    assert mean_ratio(arm, baseline, 0.95) == MeanRatio(ratio, 0.0, math.inf)


def test_two_means_of_zero_have_no_ratio() -> None:
    found = mean_ratio((0.0, 0.0), (0.0, 0.0), 0.95)
    assert math.isnan(found.ratio)
    assert (found.low, found.high) == (0.0, math.inf)


def test_an_interval_too_wide_to_write_down_ends_at_e_to_the_700() -> None:
    found = mean_ratio((0.0, 1.0), (1.0, 0.0), 0.9999)
    assert found == pytest.approx((1.0, math.exp(-700), math.exp(700)), rel=1e-12)
