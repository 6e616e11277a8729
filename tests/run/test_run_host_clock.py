"""A machine's counter is placed on its host's clock, however the exchanges lie."""

from __future__ import annotations

from itertools import accumulate, pairwise

from hypothesis import given
from hypothesis import strategies as st

from tare.agent.clocktrust import ClockReading
from tare.run.host_clock import clock_offset, counter_offset, on_the_host

HZ = 2.5e9
LATENESS = st.lists(
    st.tuples(st.integers(1_000, 5_000_000), st.integers(1_000, 5_000_000)), min_size=1, max_size=6
)


def exchanges(
    times: list[tuple[int, int]], begin_ns: int, counter_ns: int, clock_ns: int = 0
) -> list[ClockReading]:
    """Return exchanges one after another: each is read so long after it left, and so on."""
    now, found = begin_ns, []
    for there, back in times:
        read = now + there
        ticks = round((read + counter_ns) * HZ * 1e-9)
        found.append(ClockReading(read + clock_ns, now, read + back, ticks))
        now = read + back
    return found


@given(st.integers(1, 10), st.integers(0, 10**12), st.data())
def test_the_offset_of_two_counters_lies_within_its_bounds(
    rounds: int, offset: int, data: st.DataObject
) -> None:
    """However long the readings are apart, and whatever this computer's clock says."""
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


@given(LATENESS, LATENESS, st.integers(-(10**15), 10**15))
def test_readings_keep_holding_the_true_moment_on_the_hosts_clock(
    own: list[tuple[int, int]], host: list[tuple[int, int]], ahead_ns: int
) -> None:
    mine = exchanges(own, 10**9, 0)
    offset = clock_offset(exchanges(host, 2 * 10**9, 0, ahead_ns))
    for before, after in zip(mine, on_the_host(mine, offset), strict=True):
        # ``guest_ns`` is this computer's own clock here, so it is known when it was read.
        assert after.host_before_ns - 1 <= before.guest_ns + ahead_ns <= after.host_after_ns + 1
        assert after.tsc == before.tsc


def test_exchanges_that_contradict_each_other_leave_the_tightest() -> None:
    wide = ClockReading(500, 0, 1_000, 0)
    tight = ClockReading(50_000, 2_000, 2_010, 0)
    assert clock_offset([wide, tight]) == clock_offset([tight])
