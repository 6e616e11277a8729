"""Every gap gets the cause that the host shows, whatever the pattern and the clocks' error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.spikes_threads import (
    CPU,
    DEVICE,
    HOG,
    IDLE,
    NAMES,
    PREEMPTED,
    QEMU,
    START_NS,
    STOPPED,
    SUBJECT,
    TIMER,
    WAITED,
    Row,
)
from tare.analysis.topics.host_track import Cause, Episode, columns_of, follow, joined, track_thread
from tare.analysis.topics.spike_cells import SpikeCell, causes, explained, match_cell
from tare.analysis.topics.spikes import (
    OWN_TICK,
    SWITCH_SLACK_NS,
    UNEXPLAINED,
    Gaps,
    align,
    assign,
    divide,
    match,
    own_ticks,
)
from tare.events.cell_facts import ClockPlace, TraceFacts
from tare.events.host_schedule import HostEvent, SwitchReason, Vector

LOOP_NS = 68_000
LEFT = {WAITED: SwitchReason.WAITING, STOPPED: SwitchReason.STOPPED}


@dataclass(frozen=True)
class Disturbance:
    """So long after the one before, so long, and why."""

    after_ns: int
    length_ns: int
    cause: Cause


DISTURBANCES = st.lists(
    st.builds(
        Disturbance,
        st.integers(2_000, 3_000_000),
        st.integers(10_000, 5_000_000),
        st.sampled_from([PREEMPTED, TIMER, DEVICE, WAITED, STOPPED, IDLE]),
    ),
    max_size=40,
)


def rows_of(disturbances: Sequence[Disturbance], start_ns: int = START_NS) -> list[Row]:
    """Return the host's records of these disturbances."""
    rows: list[Row] = [(start_ns, CPU, HostEvent.SWITCH, SUBJECT, 0, 0)]
    now = start_ns
    for each in disturbances:
        begin = now + each.after_ns
        now = end = begin + each.length_ns
        if each.cause == TIMER:
            timer = Vector.LOCAL_TIMER
            rows.append((begin, CPU, HostEvent.VECTOR_ENTRY, timer, SUBJECT, 0))
            rows.append((end, CPU, HostEvent.VECTOR_EXIT, timer, SUBJECT, 0))
        elif each.cause == DEVICE:
            rows.append((begin, CPU, HostEvent.IRQ_ENTRY, 36, SUBJECT, 0))
            rows.append((end, CPU, HostEvent.IRQ_EXIT, 36, SUBJECT, 0))
        else:
            other = HOG if each.cause == PREEMPTED else 0
            left = LEFT.get(each.cause, SwitchReason.READY)
            rows.append((begin, CPU, HostEvent.SWITCH, other, SUBJECT, left))
            rows.append((end, CPU, HostEvent.SWITCH, SUBJECT, other, 1))
    rows.append((now + 50_000_000, CPU, HostEvent.SWITCH, 0, SUBJECT, 0))
    return rows


def chain_of(
    disturbances: Sequence[Disturbance], start_ns: int = START_NS
) -> tuple[list[tuple[int, int]], list[dict[Cause, int]]]:
    """Return what the tick loop sees: (begin, excess) of each gap, and the gap's true causes."""
    episodes = []
    now = start_ns
    for each in disturbances:
        begin = now + each.after_ns
        now = begin + each.length_ns
        episodes.append((begin, each.length_ns, each.cause))
    gaps, truth = [], []
    sample, left = start_ns, LOOP_NS
    at = start_ns
    taken: dict[Cause, int] = {}
    for begin, length, cause in [*episodes, (now + 10 * LOOP_NS, 0, TIMER)]:
        while at + left < begin:
            at += left
            if taken:
                gaps.append((sample, sum(taken.values())))
                truth.append(taken)
            taken, left = {}, LOOP_NS
            # What follows undisturbed is not a gap, so it need not be walked one by one.
            skipped = (begin - at) // LOOP_NS if begin - at > LOOP_NS else 0
            at += skipped * LOOP_NS
            sample = at
        left -= begin - at
        at = begin + length
        if length:
            taken[cause] = taken.get(cause, 0) + length
    return gaps, truth


def gaps_of(chain: Sequence[tuple[int, int]], error_ns: int, shift_ns: int = 0) -> Gaps:
    return Gaps(
        np.array([begin + shift_ns for begin, _ in chain], dtype=np.int64),
        np.array([excess for _, excess in chain], dtype=np.int64),
        LOOP_NS,
        error_ns,
    )


