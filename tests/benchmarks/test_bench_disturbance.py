"""What is known of a disturbance, and how far what was found is from it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from benchmarks._disturb import Injection

LENGTHS = st.integers(1, 10**9)


@given(stamped=LENGTHS, charged=LENGTHS, found=st.floats(0, 2e9))
def test_only_what_no_clock_can_have_is_an_error(stamped: int, charged: int, found: float) -> None:
    run = Injection.run(10, 10 + stamped, charged)
    error = run.error_ns(found)
    if min(stamped, charged) <= found <= max(stamped, charged):
        assert error == 0
    else:
        assert abs(error) == min(abs(found - stamped), abs(found - charged))
        assert (error > 0) == (found > charged and found > stamped)


@given(length=LENGTHS, found=st.floats(0, 2e9))
def test_a_quota_is_known_exactly(length: int, found: float) -> None:
    assert Injection.stop(5, 5 + length).error_ns(found) == found - length
