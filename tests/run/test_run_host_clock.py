"""A machine's counter is placed on its host's clock, whatever the exchanges' timing."""

from __future__ import annotations

from itertools import accumulate, pairwise

from hypothesis import given
from hypothesis import strategies as st

from tare.agent.clocktrust import ClockReading
from tare.run.probes.host_clock import Bounds, bounded_readings, counter_offset


@given(st.integers(1, 10), st.integers(0, 10**12), st.data())
def test_offset_of_two_counters_is_within_its_bounds(
    rounds: int, offset: int, data: st.DataObject
) -> None:
    """Vary the times between readings, and the readings of this computer's clock."""
    between = st.integers(0, 10**9)
    moments = list(accumulate(data.draw(between) for _ in range(2 * rounds + 1)))
    clock = st.integers(0, 10**12)

    def read(ticks: int) -> ClockReading:
        return ClockReading(0, data.draw(clock), data.draw(clock), ticks)

    its = [read(moment) for moment in moments[::2]]
    mine = [read(moment - offset) for moment in moments[1::2]]
    found = counter_offset(mine, its)
    assert found.low <= offset <= found.high
    apart = min(after.tsc - before.tsc for before, after in pairwise(its))
    assert found.high - found.low <= apart


@given(st.integers(1, 10), st.integers(-(10**15), 10**15), st.data())
def test_a_hosts_clock_bounds_its_machines_readings_for_any_local_clock(
    rounds: int, ahead_ns: int, data: st.DataObject
) -> None:
    between, clock = st.integers(0, 10**9), st.integers(0, 10**12)
    moments = list(accumulate(data.draw(between) for _ in range(2 * rounds + 1)))

    def read(moment: int, clock_ns: int) -> ClockReading:
        return ClockReading(clock_ns, data.draw(clock), data.draw(clock), moment * 2)

    its = [read(moment, moment + ahead_ns) for moment in moments[::2]]
    mine = [read(moment, data.draw(clock)) for moment in moments[1::2]]
    for own, placed, moment in zip(mine, bounded_readings(mine, its), moments[1::2], strict=True):
        assert placed.host_before_ns <= moment + ahead_ns <= placed.host_after_ns
        assert (placed.guest_ns, placed.tsc) == (own.guest_ns, own.tsc)


def test_counters_that_contradict_each_other_leave_the_tightest() -> None:
    def read(ticks: int) -> ClockReading:
        return ClockReading(0, 0, 0, ticks)

    # The first pair bounds the offset by 0 and 1000 ticks, the second by 2000 and 2010.
    its, mine = [read(0), read(1_000), read(1_010)], [read(0), read(-1_000)]
    assert counter_offset(mine, its) == Bounds(2_000, 2_010)
