"""The regression on positions, by solving its two normal equations; and where it says nothing."""

from __future__ import annotations

import math

import pytest
from scipy import stats

from tare.analysis.statistics.position import adjust_for_position

DIFFERENCES = (0.3, -0.1, 0.45, 0.2, 0.05)
LATER = (1.0, -2.0, 3.0, 1.0, -1.0)


def intercept(d: tuple[float, ...], x: tuple[float, ...], confidence: float) -> tuple[float, float]:
    n, sx, sd = len(d), sum(x), sum(d)
    xx = sum(a * a for a in x)
    xd = sum(a * b for a, b in zip(x, d, strict=True))
    determinant = n * xx - sx * sx
    mean, slope = (xx * sd - sx * xd) / determinant, (n * xd - sx * sd) / determinant
    squares = sum((b - mean - slope * a) ** 2 for a, b in zip(x, d, strict=True))
    error = math.sqrt(squares / (n - 2) * xx / determinant)
    return mean, float(stats.t.ppf(0.5 + confidence / 2, n - 2)) * error


@pytest.mark.parametrize("more", [(), ((0.7, 2.0), (-0.2, 0.0))])
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_effect_at_equal_positions_is_the_intercept_with_its_error(
    more: tuple[tuple[float, float], ...], confidence: float
) -> None:
    d = (*DIFFERENCES, *(a for a, _ in more))
    x = (*LATER, *(b for _, b in more))
    found = adjust_for_position(d, x, confidence)
    assert found == pytest.approx(intercept(d, x, confidence), rel=1e-12)


def test_result_does_not_depend_on_the_unit_of_positions() -> None:
    near = adjust_for_position(DIFFERENCES, [value / 100 for value in LATER], 0.9)
    assert near == pytest.approx(intercept(DIFFERENCES, LATER, 0.9), rel=1e-12)


def test_four_blocks_are_too_few() -> None:
    assert adjust_for_position(DIFFERENCES[:4], LATER[:4], 0.95) is None
    assert adjust_for_position(DIFFERENCES, LATER, 0.95) is not None


@pytest.mark.parametrize(("apart", "is_reported"), [(3.3e-5, True), (3.1e-5, False)])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_positions_that_are_all_but_the_same_tell_nothing(
    apart: float, is_reported: bool, sign: float
) -> None:
    """The intercept's share of the design is here the square of how far apart they are."""
    later = [sign * (1 + apart), sign * (1 - apart)] * 3
    assert (adjust_for_position([0.1, 0.2] * 3, later, 0.95) is not None) is is_reported


def test_positions_that_are_all_zero_tell_nothing() -> None:
    assert adjust_for_position(DIFFERENCES, [0.0] * 5, 0.95) is None
