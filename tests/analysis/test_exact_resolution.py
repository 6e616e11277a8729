"""The step of a clock's grid and what it widens, worked by hand."""

from __future__ import annotations

import math

import pytest

from tare.analysis.statistics.resolution import NANOSECOND, decimal_step, grid_step, log_widening


@pytest.mark.parametrize(
    ("values", "finest", "step"),
    [
        ([5.0, 5.0, 5.0], 1.0, 0.0),  # Three values are too few to tell,
        ([5.0, 5.0, 5.0, 5.0], 1.0, 1.0),  # and four are not.
        ([1.0, 1.0, 3.0, 6.0, 6.0], 1.0, 0.0),  # More than half are distinct,
        ([1.0, 1.0, 3.0, 3.0, 6.0, 6.0], 1.0, 2.0),  # and just a half.
        ([6.0, 1.0, 3.0, 6.0, 1.0, 3.0], 1.0, 2.0),
        ([-4.0, -4.0, -1.0, -1.0], 0.0, 3.0),  # What is not above 0 has no common step:
        ([0.0, 5.0, 0.0, 5.0], 0.0, 5.0),
        ([0.5, 1.25, 0.5, 1.25], 0.0, 0.25),  # what is has, also below 1.
    ],
)
def test_the_step_is_the_least_difference_of_values_that_repeat(
    values: list[float], finest: float, step: float
) -> None:
    assert grid_step(values, finest) == step


def test_values_that_never_differ_sit_on_no_grid_unless_a_finest_step_is_known() -> None:
    assert grid_step([5.0] * 4) == 0.0
    assert grid_step([5.0] * 4, 0.25) == 0.25
    assert 1e9 * grid_step([5e-9] * 4, NANOSECOND) == 1.0


@pytest.mark.parametrize(
    ("less", "more", "finest", "step"),
    [
        (12.0, 54.0, 0.0, 6.0),  # Euclid: 54 = 4·12 + 6, 12 = 2·6.
        (12.0, 42.0, 0.0, 6.0),  # 42 = 4·12 − 6: a rest may be below 0.
        (10.0, 31.5, 1.0, 10.0),  # A rest of one and a half finest steps is rounding,
        (10.0, 32.0, 1.0, 2.0),  # and of two none.
        (10.0, 11.0, 1.0, 1.0),  # No step is larger than the distance between the two.
        (1000.0, 3000.8, 0.6, 1000.0),
        (1000.0, 3000.0009, 0.0, 1000.0),  # Without a finest step, a millionth is rounding,
        (1000.0, 2000.0012, 0.0, 0.0012),  # and a little more is none.
        (2.0, 5.0, 1e-9, 1.0),
    ],
)
def test_the_step_of_two_values_is_their_greatest_common_one(
    less: float, more: float, finest: float, step: float
) -> None:
    assert grid_step([less, more, more, less], finest) == pytest.approx(step, rel=1e-6)


def test_an_interval_widens_by_half_a_step_of_either_value() -> None:
    # 10 ± ½ and 40 ± ½, both towards the ratio that is further off.
    expected = -math.log(1 - 0.5 / 10) - math.log(1 - 0.5 / 40)
    assert log_widening(1.0, 10.0, 40.0) == pytest.approx(expected, rel=1e-14)
    assert log_widening(1.0, 40.0, 10.0) == pytest.approx(expected, rel=1e-14)
    assert log_widening(0.0, 40.0, 10.0) == 0


@pytest.mark.parametrize(
    ("values", "step"),
    [
        ([0.11, 0.12, 0.45], 0.01),
        ([1.5e-8, 2.1e-8, 2.3e-8], 1e-9),
        ([100.0, 200.0, 700.0], 100.0),
        ([0.0, -0.5, 2.5], 0.1),
        ([1.0, 2.0, 1.0], 0.0),  # Two distinct values show nothing.
        ([math.pi, math.e, math.tau], 0.0),
        ([1.00000003, 2.0, 3.0], 0.0),  # A step of 1e-8 would hide nothing.
        ([1.0, 2.0, 1.0, 2.0], 1.0),  # Unless they repeat.
        ([10.0, 11.0, 11.0, 10.0], 1.0),
        ([0.0, 0.0, 0.0], 0.0),
        ([], 0.0),
    ],
)
def test_a_decimal_step_is_that_of_the_last_digit(values: list[float], step: float) -> None:
    assert decimal_step(values) == pytest.approx(step, rel=1e-12)


def test_a_value_below_its_step_is_floored_at_a_thousandth() -> None:
    expected = math.log(1000) - math.log(1 - 0.5 / 40)
    assert log_widening(1.0, 0.5, 40.0) == pytest.approx(expected, rel=1e-12)
    assert log_widening(1.0, 0.1, 40.0) == pytest.approx(expected, rel=1e-12)
