"""When a thread could not run, and why, by what the host records."""

from __future__ import annotations

from analysis.spikes_threads import (
    CPU,
    HOG,
    IDLE,
    NAMES,
    PREEMPTED,
    QEMU,
    START_NS,
    STOPPED,
    SUBJECT,
    THROTTLED,
    TIMER,
    WAITED,
    Row,
)
from tare.analysis.topics.host_track import columns_of, follow, track_thread
from tare.analysis.topics.quota import Quota, blame_quota
from tare.analysis.topics.spikes import divide
from tare.events.host_schedule import HostEvent, SwitchReason, Vector


def test_a_wait_for_a_helper_that_was_preempted_is_the_preemptors() -> None:
    now = START_NS
    rows: list[Row] = [
        (now, CPU, HostEvent.SWITCH, SUBJECT, 0, 0),
        # The subject waits for QEMU's own thread, which then loses the CPU to a neighbour.
        (now + 1_000_000, CPU, HostEvent.SWITCH, QEMU, SUBJECT, 0),
        (now + 1_100_000, CPU, HostEvent.SWITCH, HOG, QEMU, 1),
        (now + 2_100_000, CPU, HostEvent.SWITCH, QEMU, HOG, 1),
        (now + 2_200_000, CPU, HostEvent.SWITCH, SUBJECT, QEMU, 0),
    ]
    track = track_thread(columns_of(rows), SUBJECT, NAMES)
    assert [(each.length_ns, each.cause) for each in track.episodes] == [
        (100_000, WAITED),
        (1_000_000, PREEMPTED),
        (100_000, WAITED),
    ]


def test_a_woken_thread_waits_for_the_thread_on_the_cpu() -> None:
    now = START_NS
    rows: list[Row] = [
        (now, CPU, HostEvent.SWITCH, SUBJECT, 0, 0),
        (now + 1_000, CPU, HostEvent.SWITCH, HOG, SUBJECT, 0),
        (now + 400_000, 0, HostEvent.WAKEUP, SUBJECT, CPU, 0),
        (now + 3_000_000, CPU, HostEvent.SWITCH, SUBJECT, HOG, 1),
    ]
    track = track_thread(columns_of(rows), SUBJECT, NAMES)
    assert [(each.length_ns, each.cause) for each in track.episodes] == [
        (399_000, WAITED),
        (2_600_000, PREEMPTED),
    ]


def test_a_thread_stopped_by_a_signal_does_not_count_as_waiting() -> None:
    now = START_NS
    rows: list[Row] = [
        (now, CPU, HostEvent.SWITCH, SUBJECT, 0, 0),
        # While it is stopped, a helper of the same machine is kept from its CPU as well.
        (now + 1_000_000, CPU, HostEvent.SWITCH, QEMU, SUBJECT, SwitchReason.STOPPED),
        (now + 1_500_000, CPU, HostEvent.SWITCH, HOG, QEMU, SwitchReason.READY),
        (now + 201_000_000, 0, HostEvent.WAKEUP, SUBJECT, CPU, 0),
        (now + 201_400_000, CPU, HostEvent.SWITCH, SUBJECT, HOG, SwitchReason.READY),
        # The next wait is an ordinary one again.
        (now + 202_000_000, CPU, HostEvent.SWITCH, 0, SUBJECT, SwitchReason.WAITING),
        (now + 203_000_000, CPU, HostEvent.SWITCH, SUBJECT, 0, 0),
    ]
    track = track_thread(columns_of(rows), SUBJECT, NAMES)
    assert [(each.length_ns, each.cause) for each in track.episodes] == [
        (200_000_000, STOPPED),
        (400_000, PREEMPTED),
        (1_000_000, WAITED),
    ]
    assert str(STOPPED) == "stopped by a signal or a debugger"
    assert STOPPED.explains


