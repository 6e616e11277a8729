"""How long a cell is waited for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tare.run.cells.cell import FACTOR, HANDS_OFF_LEAST_S, LEAST_S, deadline_s


@given(st.floats(0, 1e6))
def test_a_clock_that_counts_instructions_is_waited_for_longer_by_the_same_time(
    expected_s: float,
) -> None:
    usual = deadline_s(expected_s, hands_off=False)
    assert usual >= max(LEAST_S, FACTOR * expected_s)
    counted = deadline_s(expected_s, hands_off=True)
    assert abs(counted - usual - (HANDS_OFF_LEAST_S - LEAST_S)) < 1e-6
    assert counted > usual
