"""Counters become rates, whatever a kernel's counters do."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.analysis.topics.monitoring import (
    LEAST_SAMPLES,
    QUANTITIES,
    Monitor,
    Phase,
    phases_of,
    track_of,
    whole_disks,
)
from tare.events.cell_facts import CellFacts
from tare.report.figures.monitoring import monitoring_figure, thinned
from tare.report.sections.monitoring import cores_table, means_table


def columns(samples: int = 5) -> dict[str, np.ndarray]:
    """One CPU that is busy for half the time, one disk that reads 1 MB/s, one NIC."""
    steps = np.arange(samples, dtype=np.float64)
    return {
        "time_ns": steps * 1e9 + 7e9,
        "cpu.user": steps * 30,
        "cpu.nice": steps * 10,
        "cpu.system": steps * 10,
        "cpu.idle": steps * 45,
        "cpu.iowait": steps * 0,
        "cpu.steal": steps * 5,
        "cpu.guest": steps * 30,
        "disk.vda.sectors_read": steps * 2000,
        "disk.vda.sectors_written": steps * 0,
        "disk.vda.io_ms": steps * 250,
        "disk.vda.weighted_ms": steps * 1500,
        "disk.vda.reads_merged": steps * 3,
        "disk.vda.writes_merged": steps * 4,
        "disk.vda1.sectors_read": steps * 2000,
        "disk.vda1.io_ms": steps * 250,
        "net.eth0.rx_bytes": steps * 1500,
        "net.eth0.tx_bytes": steps * 500,
        "net.eth0.rx_packets": steps * 3,
        "net.eth0.tx_packets": steps * 0,
        "net.lo.rx_bytes": steps * 1e6,
        "net.lo.tx_bytes": steps * 1e6,
    }


def test_rates_are_per_second_and_shares_of_all_time() -> None:
    track = track_of("subject", columns())
    assert track is not None
    assert track.time_s == (1.0, 2.0, 3.0, 4.0)
    means = {name: track.mean(name) for name in QUANTITIES}
    assert means == pytest.approx(
        {
            "cpu-user": 0.4,
            "cpu-system": 0.1,
            "cpu-iowait": 0.0,
            "cpu-steal": 0.05,
            "disk-read": 1.024e6,
            "disk-written": 0.0,
            "disk-busy": 0.25,
            "disk-merged": 7.0,
            "disk-queue": 1.5,
            "net-received": 1500.0,
            "net-sent": 500.0,
            "net-packets-received": 3.0,
            "net-packets-sent": 0.0,
            "net-size-received": 500.0,
            "net-size-sent": None,
        }
    )


def test_with_a_known_start_time_counts_from_there_and_what_was_before_is_left_out() -> None:
    track = track_of("host", columns(), origin_ns=9_500_000_000)
    assert track is not None
    assert track.time_s == pytest.approx((0.5, 1.5))
    assert track.values["cpu-user"] == pytest.approx((0.4, 0.4))
    assert track_of("host", columns(), origin_ns=20_000_000_000) is None


@pytest.mark.parametrize("other", ["p", "01o", "o", "c", "d", "02l", "02v"])
def test_traffic_of_the_peers_interface_is_not_counted_twice(other: str) -> None:
    more = columns()
    steps = np.arange(5, dtype=np.float64)
    for name in (f"tare-0a1b2c{other}", "tare-0a1b2c00"):
        more |= {f"net.{name}.rx_bytes": steps * 100, f"net.{name}.tx_bytes": steps * 200}
    track = track_of("host", more)
    assert track is not None
    assert track.mean("net-received") == pytest.approx(1600.0)


def test_counters_that_a_computer_lacks_are_missing_not_zero() -> None:
    some = {name: values for name, values in columns().items() if not name.startswith("net.")}
    track = track_of("host", some)
    assert track is not None
    assert track.mean("net-sent") is None and track.mean("disk-read") is not None


def test_unreported_steal_is_missing_and_not_zero() -> None:
    # The agent leaves out what nobody counted, of all CPUs and of each.
    every = {**columns(), "cpu0.user": columns()["cpu.user"], "cpu0.idle": columns()["cpu.idle"]}
    kept = {name: values for name, values in every.items() if not name.endswith(".steal")}
    track = track_of("subject", kept)
    assert track is not None
    assert track.mean("cpu-steal") is None and track.mean("cpu-user") is not None
    assert set(track.cores[0].values) == {"user"}
    monitor = Monitor("c", 1, "hyperv", "alone", "w", "{}", False, (track,))
    (row,) = means_table([monitor]).rows
    shown = means_table([monitor]).texts_of(row)
    assert (shown["cpu_steal"], shown["cpu_iowait"]) == ("–", "0.0 %")
    drawn = json.dumps(monitoring_figure(monitor, name="m").spec.marks)
    assert "steal" not in drawn and "iowait" in drawn
    (core,) = cores_table([monitor]).rows
    assert core.used is None and cores_table([monitor]).texts_of(core)["steal"] == "–"


def test_too_few_samples_give_nothing() -> None:
    assert track_of("subject", columns(LEAST_SAMPLES - 1)) is None
    assert track_of("subject", {}) is None


def test_a_counter_that_runs_backwards_gives_no_negative_rate() -> None:
    broken = columns()
    broken["net.eth0.rx_bytes"][2] = 0.0
    track = track_of("subject", broken)
    assert track is not None and min(track.values["net-received"]) >= 0


@given(st.lists(st.integers(0, 10**12), min_size=LEAST_SAMPLES, max_size=40), st.integers(0, 3))
def test_any_counters_give_finite_rates(values: list[int], stall: int) -> None:
    length = len(values)
    time = np.arange(length, dtype=np.float64) * 1e8
    time[length - stall :] = time[max(0, length - stall - 1)]
    given_columns = {"time_ns": time, **dict.fromkeys(("cpu.user", "cpu.idle"), np.array(values))}
    track = track_of(
        "subject", {k: np.asarray(v, dtype=np.float64) for k, v in given_columns.items()}
    )
    if track is not None:
        assert all(0 <= value <= 1 for value in track.values["cpu-user"])


@pytest.mark.parametrize(
    ("names", "disks"),
    [
        (("disk.vda", "disk.vda1", "disk.vda15"), ["disk.vda"]),
        (("disk.nvme0n1", "disk.nvme0n1p1"), ["disk.nvme0n1"]),
        (("disk.sda", "disk.sdb", "disk.dm-0", "disk.md0", "disk.zram0"), ["disk.sda", "disk.sdb"]),
    ],
)
def test_nothing_is_counted_twice(names: tuple[str, ...], disks: list[str]) -> None:
    assert whole_disks(names) == disks


def test_phases_are_read_from_the_cells_facts() -> None:
    facts: CellFacts = {"phases": [{"name": "cpu", "begin_s": 1, "end_s": 2.5}]}
    assert phases_of(facts) == (Phase("cpu", 1.0, 2.5),)
    assert phases_of({}) == ()


@given(st.lists(st.floats(0, 1e9), max_size=500), st.integers(1, 50))
def test_thinning_keeps_the_whole_time_and_the_mean(values: list[float], most: int) -> None:
    times = [float(number + 1) for number in range(len(values))]
    steps = thinned(times, values, most)
    assert len(steps) <= most
    if values:
        assert (steps[0][0], steps[-1][1]) == (0.0, times[-1])
        area = sum((end - begin) * value for begin, end, value in steps)
        assert area == pytest.approx(sum(values), abs=1e-3)