def test_a_quota_does_not_stop_what_a_signal_has_stopped() -> None:
    period, quota = 100_000_000, 60_000_000
    rows: list[Row] = [
        (START_NS, CPU, HostEvent.SWITCH, SUBJECT, 0, 0),
        (START_NS + quota, CPU, HostEvent.SWITCH, 0, SUBJECT, SwitchReason.STOPPED),
        (START_NS + period, CPU, HostEvent.QUOTA_PERIOD, 7, 0, 0),
        (START_NS + period + 9_000, CPU, HostEvent.SWITCH, SUBJECT, 0, 0),
    ]
    columns = columns_of(rows)
    track = track_thread(columns, SUBJECT, NAMES)
    blamed = blame_quota(track, columns, Quota(quota, period))
    assert [each.cause for each in blamed.episodes] == [STOPPED]


def test_a_switch_that_was_not_recorded_shows_by_who_runs_next() -> None:
    now, tick = START_NS, Vector.LOCAL_TIMER
    rows: list[Row] = [
        (now, CPU, HostEvent.SWITCH, SUBJECT, 0, 0),
        (now + 1_000_000, CPU, HostEvent.SWITCH, 0, SUBJECT, 1),
        # Idle at its end is known; the switch back is not recorded, but later the subject runs.
        (now + 3_000_000, CPU, HostEvent.QUOTA_PERIOD, 7, 0, 0),
        (now + 5_000_000, CPU, HostEvent.VECTOR_ENTRY, tick, SUBJECT, 0),
        (now + 5_003_000, CPU, HostEvent.VECTOR_EXIT, tick, SUBJECT, 0),
        # It leaves unseen too.
        (now + 9_000_000, CPU, HostEvent.SWITCH, SUBJECT, HOG, 1),
    ]
    track = track_thread(columns_of(rows), SUBJECT, NAMES)
    assert track.missed == 2
    assert [(each.length_ns, each.cause, each.unseen_ns) for each in track.episodes] == [
        (2_000_000, IDLE, 2_000_000),
        (3_000, TIMER, 0),
        (1, PREEMPTED, 9_000_000 - 5_003_000 - 1),
    ]
    # What may have been unseen explains a gap that was longer than what was surely seen.
    assert divide(2_900_000, track.episodes[:1]) == {IDLE: 2_900_000}


def test_the_thread_that_ran_most_is_the_one_that_measured() -> None:
    rows: list[Row] = [
        (START_NS, CPU, HostEvent.SWITCH, QEMU, 0, 0),
        (START_NS + 10, CPU, HostEvent.SWITCH, SUBJECT, QEMU, 0),
        (START_NS + 5_000, CPU, HostEvent.SWITCH, 0, SUBJECT, 0),
    ]
    track = follow(columns_of(rows), [QEMU, SUBJECT], NAMES)
    assert track is not None
    assert track.thread == SUBJECT
    assert follow(columns_of([]), [SUBJECT], NAMES) is None


def test_a_quota_is_blamed_even_where_others_use_its_time() -> None:
    period, quota = 100_000_000, 60_000_000
    rows: list[Row] = [(START_NS, CPU, HostEvent.SWITCH, SUBJECT, 0, 0)]
    for number in range(5):
        begin = START_NS + number * period
        rows.append((begin + quota, CPU, HostEvent.SWITCH, HOG, SUBJECT, 1))
        rows.append((begin + period, CPU, HostEvent.QUOTA_PERIOD, 7, HOG, 0))
        rows.append((begin + period + 9_000, CPU, HostEvent.SWITCH, SUBJECT, HOG, 1))
    # The same absence without the quota used up is the neighbour's.
    last = START_NS + 5 * period
    rows.append((last + 10_000_000, CPU, HostEvent.SWITCH, HOG, SUBJECT, 1))
    rows.append((last + period, CPU, HostEvent.QUOTA_PERIOD, 7, HOG, 0))
    rows.append((last + period + 9_000, CPU, HostEvent.SWITCH, SUBJECT, HOG, 1))
    columns = columns_of(rows)
    track = track_thread(columns, SUBJECT, NAMES)
    blamed = blame_quota(track, columns, Quota(quota, period))
    throttled = [each.length_ns for each in blamed.episodes if each.cause == THROTTLED]
    assert throttled == [period - quota] * 5
    assert max(e.length_ns for e in blamed.episodes if e.cause == PREEMPTED) > 80_000_000
    assert sum(e.length_ns for e in blamed.episodes) == sum(e.length_ns for e in track.episodes)
