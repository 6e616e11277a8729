"""Student's t from a table, and the median's interval without the library: against the library."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import bdtr, betainc, stdtr, stdtrit

from tare.analysis.statistics.logratio import t_quantile
from tare.analysis.statistics.student import CONFIDENCE, student_quantile, within
from tare.analysis.statistics.tails import least_blocks_for_median, median_interval

CONFIDENCES = st.floats(0.01, 0.9999)
DEGREES = st.integers(1, 200)


@given(CONFIDENCES, DEGREES)
def test_the_quantile_is_the_librarys(confidence: float, degrees: int) -> None:
    expected = float(stdtrit(degrees, 0.5 + confidence / 2))
    assert student_quantile(confidence, degrees) == pytest.approx(expected, rel=1e-14)
    assert t_quantile(confidence, degrees) == student_quantile(confidence, degrees)


@pytest.mark.parametrize("degrees", range(1, 80))
def test_the_table_is_the_librarys(degrees: int) -> None:
    t = student_quantile(CONFIDENCE, degrees)
    assert t == pytest.approx(float(stdtrit(degrees, 0.975)), rel=1e-14)
    assert stdtr(degrees, t) - stdtr(degrees, -t) == pytest.approx(CONFIDENCE, abs=1e-12)


@given(st.integers(60, 3000))
def test_beyond_the_table_it_is_the_librarys_too(degrees: int) -> None:
    expected = float(stdtrit(degrees, 0.975))
    assert student_quantile(CONFIDENCE, degrees) == pytest.approx(expected, rel=1e-13)


@given(st.floats(0, 40), st.integers(1, 300))
def test_how_likely_t_lies_within_is_the_librarys(t: float, degrees: int) -> None:
    # By the beta distribution (Abramowitz & Stegun 1964, 26.7.1): the library's difference of two
    # halves is off by up to 4e-9 near a t of 0.
    expected = float(betainc(0.5, degrees / 2, t * t / (degrees + t * t)))
    assert within(t, degrees) == pytest.approx(expected, abs=1e-13)


@given(st.floats(0, 40))
def test_of_one_degree_it_is_the_arc_tangent(t: float) -> None:
    assert within(t, 1) == pytest.approx(2 / math.pi * math.atan(t), rel=1e-14)


@pytest.mark.parametrize("asked", ["t_quantile(0.95, 999)", "blocks_for(3.0, 0.02, 30)"])
def test_the_usual_confidence_loads_no_library(asked: str) -> None:
    code = f"""
import sys
from tare.analysis.statistics.detectable import blocks_for, t_quantile
assert {asked} > 1
print([name for name in sys.modules if name.startswith("scipy")])
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"


@given(st.integers(2, 60), st.sampled_from((0.9, 0.95, 0.99)))
def test_a_medians_interval_reaches_as_deep_as_the_binomial_distribution_lets_it(
    n: int, confidence: float
) -> None:
    ends = median_interval(range(1, n + 1), confidence)
    if n < least_blocks_for_median(confidence):
        assert ends is None
        return
    assert ends is not None
    depths = [d for d in range(1, n // 2 + 1) if 1 - 2 * bdtr(d - 1, n, 0.5) >= confidence]
    depth = max(depths)
    assert depth - 1e-9 <= ends[0] <= depth + 1 + 1e-9
    assert ends[0] + ends[1] == pytest.approx(n + 1)
