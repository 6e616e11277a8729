"""Student's t without a library: its series, its expansion, and where the table ends."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from scipy.special import betainc, ndtri, stdtrit

from tare.analysis.statistics import student
from tare.analysis.statistics.student import student_quantile, within


@pytest.mark.parametrize("degrees", [1, 2, 7, 64])
def test_the_expansion_is_the_handbooks(degrees: int) -> None:
    z, n = Fraction(float(ndtri(0.975))), degrees
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    expected = float(z + first / n + second / n**2 + third / n**3)
    assert student._expanded(degrees) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("degrees", [30, 64, 65, 100])
def test_newtons_step_leads_from_the_expansion_to_the_quantile(degrees: int) -> None:
    """From 30 on, where the expansion is off by a millionth, the step leaves 10⁻¹¹."""
    expected = float(stdtrit(degrees, 0.975))
    assert student._expanded(degrees) == pytest.approx(expected, rel=3e-6)
    left = 1e-11 if degrees < 60 else 1e-13
    assert student._of_many(degrees) == pytest.approx(expected, rel=left)


def test_the_table_is_used_to_its_last_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(student, "_of_many", lambda degrees: -float(degrees))
    assert [student_quantile(0.95, degrees) for degrees in range(1, 64)] == list(student._QUANTILES)
    assert student_quantile(0.95, 64) == -64
    for degrees, told in enumerate(student._QUANTILES, 1):
        assert told == pytest.approx(float(stdtrit(degrees, 0.975)), rel=1e-14)
    assert student_quantile(0.9, 64) == pytest.approx(float(stdtrit(64, 0.95)), rel=1e-14)


@pytest.mark.parametrize("t", [0.0, 0.3, 1.0, 2.5, 20.0])
def test_of_few_degrees_the_distribution_has_a_closed_form(t: float) -> None:
    closed = {
        1: 2 / math.pi * math.atan(t),
        2: t / math.sqrt(2 + t * t),
        3: 2 / math.pi * (math.atan(t / 3**0.5) + t / 3**0.5 / (1 + t * t / 3)),
        4: t / math.sqrt(4 + t * t) * (1 + 2 / (4 + t * t)),
    }
    for degrees, expected in closed.items():
        assert within(t, degrees) == pytest.approx(expected, rel=1e-14)
    for degrees in range(5, 40):
        expected = float(betainc(0.5, degrees / 2, t * t / (degrees + t * t)))
        assert within(t, degrees) == pytest.approx(expected, rel=1e-13)
