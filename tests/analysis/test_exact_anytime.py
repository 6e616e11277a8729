"""Evidence at any time, against its formulas in plain Python, at each edge."""

from __future__ import annotations

import math
import statistics

import pytest

from tare.analysis.statistics import anytime
from tare.analysis.statistics.anytime import (
    mean_ends,
    mean_evidence,
    median_ends,
    median_evidence,
    sign_evidence,
    t_that_tells,
)

VALUES = [0.3, 1.1, -0.2, 0.9, 2.4, 0.7, 0.1]
MOST = math.exp(700)


def mixed(t: float, n: int, effect: float = 1.0) -> float:
    """Wang & Ramdas 2023: the ratio of t's likelihoods, effects mixed over a normal."""
    more = 1 + n * effect**2
    inner = (1 + t**2 / (n - 1)) / (1 + t**2 / ((n - 1) * more))
    return float(inner ** (n / 2) / math.sqrt(more))


def uniform(n: int, above: int) -> float:
    """Robbins 1970: ∫ pᵏ(1 − p)ⁿ⁻ᵏ dp ÷ 2⁻ⁿ."""
    beta = math.gamma(above + 1) * math.gamma(n - above + 1) / math.gamma(n + 2)
    return float(beta * 2.0**n)


@pytest.mark.parametrize("n", [2, 3, 7])
@pytest.mark.parametrize("null", [0.0, 0.4, -1.5])
def test_evidence_of_a_mean_is_the_ratio_of_likelihoods(n: int, null: float) -> None:
    values = VALUES[:n]
    t = (statistics.mean(values) - null) / statistics.stdev(values) * math.sqrt(n)
    assert mean_evidence(values, null) == pytest.approx(mixed(t, n), rel=1e-12)
    if null == 0:
        assert mean_evidence(values) == mean_evidence(values, null)


def test_evidence_has_a_greatest_number_and_none_where_nothing_varies() -> None:
    nearly_one = [1 - 1e-9, 1 + 1e-9] * 200
    assert mean_evidence(nearly_one) == MOST
    assert sign_evidence([1.0] * 2000) == median_evidence([1.0] * 2000) == MOST
    assert mean_evidence([5.0, 5.0], 5.0) == mean_evidence([5.0], 0.0) == 1
    assert mean_evidence([5.0, 5.0], 4.0) == math.inf


@pytest.mark.parametrize(("n", "confidence"), [(2, 0.3), (3, 0.7), (7, 0.95), (7, 0.5)])
def test_ends_of_a_mean_are_where_evidence_is_one_in_the_level(n: int, confidence: float) -> None:
    values = VALUES[:n]
    low, high = mean_ends(values, confidence)
    mean, error = statistics.mean(values), statistics.stdev(values) / math.sqrt(n)
    t = t_that_tells(n, 1 - confidence)
    assert mixed(t, n) == pytest.approx(1 / (1 - confidence))
    assert (low, high) == pytest.approx((mean - t * error, mean + t * error))


def test_effects_may_be_mixed_that_are_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anytime, "EFFECT", 0.4)
    n = len(VALUES)
    t = statistics.mean(VALUES) / statistics.stdev(VALUES) * math.sqrt(n)
    assert mean_evidence(VALUES) == pytest.approx(mixed(t, n, 0.4))
    assert mixed(t_that_tells(n, 0.2), n, 0.4) == pytest.approx(5)


def test_no_t_is_significant_when_even_an_infinite_one_is_too_little_evidence() -> None:
    """Evidence comes near (1 + n)^((n − 1) ÷ 2) and never reaches it."""
    for n in (2, 8):
        level = (1 + n) ** -((n - 1) / 2)
        assert t_that_tells(n, level * 0.999) == math.inf
        assert 30 < t_that_tells(n, level * 1.001) < math.inf
    assert t_that_tells(8, 3 / 9**4) == math.inf  # where it is reached exactly
    nothing = (-math.inf, math.inf)
    assert mean_ends([1.0], 0.1) == mean_ends([1.0, 1.0], 0.95) == nothing
    assert mean_ends([1.0, 2.0], 0.95) == nothing
    assert mean_ends([1.0, 1.0], 0.1) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("above", "even", "below", "counted"),
    [
        (5, 1, 1, 5),  # as few above as can be
        (1, 1, 5, 2),  # as many above as can be
        (1, 5, 2, 4),  # half above, half below
        (1, 5, 1, 3),
        (3, 0, 4, 3),
        (4, 0, 3, 4),
        (6, 0, 0, 6),
        (0, 3, 0, 1),
    ],
)
def test_ties_count_for_the_side_with_the_least_evidence(
    above: int, even: int, below: int, counted: int
) -> None:
    null = 2.0
    values = [2.5] * above + [2.0] * even + [1.5] * below
    expected = uniform(len(values), counted)
    assert median_evidence(values, null) == pytest.approx(expected, rel=1e-12)
    at_zero = [value - null for value in values]
    assert median_evidence(at_zero) == pytest.approx(expected, rel=1e-12)
    signs = uniform(above + below, above)
    assert sign_evidence(at_zero) == pytest.approx(signs, rel=1e-12)


@pytest.mark.parametrize("confidence", [0.01, 0.3, 0.7, 0.95, 0.99])
def test_ends_of_a_median_are_the_innermost_values_without_enough_evidence(
    confidence: float,
) -> None:
    for n in range(1, 31):
        kept = [k for k in range(n // 2) if uniform(n, k) >= 1 / (1 - confidence)]
        values = [float((7 * i) % 31) for i in range(n)]
        ordered = sorted(values)
        expected = (ordered[len(kept) - 1], ordered[-len(kept)]) if kept else None
        assert median_ends(values, confidence) == expected, n


def test_evidence_that_just_suffices_is_significant() -> None:
    """Four values of one sign are 2⁴ ÷ 5 times as likely with an effect."""
    values = [1.0, 2.0, 3.0, 4.0]
    assert median_evidence(values) == 3.2
    assert median_ends(values, 1 - 1 / 3.2) == (1, 4)
    assert median_ends(values, 0.69) is None
    assert median_ends([5.0], 0.0) is None
