"""Tare's own distribution functions against SciPy's, and against closed forms."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate
from scipy.special import bdtr, betainc, betaincinv, chdtr, gammaln, nctdtr, ndtr, ndtri, stdtrit

from tare.analysis.statistics.distributions import (
    beta_cdf,
    beta_quantile,
    chi_square_cdf,
    noncentral_t_cdf,
    normal_quantile,
    student_quantile,
)
from tare.analysis.statistics.logratio import t_quantile
from tare.analysis.statistics.tails import least_blocks_for_median, median_interval

CONFIDENCES = st.floats(0.01, 0.9999)
DEGREES = st.integers(1, 200)
PARAMETERS = st.floats(0.3, 1e6)
TAILS = st.sampled_from((1e-6, 0.0005, 0.005, 0.025, 0.5, 0.95, 0.975, 0.9995))


@given(CONFIDENCES, DEGREES)
def test_the_t_quantile_is_scipys(confidence: float, degrees: int) -> None:
    # SciPy takes the lower tail: near 1/2 and near 1, that loses some of the confidence's digits.
    expected = float(stdtrit(degrees, 0.5 + confidence / 2))
    lost = 1e-15 / min(confidence, 1 - confidence)
    assert student_quantile(confidence, degrees) == pytest.approx(expected, rel=1e-14 + lost)
    assert t_quantile(confidence, degrees) == student_quantile(confidence, degrees)


@pytest.mark.parametrize("degrees", range(1, 80))
def test_the_t_quantile_of_the_default_confidence_is_scipys_to_14_digits(degrees: int) -> None:
    expected = float(stdtrit(degrees, 0.975))
    assert student_quantile(0.95, degrees) == pytest.approx(expected, rel=1e-14)


@given(st.integers(60, 3000))
def test_the_t_quantile_of_many_degrees_is_scipys(degrees: int) -> None:
    expected = float(stdtrit(degrees, 0.975))
    assert student_quantile(0.95, degrees) == pytest.approx(expected, rel=1e-13)


@given(CONFIDENCES, st.floats(1, 1e5))
def test_degrees_of_freedom_need_not_be_whole(confidence: float, degrees: float) -> None:
    expected = float(stdtrit(degrees, 0.5 + confidence / 2))
    assert student_quantile(confidence, degrees) == pytest.approx(expected, rel=1e-10)


@given(st.floats(0, 40), st.integers(1, 300))
def test_the_probability_within_t_is_scipys(t: float, degrees: int) -> None:
    x = t * t / (degrees + t * t)
    expected = float(betainc(0.5, degrees / 2, x))
    assert beta_cdf(0.5, degrees / 2, x) == pytest.approx(expected, abs=1e-13)


@pytest.mark.parametrize("t", [0.0, 0.3, 1.0, 2.5, 20.0])
def test_for_few_degrees_the_t_distribution_has_a_closed_form(t: float) -> None:
    closed = {
        1: 2 / math.pi * math.atan(t),
        2: t / math.sqrt(2 + t * t),
        3: 2 / math.pi * (math.atan(t / 3**0.5) + t / 3**0.5 / (1 + t * t / 3)),
        4: t / math.sqrt(4 + t * t) * (1 + 2 / (4 + t * t)),
    }
    for degrees, expected in closed.items():
        within = beta_cdf(0.5, degrees / 2, t * t / (degrees + t * t))
        assert within == pytest.approx(expected, rel=1e-14)


@given(PARAMETERS, PARAMETERS, TAILS)
def test_the_beta_distribution_is_scipys(a: float, b: float, p: float) -> None:
    x = float(betaincinv(a, b, p))
    assert beta_quantile(a, b, p) == pytest.approx(x, rel=1e-9)
    assert beta_cdf(a, b, x) == pytest.approx(float(betainc(a, b, x)), rel=1e-9)
    assert beta_cdf(a, b, 0.0) == 0
    assert beta_cdf(a, b, 1.0) == 1


@given(PARAMETERS, PARAMETERS)
def test_a_quantile_where_the_tails_change_roles_is_found(a: float, b: float) -> None:
    x = (a + 1) / (a + b + 2)
    for near in (math.nextafter(x, 0), x, math.nextafter(x, 1)):
        p = float(betainc(a, b, near))
        assert beta_cdf(a, b, near) == pytest.approx(p, rel=1e-9)
        if 1e-12 < p < 1 - 1e-12:
            assert beta_quantile(a, b, p) == pytest.approx(near, rel=1e-6)


@pytest.mark.parametrize("exponent", [0.5, 2.0, 10.0, 30.0])
@pytest.mark.parametrize("degrees", [1, 3, 30, 90])
def test_a_small_probability_keeps_its_digits(degrees: int, exponent: float) -> None:
    x = math.exp(-exponent)
    expected = float(betainc(degrees / 2, 0.5, x))
    assert beta_cdf(degrees / 2, 0.5, x) == pytest.approx(expected, rel=1e-12)


@given(st.floats(1e-12, 1 - 1e-12))
def test_the_normal_quantile_is_scipys(p: float) -> None:
    assert normal_quantile(p) == pytest.approx(float(ndtri(p)), rel=1e-12, abs=1e-14)


@given(st.floats(1, 1e4), st.floats(0.1, 10))
def test_chi_square_is_scipys(degrees: float, times: float) -> None:
    expected = float(chdtr(degrees, degrees * times))
    assert chi_square_cdf(degrees, degrees * times) == pytest.approx(expected, rel=1e-10, abs=1e-14)
    assert chi_square_cdf(degrees, 0) == 0


@given(DEGREES, st.floats(0, 30), st.floats(0.5, 60))
def test_the_noncentral_t_is_scipys(degrees: int, shift: float, t: float) -> None:
    expected = float(nctdtr(degrees, shift, t))
    assert math.isnan(expected) or noncentral_t_cdf(degrees, shift, t) == pytest.approx(
        expected, abs=1e-10
    )


@pytest.mark.parametrize(
    ("degrees", "shift", "t"), [(1, 900.0, 400.0), (8, 401.0, 402.5), (8, 5.0, 402.5), (30, 90, 80)]
)
def test_the_noncentral_t_is_the_integral_that_defines_it(
    degrees: int, shift: float, t: float
) -> None:
    def density(s: float) -> float:
        logarithm = (degrees - 1) * math.log(s) - degrees * s * s / 2
        return math.exp(logarithm + degrees / 2 * math.log(degrees / 2) - gammaln(degrees / 2)) * 2

    edge = max(0.02, shift / t)
    found, _ = integrate.quad(
        lambda s: density(s) * float(ndtr(t * s - shift)),
        1e-9,
        12,
        points=[max(1e-8, edge - 0.1), edge, edge + 0.1, 1.0],
        limit=500,
        epsabs=1e-12,
    )
    assert noncentral_t_cdf(degrees, shift, t) == pytest.approx(found, abs=1e-8)


def test_no_distribution_loads_scipy() -> None:
    code = """
import sys
from tare.analysis.statistics.detectable import power, t_quantile
from tare.analysis.statistics.detectable import blocks_for_equality as wanted
assert t_quantile(0.9, 99) > 1 and wanted(3.0, 0.02, 30) > 1 and power(1, 1, 9, 3, 0.05) > 0
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
