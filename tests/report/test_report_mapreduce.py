"""The limits of a job, phase by phase: planted caps are named in the phases that they limited."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from report.report_jobs import DROPPED, SLOWER, Caches, write_jobs_run
from tare.analysis import load_run
from tare.analysis.effects.compare import compare
from tare.analysis.model import Effect, Key
from tare.analysis.topics.cores import STATES, Core, mean_of_cores
from tare.analysis.topics.job_phases import Limit, PhaseUse, limit_of, use_of
from tare.analysis.topics.monitoring import CounterTrack, Monitor, Phase
from tare.events.metric import Metric
from tare.report.figures.monitoring import LEFT, WIDE, monitoring_figure
from tare.report.figures.palette import MARGIN
from tare.report.page.data import ReportData
from tare.report.sections import mapreduce
from tare.report.sections.mapreduce import (
    MapReduce,
    PhaseBar,
    cross_checks,
    finding,
    phase_figures,
    phases_figure,
    uses_table,
)

FEW = "(too few blocks agree to establish it)"
SHARES = st.none() | st.floats(0, 1)
PHASES = (
    Phase("sort map", 1.0, 11.0),
    Phase("sort shuffle", 11.0, 11.5),
    Phase("sort reduce", 12.0, 22.0),
)


def track(role: str, order: random.Random, *, cpu_until: float, disk_from: float) -> CounterTrack:
    """Return a slave whose CPU is full until a second, and whose disk is full from another."""
    time_s = tuple(float(second) for second in range(1, 25))
    busy = [order.uniform(-0.03, 0.03) + (0.95 if end <= cpu_until else 0.2) for end in time_s]
    disk = [order.uniform(-0.03, 0.03) + (0.97 if end > disk_from else 0.1) for end in time_s]
    return CounterTrack(
        role,
        time_s,
        {
            "cpu-user": tuple(0.8 * share for share in busy),
            "cpu-system": tuple(0.2 * share for share in busy),
            "cpu-iowait": tuple(0.9 * (1 - used) for used in busy),
            "cpu-steal": tuple(0.0 for _ in busy),
            "disk-busy": tuple(min(1.0, share) for share in disk),
        },
    )


def monitor(arm: str = "kvm", **caps: float) -> Monitor:
    order = random.Random(arm)
    tracks = tuple(track(role, order, **caps) for role in ("slave-1", "slave-2"))
    # The master only waits, and must not be taken for a slave.
    idle = track("subject", order, cpu_until=0.0, disk_from=99.0)
    return Monitor("c", 1, arm, "two", "terasort", "{}", False, (idle, *tracks), PHASES)


def uses(watched: Monitor) -> list[PhaseUse]:
    return [use_of(watched, phase) for phase in watched.phases]


def test_a_planted_cpu_cap_and_a_planted_disk_cap_are_named_in_their_phases() -> None:
    found = uses(monitor(cpu_until=11.0, disk_from=12.0))
    assert [(use.phase, use.limit) for use in found] == [
        ("map", "CPU"),
        # Half a second has too few samples to say anything.
        ("shuffle", ""),
        ("reduce", "disk"),
    ]
    assert finding(found) == (f"kvm seems limited in sort map by CPU; sort reduce by disk {FEW}.")
    blocks = [replace(use, block=block) for use in found for block in range(1, 8)]
    assert finding(blocks) == "kvm is limited in sort map by CPU; sort reduce by disk."


def test_a_process_bound_to_one_cpu_of_its_host_is_limited_by_that_one() -> None:
    time_s = tuple(map(float, range(1, 25)))
    idle = dict.fromkeys(STATES, (0.0,) * 24)
    full = {**idle, "user": (0.97,) * 24}
    cores = tuple(Core(number, full if number == 3 else idle) for number in range(4))
    whole = {f"cpu-{state}": values for state, values in mean_of_cores(cores).items()}
    slave = CounterTrack("slave-1", time_s, whole, cores)
    watched = replace(monitor(cpu_until=0.0, disk_from=99.0), tracks=(slave,))
    assert use_of(watched, PHASES[0]).limit == "nothing of these"
    bound = replace(watched, own={"slave-1": frozenset({3})})
    assert use_of(bound, PHASES[0]).limit == "CPU"
    # A machine of its own numbers its CPUs itself, so where they are on the host says nothing.
    placed = replace(watched, bound={"host": frozenset({3})})
    assert use_of(placed, PHASES[0]).limit == "nothing of these"


def test_arms_are_distinguished() -> None:
    found = uses(monitor("kvm", cpu_until=24.0, disk_from=99.0))
    found += uses(monitor("xen", cpu_until=0.0, disk_from=0.0))
    assert finding(found) == (
        f"kvm seems limited in sort map and sort reduce by CPU {FEW}. "
        f"xen seems limited in sort map and sort reduce by disk {FEW}."
    )


def test_one_block_of_three_decides_nothing() -> None:
    (use, *_) = uses(monitor(cpu_until=24.0, disk_from=99.0))
    half = [use, replace(use, block=2, limit="disk")]
    assert "No phase" in finding(half)
    assert finding([*half, replace(use, block=3)]) == (
        f"kvm seems limited in sort map by CPU {FEW}."
    )


def test_a_phase_close_to_a_limit_is_rarely_called_limited() -> None:
    full = uses(monitor(cpu_until=24.0, disk_from=99.0))[0]
    rng = random.Random(1)
    for blocks in (1, 5, 8, 20):
        # At a true 0.83, 23 % of blocks with noise of 3 % are measured at 0.85 or more.
        wrong = 0
        for _ in range(400):
            shares = [rng.gauss(0.83, 0.027) for _ in range(blocks)]
            limits = [limit_of(share, 0.0, 0.0, 0.0) for share in shares]
            found = [replace(full, block=block, limit=limit) for block, limit in enumerate(limits)]
            wrong += "is limited" in finding(found)
        assert wrong <= 0.05 * 400
    assert "is limited in sort map by CPU" in finding(
        [replace(full, block=block) for block in range(5)]
    )


def test_limits_that_differ_between_numbers_of_slaves_are_reported_for_each() -> None:
    full = uses(monitor(cpu_until=24.0, disk_from=99.0))[0]
    # As li2013 found: one slave waits for its CPU, and four for the disk that they share.
    limits: dict[str, Limit] = {"one": "CPU", "three": "disk", "four": "disk"}
    found = [
        replace(full, block=block, scenario=scenario, limit=limit)
        for block in (1, 2)
        for scenario, limit in limits.items()
    ]
    words = f"kvm seems limited in sort map (one) by CPU; sort map (three and four) by disk {FEW}."
    assert finding(found) == words
    # Scenarios that agree need no names, and one without a limit is left out.
    assert finding([each for each in found if each.limit == "disk"]) == (
        f"kvm seems limited in sort map by disk {FEW}."
    )
    split = [replace(full, block=block, scenario="two") for block in (1, 2)]
    split[1] = replace(split[1], limit="disk")
    assert finding([*found, *split]) == words


def test_limits_that_differ_between_jobs_and_engines_are_reported_for_each() -> None:
    full = replace(uses(monitor(cpu_until=24.0, disk_from=99.0))[0], step="query")
    works: list[tuple[str, str, Limit]] = [
        ("aggregate", "hive", "CPU"),
        ("aggregate", "spark", "disk"),
        ("join", "hive", "CPU"),
    ]
    found = [
        replace(full, workload=name, parameters=json.dumps({"engine": engine}), limit=limit)
        for name, engine, limit in works
    ]
    assert finding(found) == (
        "kvm seems limited in query map (aggregate by hive and join by hive) by CPU; "
        f"query map (aggregate by spark) by disk {FEW}."
    )
    # Neither name alone is unique: each is named with its scenario, a few of them.
    many = [replace(full, scenario=f"s{number}", workload="a") for number in range(9)]
    many += [replace(use, workload="b", limit="disk") for use in many]
    many[9] = replace(many[9], limit="CPU")
    assert "(a in s0, a in s1, a in s2, a in s3, a in s4, a in s5 and 4 more) by CPU" in (
        finding(many)
    )


def test_bars_for_which_a_figure_has_no_room_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = load_run(write_jobs_run(tmp_path / "run"))
    (whole,) = phase_figures(compare([run]))
    assert whole.title == "terasort: sort, phase by phase"
    monkeypatch.setattr(mapreduce, "MOST_BARS", 3)
    (cut,) = phase_figures(compare([run]))
    assert cut.title == "terasort: sort, phase by phase, the first 3 of 4 bars"


def test_a_job_without_a_limit_is_reported_as_waiting() -> None:
    idle = replace(uses(monitor(cpu_until=0.0, disk_from=99.0))[0], limit="nothing of these")
    assert finding([idle]).startswith("Neither CPU nor disk seems to limit kvm in sort map")
    sure = [replace(idle, block=block) for block in range(5)]
    assert finding(sure).startswith("Neither CPU nor disk limits kvm in sort map")


def effect(metric: str, estimate: float, unit: str = "B/s") -> Effect:
    empty = dict.fromkeys((field.name for field in fields(Effect)), None)
    key = Key("any", "any", "{}", "subject", metric)
    given = {
        "key": key,
        "arm": "kvm",
        "metric": Metric(metric, unit, "higher"),
        "scale": "ratio",
        "estimate": estimate,
    }
    return Effect(**{**empty, **given})  # type: ignore[arg-type]


def test_testdfsio_is_compared_with_the_disk_without_hadoop() -> None:
    found = [effect("written", 0.5), effect("write-throughput", 0.4), effect("read", 0.9)]
    # What jobs wrote is bytes, and no rate of a disk.
    (check,) = cross_checks([*found, effect("written", 7.0, unit="B")])
    assert check == (
        "kvm writes at 0.500× the baseline’s rate without Hadoop (Filebench, one machine alone), "
        "and at 0.400× in TestDFSIO."
    )


def lead_of(folder: Path, caches: Caches | None = None) -> str:
    run = load_run(write_jobs_run(folder / "run", caches))
    found = MapReduce().data(ReportData([run], compare([run])))
    assert found is not None
    return found.lead


def test_dropped_caches_and_few_blocks_are_reported(tmp_path: Path) -> None:
    lead = lead_of(tmp_path)
    sentence = "Page caches of the machines and their hosts were dropped before each measured step."
    assert sentence in lead
    assert lead.endswith("3 blocks are few: all this is preliminary.")


def test_kept_caches_are_reported_with_their_steps(tmp_path: Path) -> None:
    left = "Page caches were kept before terasort sort"
    every = lead_of(tmp_path / "every", {arm: [] for arm in SLOWER})
    assert f"{left}: data that is read there may come from memory." in every
    assert "dropped" not in every
    some = lead_of(tmp_path / "some", {"kvm": []})
    assert f"{left} in some cells: " in some and "were dropped before terasort sort." in some


def test_caches_that_could_not_be_dropped_are_reported_with_arm_and_reason(tmp_path: Path) -> None:
    kept = [{"guest": "not dropped: Read-only file system", "dropped": "nothing"}, DROPPED]
    lead = lead_of(tmp_path, {"kvm": kept})
    assert (
        "On kvm some could not be dropped: a machine's own, not dropped: Read-only file system; "
        "its host's, for a reason that it did not report."
    ) in lead
    assert "On bare" not in lead


@pytest.mark.parametrize(
    ("busy", "iowait", "steal", "disk", "limit"),
    [
        (0.95, 0.0, 0.0, 0.1, "CPU"),
        (0.3, 0.6, 0.0, None, "disk"),
        (0.3, 0.1, 0.0, 0.9, "disk"),
        (0.9, 0.1, 0.0, 0.9, "CPU and disk"),
        (0.6, 0.0, 0.35, 0.0, "CPU that others take"),
        (0.3, 0.1, 0.0, 0.2, "nothing of these"),
        (None, 0.9, 0.9, 0.9, ""),
        # I/O wait is idle time: with it a CPU is not full.
        (0.5, 0.5, 0.0, 0.2, "disk"),
    ],
)
def test_a_limit_is_named_by_its_shares(
    busy: float | None, iowait: float, steal: float, disk: float | None, limit: str
) -> None:
    assert limit_of(busy, iowait, steal, disk) == limit


@given(SHARES, SHARES, SHARES, SHARES)
def test_idle_time_never_counts_as_use(
    busy: float | None, iowait: float | None, steal: float | None, disk: float | None
) -> None:
    limit = limit_of(busy, iowait, steal, disk)
    assert (limit == "") == (busy is None)
    if busy is not None and busy + (steal or 0.0) < 0.85:
        assert "CPU" not in limit


def test_phases_are_shaded_behind_every_panel() -> None:
    watched = monitor(cpu_until=11.0, disk_from=12.0)
    figure = monitoring_figure(watched, name="m")
    assert figure.spec is not None and watched.length_s == 24.0
    ends = Counter(
        (round(mark["x"], 3), round(mark["x2"], 3))
        for mark in figure.spec.marks["rect"]
        if mark["c"] == MARGIN.light
    )
    room = WIDE - LEFT
    at = [tuple(round(LEFT + s / 24 * room, 3) for s in (p.begin_s, p.end_s)) for p in PHASES]
    # One column: of the machines the first slave alone is drawn, since the master only waits.
    assert ends == dict.fromkeys(at, figure.panels)


def test_the_table_has_every_phase_with_its_shares() -> None:
    table = uses_table(uses(monitor(cpu_until=11.0, disk_from=12.0)))
    text = table.csv()
    assert "sort reduce" in text and "disk" in text
    assert len(table.rows) == len(PHASES)


def test_bars_tell_each_phase_and_what_is_in_none() -> None:
    bar = PhaseBar("terasort", "kvm", True, (("map", 3.0), ("reduce", 2.0)), 8.0, (7.0, 9.0))
    figure = phases_figure([bar], name="phases-1", title="terasort: sort, phase by phase")
    assert figure.emulated
    assert "map 3.00 s, reduce 2.00 s of 8.00 s" in figure.description
    drawn = str(figure.spec)
    assert "start and end" in drawn and "shuffle" not in drawn