@given(DISTURBANCES)
def test_every_gap_gets_exactly_what_took_its_time(disturbances: list[Disturbance]) -> None:
    track = follow(columns_of(rows_of(disturbances)), [SUBJECT, QEMU], NAMES)
    assert track is not None
    chain, truth = chain_of(disturbances)
    found = match(gaps_of(chain, 20), track.episodes, own_tick=False)
    assert len(found.spikes) == len(chain)
    assert [dict(spike.parts) for spike in found.spikes] == truth
    assert found.unmatched_ns == 0


@given(DISTURBANCES, st.integers(-150_000, 150_000))
def test_attributed_time_never_exceeds_the_lost_time(
    disturbances: list[Disturbance], shift_ns: int
) -> None:
    track = track_thread(columns_of(rows_of(disturbances)), SUBJECT, NAMES)
    chain, _ = chain_of(disturbances)
    found = match(gaps_of(chain, 150_000, shift_ns), track.episodes, own_tick=True)
    for spike, (_, excess) in zip(found.spikes, chain, strict=True):
        assert sum(taken for _, taken in spike.parts) == excess
        assert all(taken > 0 for _, taken in spike.parts)
        assert [taken for _, taken in spike.parts] == sorted(
            (taken for _, taken in spike.parts), reverse=True
        )


@settings(max_examples=40)
@given(
    st.lists(
        st.builds(
            Disturbance,
            st.integers(300_000, 3_000_000),
            st.integers(100_000, 5_000_000),
            st.just(PREEMPTED),
        ),
        min_size=40,
        max_size=60,
    ),
    st.integers(-150_000, 150_000),
)
def test_clocks_are_aligned_by_what_both_sides_saw(
    disturbances: list[Disturbance], shift_ns: int
) -> None:
    track = track_thread(columns_of(rows_of(disturbances)), SUBJECT, NAMES)
    chain, _ = chain_of(disturbances)
    found_ns, error_ns = align(gaps_of(chain, 160_000, shift_ns), track.episodes)
    assert error_ns <= 160_000
    assert abs(found_ns + shift_ns) <= error_ns + LOOP_NS // 8


def test_alignment_needs_enough_to_go_by_and_leaves_good_clocks_alone() -> None:
    one = [Episode(START_NS, START_NS + 1_000_000, PREEMPTED)]
    assert align(gaps_of([(START_NS, 1_000_000)], 100_000), one) == (0, 100_000)
    assert align(gaps_of([(START_NS, 1_000_000)], 20), one * 9) == (0, 20)
    assert align(gaps_of([], 100_000), one * 9) == (0, 100_000)


def test_an_episode_between_two_samples_goes_to_the_one_that_covers_more() -> None:
    gaps = gaps_of([(0, 100_000), (168_000, 100_000)], 30_000)
    assert assign(gaps, [Episode(150_000, 230_000, PREEMPTED)]) == [1]
    assert assign(gaps, [Episode(900_000, 930_000, PREEMPTED)]) == [None]


@given(
    st.integers(0, 10_000_000),
    st.lists(
        st.tuples(st.integers(1, 3_000_000), st.sampled_from([PREEMPTED, TIMER, WAITED])),
        max_size=6,
    ),
)
def test_dividing_loses_nothing(excess_ns: int, parts: list[tuple[int, Cause]]) -> None:
    shares = divide(excess_ns, [Episode(0, length, cause) for length, cause in parts])
    assert sum(shares.values()) == excess_ns
    assert all(taken > 0 for taken in shares.values())
    known = sum(length for length, _ in parts)
    hidden = SWITCH_SLACK_NS * len(parts)
    assert shares.get(UNEXPLAINED, 0) <= max(0, excess_ns - known)
    assert excess_ns - known <= hidden or not parts or UNEXPLAINED in shares or not excess_ns
    if not parts and excess_ns:
        assert shares == {UNEXPLAINED: excess_ns}


def test_a_softirq_belongs_to_the_interrupt_that_raised_it() -> None:
    first = Episode(0, 3_000, DEVICE)
    second = Episode(3_400, 9_000, Cause("other interrupt", "net-rx"))
    later = Episode(50_000, 51_000, TIMER)
    assert joined([later, second, first]) == [Episode(0, 9_000, DEVICE), later]


@pytest.mark.parametrize("rate", [100, 250, 1000])
def test_the_machines_own_tick_is_known_by_its_rate(rate: int) -> None:
    period = 1_000_000_000 // rate
    rng = np.random.default_rng(7)
    ticks = START_NS + np.arange(200) * period
    begins = ticks - rng.integers(0, LOOP_NS, size=200)
    gaps = Gaps(begins, np.full(200, 90_000), LOOP_NS, 100)
    found, due = own_ticks(gaps, np.ones(200, dtype=bool))
    assert found == rate
    assert due.all()


