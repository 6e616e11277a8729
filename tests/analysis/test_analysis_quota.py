"""A quota's stops have the length that its timer says, however little the kernel recorded."""

from __future__ import annotations

import pytest

from tare.analysis.topics.host_track import (
    IDLE_READY,
    WAKE_UP,
    Cause,
    ThreadNames,
    columns_of,
    track_thread,
)
from tare.analysis.topics.quota import THROTTLED, Quota, blame_quota
from tare.analysis.topics.spikes import settle_idle
from tare.events.host_schedule import HostEvent, Vector

SUBJECT, HELPER, STRANGER = 100, 101, 300
CPU, OTHER_CPU = 3, 0
START_NS = 5_000_000_000
MS, US = 1_000_000, 1_000
PERIOD, GRANTED = 100 * MS, 30 * MS
NAMES = ThreadNames(
    {
        SUBJECT: {"comm": "CPU 0/TCG", "role": "subject"},
        HELPER: {"comm": "qemu-system-x86", "role": "subject"},
    },
    {},
)
STRANGE = Cause("preempted", f"thread {STRANGER}")
Row = tuple[int, int, int, int, int, int]


def one_period(begin: int, timer_cpu: int, after: list[Row]) -> list[Row]:
    """Return a thread that uses what it is granted and idles until the timer; then ``after``."""
    timer = begin + PERIOD
    return [
        (begin + GRANTED, CPU, HostEvent.SWITCH, 0, SUBJECT, 1),
        (timer, timer_cpu, HostEvent.QUOTA_PERIOD, 7, 0, 0),
        *after,
    ]


def parts(rows: list[Row]) -> list[tuple[int, Cause, int]]:
    columns = columns_of([(START_NS, CPU, HostEvent.SWITCH, SUBJECT, 0, 0), *rows])
    blamed = blame_quota(track_thread(columns, SUBJECT, NAMES), columns, Quota(GRANTED, PERIOD))
    settled = settle_idle(blamed, THROTTLED)
    return [(each.length_ns, each.cause, each.unseen_ns) for each in settled.episodes]


def test_a_stop_ends_with_its_timer_though_the_way_back_takes_longer() -> None:
    timer = START_NS + PERIOD
    back: Row = (timer + 300 * US, CPU, HostEvent.SWITCH, SUBJECT, 0, 1)
    assert parts(one_period(START_NS, CPU, [back])) == [
        (PERIOD - GRANTED, THROTTLED, 0),
        (300 * US, WAKE_UP, 0),
    ]


@pytest.mark.parametrize("timer_cpu", [CPU, OTHER_CPU])
def test_unrecorded_time_after_the_timer_is_not_attributed_to_the_quota(timer_cpu: int) -> None:
    timer = START_NS + PERIOD
    tick = Vector.LOCAL_TIMER
    shown: Row = (timer + 2 * MS, CPU, HostEvent.VECTOR_ENTRY, tick, SUBJECT, 0)
    over: Row = (timer + 2 * MS + 3 * US, CPU, HostEvent.VECTOR_EXIT, tick, SUBJECT, 0)
    assert parts(one_period(START_NS, timer_cpu, [shown, over]))[:2] == [
        (PERIOD - GRANTED, THROTTLED, 0),
        (0, WAKE_UP, 2 * MS),
    ]


def test_a_helper_that_came_unseen_ran_since_the_timer() -> None:
    timer = START_NS + PERIOD
    back: Row = (timer + 270 * US, CPU, HostEvent.SWITCH, SUBJECT, HELPER, 0)
    assert parts(one_period(START_NS, CPU, [back])) == [
        (PERIOD - GRANTED, THROTTLED, 0),
        (270 * US, Cause("preempted", "subject (qemu-system-x86)"), 0),
    ]


def test_a_wake_up_of_another_thread_does_not_say_that_the_cpu_still_idles() -> None:
    timer = START_NS + PERIOD
    after: list[Row] = [
        (timer + 10 * US, CPU, HostEvent.VECTOR_EXIT, Vector.LOCAL_TIMER, 0, 0),
        (timer + 2 * MS, CPU, HostEvent.WAKEUP, HELPER, CPU, 0),
        (timer + 2 * MS + US, CPU, HostEvent.SWITCH, HELPER, SUBJECT, 0),
    ]
    assert parts(one_period(START_NS, CPU, after)) == [
        (PERIOD - GRANTED, THROTTLED, 0),
        (10 * US, WAKE_UP, 2 * MS - 10 * US + US),
    ]


def test_other_threads_do_not_preempt_a_throttled_thread() -> None:
    timer, middle = START_NS + PERIOD, START_NS + 50 * MS
    rows: list[Row] = [
        (START_NS + GRANTED, CPU, HostEvent.SWITCH, 0, SUBJECT, 1),
        (middle, CPU, HostEvent.SWITCH, STRANGER, 0, 0),
        (middle + 15 * MS, CPU, HostEvent.SWITCH, 0, STRANGER, 0),
        (timer, OTHER_CPU, HostEvent.QUOTA_PERIOD, 7, 0, 0),
        (timer + 50 * US, CPU, HostEvent.SWITCH, SUBJECT, 0, 1),
    ]
    assert parts(rows)[0] == (PERIOD - GRANTED, THROTTLED, 0)


def test_without_the_quota_used_up_a_stranger_is_to_blame() -> None:
    timer, early = START_NS + PERIOD, START_NS + 10 * MS
    rows: list[Row] = [
        (early, CPU, HostEvent.SWITCH, STRANGER, SUBJECT, 1),
        (timer, OTHER_CPU, HostEvent.QUOTA_PERIOD, 7, 0, 0),
        (timer + 50 * US, CPU, HostEvent.SWITCH, SUBJECT, STRANGER, 1),
    ]
    assert parts(rows) == [(90 * MS + 50 * US, STRANGE, 0)]


def test_an_idle_cpu_without_a_timer_stays_what_it_is() -> None:
    rows: list[Row] = [
        (START_NS + GRANTED, CPU, HostEvent.SWITCH, 0, SUBJECT, 1),
        (START_NS + PERIOD, CPU, HostEvent.SWITCH, SUBJECT, 0, 1),
    ]
    columns = columns_of([(START_NS, CPU, HostEvent.SWITCH, SUBJECT, 0, 0), *rows])
    track = track_thread(columns, SUBJECT, NAMES)
    blamed = blame_quota(track, columns, Quota(GRANTED, PERIOD))
    assert [each.cause for each in blamed.episodes] == [IDLE_READY]
