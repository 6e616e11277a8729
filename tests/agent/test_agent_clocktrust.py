"""Two readings of two clocks, against the same sums in exact fractions."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tare.agent.clocktrust import ClockReading, judge

TIMES = st.integers(0, 10**12)
WAITS = st.integers(0, 10**9)
CLOCKS = st.integers(-(10**12), 10**12)


def reading(host: int, waited: int, guest: int) -> ClockReading:
    return ClockReading(host_before_ns=host, host_after_ns=host + waited, guest_ns=guest, tsc=0)


@given(TIMES, WAITS, TIMES, WAITS, CLOCKS, CLOCKS)
def test_drift_and_uncertainty_are_as_exact_sums_say(
    began: int, first_wait: int, apart: int, last_wait: int, guest: int, later: int
) -> None:
    ended = began + first_wait + apart
    passed = ended + Fraction(last_wait, 2) - began - Fraction(first_wait, 2)
    assume(passed > 0)
    found = judge(reading(began, first_wait, guest), reading(ended, last_wait, later), 500)
    drift = (Fraction(later - guest) / passed - 1) * 10**6
    slack = Fraction(first_wait + last_wait, 2) / passed * 10**6
    assert found.drift_ppm == pytest.approx(float(drift), rel=1e-9, abs=1e-6)
    assert found.uncertainty_ppm == pytest.approx(float(slack), rel=1e-9, abs=1e-9)


def test_readings_one_nanosecond_apart_can_be_compared_and_equal_ones_cannot() -> None:
    found = judge(reading(5, 0, 7), reading(6, 0, 8), 500)
    assert (found.drift_ppm, found.uncertainty_ppm) == (0, 0)
    assert found.plausible and found.certain
    with pytest.raises(ValueError, match="after the first"):
        judge(reading(5, 0, 7), reading(5, 0, 8), 500)


def test_both_limits_are_still_within() -> None:
    # A second apart; the machine's clock is 501 µs late, and half of 2 µs are unknown.
    first, last = reading(0, 0, 0), reading(999_999_000, 2_000, 1_000_501_000)
    at_limit = judge(first, last, 500, 1)
    assert at_limit.drift_ppm == pytest.approx(501) and at_limit.certain
    assert at_limit.uncertainty_ppm == 1
    assert not judge(first, last, 499.9, 1).plausible
    assert judge(first, last, 500.1, 1).plausible
    assert judge(first, last, abs(at_limit.drift_ppm) - at_limit.uncertainty_ppm, 1).plausible
    assert not judge(first, last, 500, 0.99).certain
