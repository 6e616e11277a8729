"""Xen's vCPUs take the place of threads in the host's series."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from platforms.xen_traces import HZ, STAYS, Stay, changes
from tare.analysis.topics.host_track import Cause, ThreadNames, follow
from tare.events.host_schedule import IDLE, HostEvent, SwitchReason
from tare.platforms.xen.trace.records import IDLE_DOMAIN, LostRecords, Runstate, RunstateChange
from tare.platforms.xen.trace.schedule import domain_of, schedule, vcpu_id, vcpu_name

SUBJECT, OTHER = vcpu_id(1, 0), vcpu_id(2, 0)
NAMES = ThreadNames(
    {
        SUBJECT: {"comm": "vCPU 0", "role": "subject"},
        OTHER: {"comm": "vCPU 0", "role": "neighbour-1"},
        vcpu_id(0, 0): {"comm": "dom0 (vCPU 0)", "role": ""},
    },
    {},
)


@given(st.integers(0, IDLE_DOMAIN - 1), st.integers(0, 0xFFFF))
def test_vcpu_number_identifies_its_domain_and_is_never_idle(domain: int, vcpu: int) -> None:
    number = vcpu_id(domain, vcpu)
    assert number != IDLE
    assert number < 1 << 32
    assert domain_of(number) == (domain, vcpu)


def test_vcpus_without_a_role_are_named_by_their_domain() -> None:
    assert vcpu_name(vcpu_id(0, 1)) == "dom0 (vCPU 1)"
    assert vcpu_name(vcpu_id(7, 0)) == "domain 7 (vCPU 0)"
    assert vcpu_id(IDLE_DOMAIN, 3) == IDLE


@given(STAYS, st.integers(0, 3_000))
def test_time_away_is_blamed_on_who_had_the_cpu_and_none_is_lost(
    stays: list[Stay], switch_ns: int
) -> None:
    stays = [Stay(1, 5_000, Runstate.RUNNABLE), *stays, Stay(1, 5_000, Runstate.RUNNABLE)]
    # The measuring vCPU is always ready; the others come and go.
    stays = [Stay(1, s.ns, Runstate.RUNNABLE) if s.domain == 1 else s for s in stays]
    records = changes(stays, switch_ns=switch_ns)
    track = follow(schedule(records, HZ, 0).columns, [SUBJECT], NAMES)
    if track is None:
        # It ran for less than a millisecond, and nobody else ran: nothing was recorded of it.
        assert all(stay.domain == 1 for stay in stays)
        return
    took: dict[str, int] = {}
    for episode in track.episodes:
        took[str(episode.cause)] = took.get(str(episode.cause), 0) + episode.length_ns
    away: dict[str, int] = {}
    switches: dict[str, int] = {}
    words = {
        0: "preempted by dom0 (vCPU 0)",
        2: "preempted by neighbour-1 (vCPU 0)",
        IDLE_DOMAIN: "host CPU idle though it was ready",
    }
    for before, stay in pairwise(stays):
        if stay.domain != 1:
            away[words[stay.domain]] = away.get(words[stay.domain], 0) + stay.ns
            switches[words[stay.domain]] = switches.get(words[stay.domain], 0) + (
                before.domain != stay.domain
            )
    assert took.keys() == away.keys()
    for cause, length in away.items():
        # A switch counts for the next vCPU, except the one that returns to the measuring vCPU.
        least = length - 1
        assert least <= took[cause] <= length + 2 * switch_ns * (switches[cause] + 1)


def test_a_vcpu_that_was_taken_off_line_is_held_back_where_a_cap_can_do_that() -> None:
    records = changes(
        [
            Stay(1, 1_000, Runstate.OFFLINE),
            Stay(IDLE_DOMAIN, 9_000, Runstate.RUNNABLE),
            Stay(1, 1_000, Runstate.RUNNABLE),
        ]
    )
    paused, capped = schedule(records, HZ, 0), schedule(records, HZ, 0, capped=True)
    assert SwitchReason.STOPPED in paused.columns["runnable"].tolist()
    assert SwitchReason.STOPPED not in capped.columns["runnable"].tolist()


def test_one_that_sleeps_is_woken_and_then_waits_for_who_is_there() -> None:
    records = [
        RunstateChange(1_000, 1, 1, 0, Runstate.RUNNABLE, Runstate.RUNNING),
        RunstateChange(2_000, 1, 1, 0, Runstate.RUNNING, Runstate.BLOCKED),
        RunstateChange(2_000, 1, 2, 0, Runstate.RUNNABLE, Runstate.RUNNING),
        RunstateChange(5_000, 0, 1, 0, Runstate.BLOCKED, Runstate.RUNNABLE),
        RunstateChange(9_000, 1, 2, 0, Runstate.RUNNING, Runstate.RUNNABLE),
        RunstateChange(9_000, 1, 1, 0, Runstate.RUNNABLE, Runstate.RUNNING),
        RunstateChange(2_000_000, 1, 1, 0, Runstate.RUNNING, Runstate.RUNNING),
    ]
    track = follow(schedule(records, HZ, 0).columns, [SUBJECT], NAMES)
    assert track is not None
    assert [(each.cause, each.length_ns) for each in track.episodes] == [
        (Cause("platform"), 3_000),
        (Cause("preempted", "neighbour-1 (vCPU 0)"), 4_000),
    ]


def test_one_that_never_leaves_is_seen_to_run() -> None:
    runs = (Runstate.RUNNING, Runstate.RUNNING)
    records = [RunstateChange(at * 300_000, 1, 1, 0, *runs) for at in range(1, 18)]
    taken = schedule(records, HZ, 0)
    # Not each time that Xen looked: once in a millisecond.
    assert taken.columns["kind"].tolist()[1:] == [HostEvent.RUNS_ON] * 4
    track = follow(taken.columns, [SUBJECT], NAMES)
    assert track is not None
    assert track.running_ns == 4 * 1_200_000
    assert not track.episodes


def test_lost_records_are_counted_and_later_ones_are_not_joined_to_earlier_ones() -> None:
    records: list[RunstateChange | LostRecords] = [
        RunstateChange(1_000, 1, 1, 0, Runstate.RUNNABLE, Runstate.RUNNING),
        LostRecords(1, 12),
        RunstateChange(9_000, 1, 2, 0, Runstate.RUNNABLE, Runstate.RUNNING),
        RunstateChange(9_900, 1, 2, 0, Runstate.RUNNING, Runstate.RUNNABLE),
        RunstateChange(9_900, 1, 1, 0, Runstate.RUNNABLE, Runstate.RUNNING),
        RunstateChange(2_000_000, 1, 1, 0, Runstate.RUNNING, Runstate.RUNNING),
    ]
    taken = schedule(records, HZ, 0)
    assert taken.lost == 12
    track = follow(taken.columns, [SUBJECT], NAMES)
    assert track is not None
    assert track.missed == 1


@given(STAYS, st.floats(1e8, 5e9), st.integers(0, 900))
def test_times_are_the_counters_at_its_frequency(stays: list[Stay], hz: float, origin: int) -> None:
    records = changes(stays)
    times = schedule(records, hz, origin).columns["time_ns"].tolist()
    wanted = {round((each.ticks - origin) * 1e9 / hz) for each in records}
    assert set(times) <= wanted
    assert times == sorted(times)
