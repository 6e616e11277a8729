"""Exits of Xen's guests are counted by reason from its records, each for the vCPU that left."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from platforms.xen_traces import HZ, of_change, record, window
from tare.hosts.trace.exits import ExitCount
from tare.platforms.xen.trace.exits import PV, counter_hz, exits_of
from tare.platforms.xen.trace.records import (
    IDLE_DOMAIN,
    PV_OTHER,
    Crossing,
    LostRecords,
    Runstate,
    RunstateChange,
    Way,
    crossings,
    records,
)
from tare.platforms.xen.trace.schedule import vcpu_id

OWN, OTHER = vcpu_id(5, 0), vcpu_id(6, 0)
CPUID, HLT, IOIO = 0x72, 0x78, 0x7B


def runs(ticks: int, domain: int, cpu: int = 1) -> RunstateChange:
    return RunstateChange(ticks, cpu, domain, 0, Runstate.RUNNABLE, Runstate.RUNNING)


def exit_at(ticks: int, code: int, cpu: int = 1) -> Crossing:
    return Crossing(ticks, cpu, Way.EXIT, code)


def entry_at(ticks: int, cpu: int = 1) -> Crossing:
    return Crossing(ticks, cpu, Way.ENTRY)


def test_records_of_crossings_are_read_as_xen_writes_them() -> None:
    data = window(
        1,
        of_change(runs(10, 5))
        + record(0x00081102, [CPUID, 0x1000, 0], 20)
        + record(0x00081001, [], 30)
        + record(0x0020110D, [(3 << 20) | 29, 7], 40)
        + record(0x00201103, [0x1000, 0, 13], 50)
        + record(0x00082010, [1], 60),
    )
    assert list(crossings(data)) == [
        runs(10, 5),
        exit_at(20, CPUID),
        entry_at(30),
        Crossing(40, 1, Way.PV, 29),
        Crossing(50, 1, Way.PV, PV_OTHER + 3),
    ]
    assert list(records(data)) == [runs(10, 5)]


def test_the_time_of_an_exit_lasts_until_the_same_vcpu_runs_again_on_any_cpu() -> None:
    found = exits_of(
        [
            runs(0, 5), exit_at(100, CPUID), entry_at(130), exit_at(200, HLT),
            # Another guest has the CPU meanwhile, and its exits are not the subject's.
            runs(300, 6), entry_at(310), exit_at(320, CPUID),
            runs(1000, 5, cpu=2), entry_at(1200, cpu=2),
        ],
        (OWN,), "svm", HZ,
    )  # fmt: skip
    assert found.counts == (
        ExitCount(OWN, "svm", CPUID, 1, 30 / HZ),
        ExitCount(OWN, "svm", HLT, 1, 1000 / HZ),
    )
    assert found.seconds == 1200 / HZ


def changes(ticks: int, was: Runstate, now: Runstate, domain: int = 5) -> RunstateChange:
    return RunstateChange(ticks, 1, domain, 0, was, now)


def test_a_wait_for_the_cpu_is_run_delay_and_no_part_of_an_exit() -> None:
    found = exits_of(
        [
            runs(0, 5), exit_at(100, CPUID),
            changes(110, Runstate.RUNNING, Runstate.RUNNABLE),
            runs(110, 6), runs(400, 5), entry_at(430),
            # A vCPU that sleeps is ready at its wake-up, and waits then.
            exit_at(500, HLT), changes(510, Runstate.RUNNING, Runstate.BLOCKED),
            changes(900, Runstate.BLOCKED, Runstate.RUNNABLE), runs(950, 5), entry_at(960),
            # The wait of another guest is not the subject's.
            changes(970, Runstate.RUNNING, Runstate.RUNNABLE, 6), runs(990, 6),
        ],
        (OWN,), "svm", HZ,
    )  # fmt: skip
    assert found.run_delay_s == pytest.approx((290 + 50) / HZ)
    assert found.counts == (
        ExitCount(OWN, "svm", CPUID, 1, (330 - 290) / HZ),
        ExitCount(OWN, "svm", HLT, 1, (460 - 50) / HZ),
    )


def test_the_wait_for_a_device_model_is_part_of_its_exit_and_noted() -> None:
    found = exits_of(
        [
            runs(0, 5), exit_at(100, IOIO), changes(120, Runstate.RUNNING, Runstate.BLOCKED),
            changes(620, Runstate.BLOCKED, Runstate.RUNNABLE), runs(640, 5), entry_at(660),
        ],
        (OWN,), "svm", HZ,
    )  # fmt: skip
    assert found.counts == (ExitCount(OWN, "svm", IOIO, 1, (560 - 20) / HZ),)
    assert found.waited_s == 500 / HZ and found.run_delay_s == 20 / HZ


def test_after_lost_records_no_wait_is_counted() -> None:
    found = exits_of(
        [
            runs(0, 5),
            changes(10, Runstate.RUNNING, Runstate.RUNNABLE),
            LostRecords(1, 3),
            runs(500, 5),
        ],
        (OWN,), "svm", HZ,
    )  # fmt: skip
    assert found.run_delay_s == 0


def test_exits_of_pv_guests_are_counted_without_time() -> None:
    calls = [Crossing(at, 1, Way.PV, 29) for at in (5, 6, 7)]
    found = exits_of([runs(0, 5), *calls], (OWN,), "svm", HZ)
    assert found.counts == (ExitCount(OWN, PV, 29, 3, 0.0),)


def test_after_lost_records_nothing_is_counted_until_the_vcpu_is_known_again() -> None:
    found = exits_of(
        [runs(0, 5), LostRecords(1, 42), exit_at(10, CPUID), entry_at(20), runs(30, 5),
         exit_at(40, CPUID), entry_at(50)],
        (OWN,), "svm", HZ,
    )  # fmt: skip
    assert found.dropped == 42
    assert found.total == 1


def test_the_counters_frequency_is_that_of_xl_info() -> None:
    shown = "nr_cpus                : 2\ncpu_mhz                : 2894.557\nhw_caps : 0\n"
    assert counter_hz(shown) == 2894.557e6
    assert counter_hz("") == 0


def test_idle_cpus_and_exits_without_a_domain_are_skipped() -> None:
    found = exits_of(
        [exit_at(0, CPUID), runs(5, IDLE_DOMAIN), exit_at(10, CPUID), entry_at(20)],
        (OWN,), "svm", HZ,
    )  # fmt: skip
    assert found.counts == ()


EVENTS = st.one_of(
    st.builds(runs, st.integers(0, 1 << 40), st.sampled_from([5, 6, IDLE_DOMAIN])),
    st.builds(exit_at, st.integers(0, 1 << 40), st.sampled_from([CPUID, HLT])),
    st.builds(entry_at, st.integers(0, 1 << 40)),
    st.builds(LostRecords, st.just(1), st.integers(1, 9)),
)


@given(st.lists(EVENTS, max_size=40))
def test_no_exit_is_counted_that_was_not_recorded(
    found: list[RunstateChange | LostRecords | Crossing],
) -> None:
    counted = exits_of(found, (OWN, OTHER), "svm", HZ)
    exits = sum(isinstance(one, Crossing) and one.kind == Way.EXIT for one in found)
    assert counted.total <= exits
    assert all(each.seconds >= 0 for each in counted.counts)


@pytest.mark.fuzz
@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        exits_of(crossings(data), (OWN,), "svm", HZ)
