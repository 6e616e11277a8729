"""Single CPUs and groups of them: shares that add up, and idle time that is never use."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.analysis.topics.cores import (
    Core,
    bound_cpus,
    cores_of,
    kept_cpus,
    mean_of_cores,
    shares,
    split_by_binding,
)
from tare.analysis.topics.job_counters import counter_values, value_of
from tare.analysis.topics.monitoring import CounterTrack, Monitor, Phase, _grouped, track_of
from tare.report.figures.monitoring import monitoring_figure
from tare.report.sections.monitoring import groups_table

STEPS = np.arange(6, dtype=np.float64)
KEPT = np.ones(5, dtype=bool)


def columns(busy: dict[int, int]) -> dict[str, np.ndarray]:
    """Return counters of CPUs that are busy for so many of 100 ticks, and else wait for I/O."""
    found: dict[str, np.ndarray] = {"time_ns": STEPS * 1e9, "cpu.user": STEPS, "cpu.idle": STEPS}
    for cpu, share in busy.items():
        found[f"cpu{cpu}.user"] = STEPS * share
        found[f"cpu{cpu}.iowait"] = STEPS * (100 - share)
        found[f"cpu{cpu}.guest"] = STEPS * share
        found[f"sched.cpu{cpu}.run_ns"] = STEPS * 1e9
    return found


def test_each_cpu_is_listed_by_itself() -> None:
    cores = cores_of(columns({0: 90, 11: 20}), KEPT)
    assert [core.number for core in cores] == [0, 11]
    assert cores[0].values["user"] == pytest.approx([0.9] * 5)
    assert cores[1].values["iowait"] == pytest.approx([0.8] * 5)


@given(st.dictionaries(st.integers(0, 200), st.integers(0, 100), min_size=1, max_size=8))
def test_a_group_is_the_mean_of_its_cpus_and_idle_time_no_use(busy: dict[int, int]) -> None:
    cores = cores_of(columns(busy), KEPT)
    mean = mean_of_cores(cores)
    assert mean["user"][0] == pytest.approx(sum(busy.values()) / len(busy) / 100)
    assert mean["user"][0] + mean["iowait"][0] == pytest.approx(1.0)
    mine, others = split_by_binding(cores, set(list(busy)[:1]))
    assert len(mine) == 1 and len(mine) + len(others) == len(busy)


NAMES = st.text(max_size=8) | st.builds("cpu{}.{}".format, st.integers(0, 9), st.text(max_size=4))
NAMES |= st.sampled_from(["cpu.user", "cpu1.user", "cpu1.idle", "cpu1.guest", "cpu٣.user"])


@given(
    st.lists(NAMES, max_size=6, unique=True), st.lists(st.floats(0, 1e9), min_size=6, max_size=6)
)
def test_any_names_of_counters_are_taken(names: list[str], values: list[float]) -> None:
    counters = {name: np.array(values) for name in names}
    for core in cores_of(counters, KEPT):
        assert all(0 <= value <= 1 for values in core.values.values() for value in values)
    assert set(shares(counters)) <= {"user", "system", "iowait", "steal"}


def test_cpus_that_machines_are_bound_to_come_from_how_they_were_placed() -> None:
    placed: list[dict[str, object]] = [
        {"cpus": [3, 2]},
        {"cpus": [1]},
        {"cpus": "all"},
        {},
        {"cpus": [True, None]},
    ]
    assert bound_cpus(placed) == {1, 2, 3}


def test_a_process_of_the_host_uses_those_that_it_is_bound_to_or_else_keeps_to() -> None:
    assert kept_cpus({"cpus": [3], "keeps_to": [1]}) == {3}
    assert kept_cpus({"cpus": [], "keeps_to": [1, 0]}) == {0, 1}
    assert kept_cpus({"keeps_to": "all"}) == kept_cpus({}) == frozenset()


def test_only_a_shared_host_is_listed_in_groups() -> None:
    track = track_of("host", columns({0: 90, 1: 10, 2: 30}))
    assert track is not None
    grouped = _grouped(track, frozenset({0}))
    assert grouped.values["bound-user"] == pytest.approx([0.9] * 5)
    assert grouped.values["others-iowait"] == pytest.approx([0.8] * 5)
    assert _grouped(track, frozenset()) is track
    assert _grouped(track, frozenset({0, 1, 2})) is track
    slave = track_of("slave-1", columns({0: 90, 1: 10}))
    assert slave is not None and _grouped(slave, frozenset({0})) is slave


def test_the_queue_is_how_many_requests_are_under_way() -> None:
    disk = {f"disk.vda.{name}": STEPS * 0 for name in ("sectors_read", "sectors_written")}
    disk |= {"disk.vda.io_ms": STEPS * 1000, "disk.vda.weighted_ms": STEPS * 3500}
    track = track_of("host", {"time_ns": STEPS * 1e9, **disk})
    assert track is not None
    assert track.mean("disk-queue") == pytest.approx(3.5)


def watched(arm: str, block: int, *, level: float) -> Monitor:
    times = tuple(float(second) for second in range(1, 11))
    # Nothing before second 4, which is when the step begins.
    values = tuple(level if time > 4 else 0.0 for time in times)
    cpu = {"cpu-user": values, "cpu-system": (0.1,) * 10, "cpu-iowait": (0.5,) * 10}
    tracks = (
        CounterTrack("subject", times, {**cpu, "cpu-user": (0.0,) * 10}),
        CounterTrack("slave-1", times, cpu),
        CounterTrack("slave-2", times, cpu),
        CounterTrack("host", times, {"disk-read": tuple(1e6 * value for value in values)}),
    )
    phases = (Phase("read map", 4.0, 10.0), Phase("write map", 0.0, 4.0))
    return Monitor("c", block, arm, "two", "dfsio", "{}", False, tracks, phases)


def test_counters_of_a_step_are_those_of_its_phases_and_of_slaves_alone() -> None:
    one = watched("kvm", 1, level=0.6)
    assert value_of(one, "cpu-used", "machines", "read") == pytest.approx(0.7)
    assert value_of(one, "cpu-used", "machines", "write") == pytest.approx(0.1)
    assert value_of(one, "disk-read", "host", "read") == pytest.approx(6e5)
    assert value_of(one, "disk-read", "machines", "read") is None
    assert value_of(one, "cpu-used", "machines", "sort") is None


def test_host_figures_cover_all_hosts_each_with_its_own_cpus() -> None:
    one = watched("kvm", 1, level=0.6)
    further = CounterTrack("host-h2", one.hosts[0].time_s, {"disk-read": (0.0,) * 10})
    both = replace(one, tracks=(further, *one.tracks))
    assert [track.role for track in both.hosts] == ["host", "host-h2"]
    assert value_of(both, "disk-read", "host", "read") == pytest.approx(3e5)
    assert value_of(both, "cpu-used", "machines", "read") == pytest.approx(0.7)
    bound = replace(
        both,
        tracks=tuple(
            replace(track_of(role, columns({0: 90, 1: 10})) or further, role=role)
            for role in ("host", "host-h2")
        ),
        bound={"host": frozenset({0}), "host-h2": frozenset({1})},
    )
    rows = [(use.role, use.which, use.numbers) for use in groups_table([bound]).rows]
    assert rows == [
        ("host", "with machines", (0,)),
        ("host", "without", (1,)),
        ("host-h2", "with machines", (1,)),
        ("host-h2", "without", (0,)),
    ]
    figure = monitoring_figure(bound, name="m")
    assert "the host h2" in json.dumps(figure.spec.marks)


def test_over_blocks_there_are_means_with_intervals() -> None:
    order = random.Random(1)
    found = [watched("kvm", block, level=0.6 + order.uniform(-0.01, 0.01)) for block in range(1, 6)]
    (value,) = counter_values([*found], "cpu-used", "machines", "read", 0.95)
    assert value.blocks == 5 and value.ends is not None
    assert value.ends[0] < 0.7 < value.ends[1] and value.ends[1] - value.ends[0] < 0.05
    (alone,) = counter_values(found[:1], "cpu-used", "machines", "read", 0.95)
    assert alone.ends is None


def test_without_cpus_there_is_no_group() -> None:
    assert mean_of_cores(()) == {}
    assert split_by_binding((Core(1, {}),), ()) == ((), (Core(1, {}),))
