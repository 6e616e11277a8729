"""An idle or silent CPU is called what it is: a limit, a wake-up, steal, or nothing known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.analysis.topics.host_track import (
    IDLE_READY,
    WAKE_UP,
    Cause,
    Episode,
    ThreadNames,
    Track,
    columns_of,
    track_thread,
)
from tare.analysis.topics.spike_cells import SpikeCell, explained, limit_in_force
from tare.analysis.topics.spikes import (
    LEAST_STEAL_NS,
    LONGEST_WAKE_NS,
    STEAL_COUNT_NS,
    STOLEN,
    UNEXPLAINED,
    Gaps,
    Matched,
    blame_steal,
    match,
    settle_idle,
)
from tare.events.cell_facts import TraceFacts
from tare.events.host_schedule import HostEvent

SUBJECT, HOG, MIGRATION = 100, 200, 21
HERE, THERE = 0, 1
MS = 1_000_000
THROTTLED = Cause("host throttling")
NAMES = ThreadNames(
    {SUBJECT: {"comm": "tare-tick", "role": "subject"}, HOG: {"comm": "hog", "role": ""}}, {}
)
Row = tuple[int, int, int, int, int, int]


def causes_of(rows: Sequence[Row]) -> list[tuple[int, Cause]]:
    track = track_thread(columns_of(rows), SUBJECT, NAMES)
    return [(each.length_ns, each.cause) for each in track.episodes]


def test_ready_thread_with_an_idle_cpu_is_not_throttling() -> None:
    rows: list[Row] = [
        (0, HERE, HostEvent.SWITCH, SUBJECT, 0, 0),
        (MS, HERE, HostEvent.SWITCH, 0, SUBJECT, 1),
        (3 * MS, HERE, HostEvent.SWITCH, SUBJECT, 0, 0),
    ]
    assert causes_of(rows) == [(2 * MS, IDLE_READY)]
    track = track_thread(columns_of(rows), SUBJECT, NAMES)
    assert [each.cause for each in settle_idle(track, None).episodes] == [IDLE_READY]
    assert [each.cause for each in settle_idle(track, THROTTLED).episodes] == [THROTTLED]


def test_a_woken_thread_waits_for_its_idle_cpu_to_come_back() -> None:
    rows: list[Row] = [
        (0, HERE, HostEvent.SWITCH, SUBJECT, 0, 0),
        (MS, HERE, HostEvent.SWITCH, 0, SUBJECT, 0),
        (2 * MS, THERE, HostEvent.WAKEUP, SUBJECT, HERE, 0),
        (2 * MS + 40_000, HERE, HostEvent.SWITCH, SUBJECT, 0, 0),
    ]
    assert causes_of(rows) == [(MS, Cause("platform")), (40_000, WAKE_UP)]


def test_no_idle_state_takes_longer_than_the_longest() -> None:
    short = Episode(0, LONGEST_WAKE_NS, WAKE_UP)
    long = Episode(5 * MS, 5 * MS + LONGEST_WAKE_NS + 1, WAKE_UP)
    track = Track(SUBJECT, (short, long), 1)
    assert [each.cause for each in settle_idle(track, None).episodes] == [WAKE_UP, IDLE_READY]


def test_a_thread_woken_on_another_cpu_waits_for_the_thread_there() -> None:
    rows: list[Row] = [
        (0, HERE, HostEvent.SWITCH, SUBJECT, 0, 0),
        (0, THERE, HostEvent.SWITCH, HOG, 0, 0),
        (MS, HERE, HostEvent.SWITCH, 0, SUBJECT, 0),
        (2 * MS, HERE, HostEvent.WAKEUP, SUBJECT, THERE, 0),
        (5 * MS, THERE, HostEvent.SWITCH, SUBJECT, HOG, 1),
    ]
    assert causes_of(rows) == [(MS, Cause("platform")), (3 * MS, Cause("preempted", "hog"))]


def test_a_migrated_thread_waited_behind_the_thread_there() -> None:
    rows: list[Row] = [
        (0, HERE, HostEvent.SWITCH, SUBJECT, 0, 0),
        (2 * MS, HERE, HostEvent.SWITCH, MIGRATION, SUBJECT, 1),
        (2 * MS + 5_000, HERE, HostEvent.SWITCH, 0, MIGRATION, 0),
        (3 * MS, THERE, HostEvent.SWITCH, HOG, 0, 0),
        (6 * MS, THERE, HostEvent.SWITCH, SUBJECT, HOG, 1),
    ]
    assert causes_of(rows) == [
        (5_000, Cause("preempted", "thread 21")),
        (3 * MS - 2 * MS - 5_000, IDLE_READY),
        (3 * MS, Cause("preempted", "hog")),
    ]


def test_an_idle_cpu_that_a_thread_is_moved_to_is_woken_for_it() -> None:
    rows: list[Row] = [
        (0, HERE, HostEvent.SWITCH, SUBJECT, 0, 0),
        (2 * MS, HERE, HostEvent.SWITCH, 0, SUBJECT, 1),
        (2 * MS + 9_000, THERE, HostEvent.SWITCH, SUBJECT, 0, 0),
    ]
    assert causes_of(rows) == [(9_000, WAKE_UP)]


@pytest.mark.parametrize(
    ("facts", "limit"),
    [
        ({}, None),
        ({"throttled": {"times": 0, "quota_ns": 30 * MS}}, None),
        ({"throttled": {"times": 2, "quota_ns": 30 * MS}}, THROTTLED),
        ({"realtime": {"limited": False}}, None),
        ({"realtime": {"limited": True}}, Cause("host throttling", "limit on real-time threads")),
    ],
)
def test_only_a_limit_that_was_in_force_throttles(facts: TraceFacts, limit: Cause | None) -> None:
    assert limit_in_force(facts) == limit


def silent(*excess_ns: int) -> Matched:
    begins = np.arange(len(excess_ns), dtype=np.int64) * 100 * MS
    gaps = Gaps(begins, np.array(excess_ns, dtype=np.int64), 68_000, 20)
    return match(gaps, [], own_tick=False)


def test_silence_is_steal_only_as_far_as_the_host_counted_it() -> None:
    found = silent(12 * MS, 9_000, 30 * MS, LEAST_STEAL_NS - 1)
    assert blame_steal(found, 0, 1) == found
    causes = [spike.cause for spike in blame_steal(found, 10 * MS, 1).spikes]
    assert causes == [STOLEN, UNEXPLAINED, UNEXPLAINED, UNEXPLAINED]
    causes = [spike.cause for spike in blame_steal(found, 40 * MS, 1).spikes]
    assert causes == [STOLEN, UNEXPLAINED, STOLEN, UNEXPLAINED]


@given(st.lists(st.integers(1, 50 * MS), max_size=20), st.integers(0, 200 * MS), st.integers(1, 4))
def test_steal_never_takes_more_than_was_counted(
    excess_ns: list[int], stolen_ns: int, cpus: int
) -> None:
    before = silent(*excess_ns)
    after = blame_steal(before, stolen_ns, cpus)
    taken = sum(t for spike in after.spikes for cause, t in spike.parts if cause == STOLEN)
    assert taken <= (stolen_ns + cpus * STEAL_COUNT_NS if stolen_ns else 0)
    for one, other in zip(before.spikes, after.spikes, strict=True):
        assert sum(t for _, t in other.parts) == sum(t for _, t in one.parts)


def test_causes_that_only_describe_a_state_do_not_explain() -> None:
    found = silent(4 * MS)
    spike = replace(found.spikes[0], parts=((IDLE_READY, 3 * MS), (UNEXPLAINED, MS)))
    assert spike.unexplained_ns == 4 * MS
    cell = SpikeCell("r", "c", 1, "a", "s", "w", "{}", False, replace(found, spikes=(spike,)))
    assert explained([cell]).share_of_time == 0.0
    assert explained([cell]).share_of_gaps == 0.0