def test_random_gaps_are_not_a_tick() -> None:
    rng = np.random.default_rng(3)
    begins = np.sort(START_NS + rng.integers(0, 2_000_000_000, size=200))
    gaps = Gaps(begins, np.full(200, 20_000), LOOP_NS, 100)
    assert own_ticks(gaps, np.ones(200, dtype=bool))[0] is None
    assert own_ticks(gaps, np.zeros(200, dtype=bool))[0] is None


def test_gaps_far_longer_than_a_tick_are_not_the_tick() -> None:
    ticks = START_NS + np.arange(100) * 4_000_000
    excess = np.full(100, 90_000)
    excess[40] = 3_000_000
    found = match(Gaps(ticks - 10_000, excess, LOOP_NS, 100), [], own_tick=True)
    assert found.tick_hz == 250
    assert found.spikes[40].cause == UNEXPLAINED
    assert {spike.cause for spike in found.spikes if spike.number != 40} == {OWN_TICK}


def facts_of(disturbances: Sequence[Disturbance], *, shared: bool) -> TraceFacts:
    end = START_NS + sum(each.after_ns + each.length_ns for each in disturbances) + 1_000_000
    tick = {
        "clock": {
            "first_raw_ns": START_NS,
            "last_raw_ns": end,
            "first_ticks": 2 * START_NS,
            "last_ticks": 2 * end,
            "error_ns": 15.0,
        },
        "seconds": (end - START_NS) / 1e9,
        "tsc_hz": 2e9,
        "undisturbed_s": LOOP_NS / 1e9,
        "gaps": 3,
    }
    first, last = (
        ClockPlace(ticks=2 * at, host_ns=at, error_ns=100_000)
        for at in (START_NS - 10_000_000, end + 10_000_000)
    )
    return {
        "recorded": True,
        "threads": {str(thread): dict(known) for thread, known in NAMES.threads.items()},
        "irqs": {"36": "virtio1-req.0"},
        "subject_threads": [SUBJECT],
        "clock": {"shared": True} if shared else {"shared": False, "first": first, "last": last},
        "tick": tick,
        "lost": 2,
    }


@pytest.mark.parametrize("shared", [True, False])
def test_a_cell_is_read_from_its_facts_and_series(shared: bool) -> None:
    disturbances = [
        Disturbance(1_000_000, 3_100_000, PREEMPTED),
        Disturbance(2_000_000, 20_000, TIMER),
        Disturbance(2_500_000, 900_000, PREEMPTED),
    ]
    chain, _ = chain_of(disturbances)
    logged = {
        "time_ns": np.array([begin - START_NS for begin, _ in chain], dtype=np.uint64),
        "excess_ns": np.array([excess for _, excess in chain], dtype=np.uint64),
    }
    whose = dict.fromkeys(("run", "cell", "arm", "scenario", "workload", "parameters"), "x")
    cell = match_cell(
        {**whose, "block": 1, "emulated": False},
        facts_of(disturbances, shared=shared),
        columns_of(rows_of(disturbances)),
        logged,
    )
    assert [str(spike.cause) for spike in cell.spikes] == [
        "preempted by neighbour-1 (cpu-load)",
        "timer interrupt",
        "preempted by neighbour-1 (cpu-load)",
    ]
    assert cell.lost_events == 2
    assert cell.not_logged == 0
    assert cell.steal_s is None
    rows = causes([cell])
    assert (rows[0].cause, rows[0].count, rows[0].total_ns) == (PREEMPTED, 2, 4_000_000)
    assert rows[0].longest_ns == 3_100_000
    whole = explained([cell])
    assert (whole.share_of_gaps, whole.share_of_time) == (1.0, 1.0)


@pytest.mark.parametrize(("steal_s", "read"), [(None, None), (0.0, 0.0), (0.25, 0.25)])
def test_steal_that_a_cell_does_not_report_is_none(steal_s: float | None, read: object) -> None:
    disturbances = [Disturbance(1_000_000, 3_100_000, PREEMPTED)]
    whose = dict.fromkeys(("run", "cell", "arm", "scenario", "workload", "parameters"), "x")
    cell = match_cell(
        {**whose, "block": 1, "emulated": False},
        {**facts_of(disturbances, shared=True), "steal_s": steal_s},
        columns_of(rows_of(disturbances)),
        None,
    )
    assert cell.steal_s == read


def test_nothing_lost_is_nothing_explained() -> None:
    whose: dict[str, Any] = dict.fromkeys(
        ("run", "cell", "arm", "scenario", "workload", "parameters"), "x"
    )
    cell = SpikeCell(**whose, block=1, emulated=False, matched=None, reason="no tracefs")
    assert explained([cell]).share_of_time is None
    assert causes([cell]) == ()
