"""Recorded stacks belong to the gaps in which they were taken, on either side's clock."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from analysis.spikes_threads import CPU, HOG, PREEMPTED, START_NS, SUBJECT, TIMER
from tare.analysis.topics.spike_cells import SpikeCell, held_gaps
from tare.analysis.topics.spikes import Matched, Spike
from tare.analysis.topics.stacks import (
    MOST_SHOWN,
    CellStacks,
    Columns,
    HeldGap,
    cpus_of,
    holders_in,
    merged,
    sights_of,
)
from tare.events.host_schedule import HostEvent
from tare.events.stacks import Sight

COPY = Sight("timer interrupt", "cp", ("sysvec_apic_timer_interrupt", "copy_page", "vfs_read"))
USER = Sight("timer interrupt", "sh", ("sysvec_apic_timer_interrupt",))
SIGHTS = (COPY, USER)


def series_of(*rows: tuple[int, int, int]) -> Columns:
    """Return stacks as columns: time, CPU and sight."""
    times, cpus, sights = zip(*rows, strict=True)
    return {
        "time_ns": np.array(times, dtype="u8"),
        "cpu": np.array(cpus, dtype="u2"),
        "thread": np.full(len(rows), 7, dtype="u4"),
        "sight": np.array(sights, dtype="u4"),
    }


def gap(begin: int, end: int, *cpus: int, cause: object = PREEMPTED) -> HeldGap:
    return HeldGap(begin, end, end - begin, PREEMPTED if cause is PREEMPTED else TIMER,
                   frozenset(cpus))  # fmt: skip


def test_stacks_are_counted_by_what_they_show_in_gaps_of_their_cpu() -> None:
    series = series_of(
        (1_000_000, 3, 0),
        (2_000_000, 3, 0),
        (2_000_000, 4, 1),
        (5_000_000, 3, 0),
        (9_000_000, 3, 1),
    )
    gaps = [gap(900_000, 2_500_000, 3), gap(4_900_000, 8_000_000, 3, cause=TIMER)]
    (found,) = holders_in("host", gaps, series, SIGHTS)
    assert (found.what, found.comm, found.frames) == (
        "timer interrupt",
        "cp",
        ("copy_page", "vfs_read"),
    )
    assert (found.gaps, found.seen, found.longest_ns) == (2, 3, 3_100_000)
    assert found.cause == TIMER
    everywhere = holders_in("guest", [gap(900_000, 2_500_000)], series, SIGHTS)
    assert {each.comm: each.frames for each in everywhere} == {
        "cp": ("copy_page", "vfs_read"),
        "sh": (),
    }


def test_a_sight_that_the_facts_lack_is_left_out() -> None:
    assert holders_in("host", [gap(0, 10_000)], series_of((5_000, 0, 9)), SIGHTS) == []


@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 2), st.integers(0, 1)), min_size=1),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(10_000, 10**5)), max_size=8),
)
def test_every_stack_in_a_gap_is_found_and_no_other(
    rows: list[tuple[int, int, int]], gaps: list[tuple[int, int]]
) -> None:
    series = series_of(*sorted(rows))
    held = [gap(begin, begin + length, 1) for begin, length in gaps]
    found = holders_in("host", held, series, SIGHTS)
    seen = sum(
        each.begin_ns - 1_000 <= time <= each.end_ns + 1_000 and cpu == 1
        for each in held
        for time, cpu, _ in rows
    )
    assert sum(each.seen for each in found) == seen
    assert all(each.gaps <= each.seen and each.gaps <= len(held) for each in found)
    assert all(each.longest_ns in {one.excess_ns for one in held} for each in found)


def test_cells_are_merged_with_the_longest_gap_first() -> None:
    one = holders_in("host", [gap(0, 50_000)], series_of((10_000, 0, 0), (11_000, 0, 1)), SIGHTS)
    two = holders_in("host", [gap(0, 90_000)], series_of((10_000, 0, 1), (11_000, 0, 1)), SIGHTS)
    rows = merged([CellStacks(tuple(one)), CellStacks(tuple(two)), CellStacks()])
    assert [(row.comm, row.gaps, row.seen, row.longest_ns) for row in rows] == [
        ("sh", 2, 3, 90_000),
        ("cp", 1, 1, 50_000),
    ]


def test_facts_name_functions_by_their_places() -> None:
    facts = {
        "symbols": ["a", "b"],
        "sights": [{"what": "softirq TIMER", "comm": "x", "frames": [1, 0]}],
    }
    assert sights_of(facts) == (Sight("softirq TIMER", "x", ("b", "a")),)


def host_of(rows: Sequence[tuple[int, int, int, int, int]]) -> Columns:
    names = ("time_ns", "cpu", "kind", "who", "other")
    return dict(zip(names, map(np.array, zip(*rows, strict=True)), strict=True))


def test_the_cpus_of_a_gap_are_those_that_its_thread_left_and_came_to() -> None:
    host = host_of(
        [
            (100, 1, HostEvent.SWITCH, SUBJECT, 0),
            (200, 5, HostEvent.SWITCH, HOG, 0),
            (300, 1, HostEvent.SWITCH, HOG, SUBJECT),
            (400, 2, HostEvent.SWITCH, SUBJECT, 0),
            (900, 3, HostEvent.SWITCH, 0, SUBJECT),
        ]
    )
    assert cpus_of(SUBJECT, host, 150, 250) == {1}
    assert cpus_of(SUBJECT, host, 250, 500) == {1, 2}
    assert cpus_of(SUBJECT, host, 450, 500) == {2}


def test_gaps_are_placed_on_the_clock_of_each_kernel() -> None:
    spikes = (
        Spike(0, START_NS + 500, START_NS + 100_000, 30_000, ((PREEMPTED, 30_000),)),
        Spike(1, START_NS + 300_000, START_NS + 370_000, 900, ((TIMER, 900),)),
    )
    cell = SpikeCell(*("x", "x", 1, "x", "x", "x", "x"), False, Matched(spikes, 500, 9, 0, None))
    clock = {"first_raw_ns": 10**12, "last_raw_ns": 10**12 + 10**9, "error_ns": 9}
    facts = {"tick": {"clock": clock, "seconds": 1.0, "undisturbed_s": 68e-6}}
    logged = {"time_ns": np.array([0, 299_500]), "excess_ns": np.array([30_000, 900])}
    host = host_of([(START_NS, CPU, HostEvent.SWITCH, SUBJECT, 0)])
    found = held_gaps(cell, facts, host, logged, {"guest": {"cpu": 0}})  # type: ignore[arg-type]
    # Gaps below 10 us are not looked at.
    (here,), (there,) = found["host"], found["guest"]
    assert (here.begin_ns, here.end_ns) == (START_NS + 500, START_NS + 100_000)
    assert (there.begin_ns, there.end_ns) == (10**12, 10**12 + 98_000)
    assert there.cpus == {0} and here.excess_ns == there.excess_ns == 30_000


def test_only_so_many_functions_are_kept() -> None:
    deep = Sight("softirq TIMER", "x", tuple(f"f{number}" for number in range(40)))
    (found,) = holders_in("host", [gap(0, 20_000)], series_of((5, 0, 0)), [deep])
    assert len(found.frames) == MOST_SHOWN
