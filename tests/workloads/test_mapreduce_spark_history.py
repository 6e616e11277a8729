"""Spark's event log: phases in order, counters, delays, and what was lost."""

from __future__ import annotations

import bz2
import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.errors import MachineFault
from tare.run.topologies.cluster.spark import unpacked
from tare.workloads.mapreduce.spark_history import (
    PHASES,
    counters_of,
    events_in,
    job_of_log,
    lost_tasks,
    scheduler_delay_s,
    spans_of,
)

KINDS = {"map": "ShuffleMapTask", "reduce": "ResultTask"}


def task(phase: str, launch: int, finish: int, reason: str = "Success") -> dict[str, Any]:
    return {
        "Event": "SparkListenerTaskEnd",
        "Stage ID": 0 if phase == "map" else 1,
        "Task Type": KINDS[phase],
        "Task End Reason": {"Reason": reason},
        "Task Info": {
            "Task ID": 7,
            "Host": "slave-1",
            "Launch Time": launch,
            "Finish Time": finish,
            "Getting Result Time": 0,
        },
        "Task Metrics": {
            "Executor Deserialize Time": 100,
            "Executor Run Time": 500,
            "Executor CPU Time": 400_000_000,
            "Result Serialization Time": 1,
            "JVM GC Time": 30,
            "Memory Bytes Spilled": 9000,
            "Disk Bytes Spilled": 1000,
            "Shuffle Read Metrics": {"Remote Bytes Read": 5, "Local Bytes Read": 6},
            "Shuffle Write Metrics": {"Shuffle Bytes Written": 70},
            "Input Metrics": {"Bytes Read": 800},
            "Output Metrics": {"Bytes Written": 900},
        },
    }


def log(*events: dict[str, Any]) -> str:
    start = {
        "Event": "SparkListenerApplicationStart",
        "App Name": "wordcount",
        "App ID": "application_1_0002",
        "Timestamp": 1000,
    }
    end = {"Event": "SparkListenerApplicationEnd", "Timestamp": 9500}
    return "\n".join(map(json.dumps, (start, *events, end)))


TIMES = st.tuples(st.integers(0, 10**13), st.integers(0, 10**13)).map(sorted)


@given(st.lists(TIMES, max_size=4), st.lists(TIMES, max_size=4))
def test_phases_follow_one_another(maps: list[list[int]], reduces: list[list[int]]) -> None:
    tasks = [task("map", launch, finish) for launch, finish in maps]
    tasks += [task("reduce", launch, finish) for launch, finish in reduces]
    spans = spans_of(tasks)
    wanted = zip(PHASES, (maps, reduces), strict=True)
    assert [span.name for span in spans] == [name for name, times in wanted if times]
    for before, after in pairwise(spans):
        assert before.begin_ms <= before.end_ms <= after.begin_ms <= after.end_ms
    if maps:
        assert spans[0].end_ms == max(end for _, end in maps)


def test_log_has_what_the_history_of_mapreduce_has() -> None:
    job = job_of_log(
        log(
            task("map", 3000, 4000),
            task("map", 3100, 5000),
            task("reduce", 5000, 9000),
        )
    )
    assert job["id"] == "application_1_0002"
    assert (job["maps"], job["reduces"], job["stages"], job["state"]) == (2, 1, 2, "SUCCEEDED")
    assert job["delay_s"] == 2.0
    assert job["phases"] == {"map": 2.0, "reduce": 4.0}
    assert job["spans"] == [["map", 3000, 5000], ["reduce", 5000, 9000]]
    assert job["lost"] == ()
    assert job["counters"] == {
        "gc_ms": 90,
        "cpu_ms": 1200,
        "shuffled_bytes": 33,
        "local_written_bytes": 3210,
        "disk_spilled_bytes": 3000,
        "input_bytes": 2400,
        "output_bytes": 2700,
    }


def test_a_task_that_failed_is_named_and_counts_for_nothing() -> None:
    failed = task("reduce", 5000, 9000, "ExceptionFailure")
    failed["Task End Reason"] |= {
        "Class Name": "java.io.IOException",
        "Description": "No space left on device\n at once",
    }
    job = job_of_log(log(task("map", 3000, 4000), failed))
    assert job["state"] == "FAILED"
    assert job["reduces"] == 0
    reason = "task 7 on slave-1: ExceptionFailure: java.io.IOException No space left on device"
    assert job["lost"] == (reason,)
    # One that never ran has no more than its reason.
    assert lost_tasks([{"Event": "SparkListenerTaskEnd"}]) == ("task ? on ?: ?",)


def test_the_delay_of_scheduling_is_neither_work_nor_its_result() -> None:
    one = task("map", 1000, 2000)
    assert scheduler_delay_s(one) == pytest.approx(0.399)
    one["Task Info"]["Getting Result Time"] = 1800
    assert scheduler_delay_s(one) == pytest.approx(0.199)
    assert scheduler_delay_s(task("map", 1000, 1200)) == 0.0


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '{"Event": 5}', "nothing", log(), log(task("map", 1, 2))[1:]]
)
def test_a_log_without_a_job_is_refused(text: str) -> None:
    with pytest.raises((KeyError, ValueError)):
        job_of_log(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)


@pytest.mark.fuzz
@given(st.text() | st.lists(JSON, max_size=4).map(lambda all_: "\n".join(map(json.dumps, all_))))
def test_any_text_can_be_searched_for_events(text: str) -> None:
    assert all("Event" in event for event in events_in(text))


@pytest.mark.fuzz
@given(st.data())
def test_a_log_with_anything_in_any_place_is_a_job_or_an_error(data: st.DataObject) -> None:
    tasks = task("map", 3000, 4000)
    place = data.draw(st.sampled_from([tasks, *(v for v in tasks.values() if isinstance(v, dict))]))
    key = data.draw(st.sampled_from(sorted(place)))
    if data.draw(st.booleans()):
        del place[key]
    else:
        place[key] = data.draw(JSON)
    try:
        found = job_of_log(log(tasks))
    except (LookupError, TypeError, ValueError, OverflowError):
        return
    assert set(found["phases"]) == set(PHASES)


@given(st.lists(st.sampled_from(["map", "reduce"]), max_size=5))
def test_counters_add_up_over_tasks(phases: list[str]) -> None:
    tasks = [task(phase, 1, 2) for phase in phases]
    assert counters_of(tasks)["cpu_ms"] == 400 * len(phases)


@given(st.text())
def test_packed_data_is_unpacked_unchanged(text: str) -> None:
    assert unpacked(bz2.compress(text.encode())) == text


@pytest.mark.fuzz
@given(st.binary(max_size=200))
def test_damaged_log_is_reported(damaged: bytes) -> None:
    whole = bz2.compress(b"a log")
    for packed in (damaged, whole[:-4], whole[:5] + damaged + whole[6:]):
        try:
            assert unpacked(packed) in ("a log", "")
        except MachineFault as fault:
            assert "event log" in str(fault)
