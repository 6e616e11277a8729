"""Student's intervals and log-ratios, against plain formulas, at each edge."""

from __future__ import annotations

import math
import statistics

import pytest
from scipy.stats import t

from tare.analysis.statistics.logratio import (
    deviation,
    error_of_mean,
    mean_interval,
    relative_half_width,
    t_quantile,
)

ROWS = [[0.31, 0.1, 0.44, 0.25, 0.6], [-3.0, 5.5, 2.0, 2.5, 9.0]]


@pytest.mark.parametrize("confidence", [0.01, 0.5, 0.95, 0.99])
@pytest.mark.parametrize("degrees", [1, 2, 7, 200])
def test_a_quantile_is_students(confidence: float, degrees: int) -> None:
    expected = float(t.ppf(0.5 + confidence / 2, degrees))
    assert t_quantile(confidence, degrees) == pytest.approx(expected, rel=1e-9)


def test_there_is_no_quantile_of_a_certainty_or_of_one_block() -> None:
    for confidence in (0.0, 1.0, 1.5, -0.5):
        with pytest.raises(ValueError, match="a confidence is between 0 and 1"):
            t_quantile(confidence, 3)
    with pytest.raises(ValueError, match="at least two blocks"):
        t_quantile(0.95, 0)


@pytest.mark.parametrize("n", [2, 5])
@pytest.mark.parametrize("confidence", [0.95, 0.8])
def test_a_mean_is_known_to_t_errors_of_it(n: int, confidence: float) -> None:
    rows = [row[:n] for row in ROWS]
    expected = []
    for row in rows:
        assert deviation(row) == pytest.approx(statistics.stdev(row))
        error = float(t.ppf(0.5 + confidence / 2, n - 1)) * statistics.stdev(row) / math.sqrt(n)
        assert error_of_mean(row, confidence) == pytest.approx(error)
        mean = statistics.fmean(row)
        expected.append((mean, mean - error, mean + error))
    found = mean_interval(rows, confidence)
    assert list(zip(*found, strict=True)) == [pytest.approx(each) for each in expected]
    boxed = mean_interval([[row] for row in rows], confidence)
    assert [low.tolist() for low in boxed.low] == [[pytest.approx(each[1])] for each in expected]


def test_a_relative_half_width_is_about_the_geometric_centre() -> None:
    low, high = 0.8, 1.25
    found = relative_half_width(math.log(low), math.log(high))
    assert found == pytest.approx(math.sqrt(high / low) - 1)
    assert relative_half_width(-math.inf, math.inf) == math.expm1(700)
    assert relative_half_width(-650.0, 650.0) == math.expm1(650)
