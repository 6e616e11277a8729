"""The history server's answers: phases in order, whatever the tasks' times; counters; delays."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.workloads.mapreduce.history import (
    PHASES,
    counters_of,
    delay_of,
    jobs_of,
    lost_attempts,
    merge_records,
    spans_of,
    task_of,
)


def attempt(kind: str, number: int, *times: int, state: str = "SUCCEEDED") -> dict[str, Any]:
    letter = kind[0].lower()
    fields: dict[str, Any] = {
        "id": f"attempt_1_2_{letter}_{number:06d}_0",
        "type": kind,
        "state": state,
        "startTime": times[0],
        "finishTime": times[-1],
    }
    if kind == "REDUCE":
        fields |= {"shuffleFinishTime": times[1], "mergeFinishTime": times[2]}
    return fields


TIMES = st.integers(0, 10**13)
MAPS = st.lists(st.tuples(TIMES, TIMES).map(sorted), max_size=4)
REDUCES = st.lists(st.tuples(TIMES, TIMES, TIMES, TIMES).map(sorted), max_size=4)


@given(MAPS, REDUCES)
def test_phases_follow_one_another(maps: list[list[int]], reduces: list[list[int]]) -> None:
    tasks = [attempt("MAP", number, *times) for number, times in enumerate(maps)]
    tasks += [attempt("REDUCE", number, *times) for number, times in enumerate(reduces)]
    spans = spans_of(tasks)
    names = [*(PHASES[:1] if maps else ()), *(PHASES[1:] if reduces else ())]
    assert [span.name for span in spans] == names
    for before, after in pairwise(spans):
        assert before.begin_ms <= before.end_ms <= after.begin_ms <= after.end_ms
    if maps and not reduces:
        assert spans[0].end_ms == max(end for _, end in maps)


def test_phases_end_with_the_last_task_in_them() -> None:
    tasks = [
        attempt("MAP", 0, 1000, 2000),
        attempt("MAP", 1, 1500, 4000),
        attempt("MAP", 2, 1500, 9000, state="KILLED"),
        attempt("REDUCE", 0, 4000, 5000, 5500, 7000),
        attempt("REDUCE", 1, 4100, 6000, 6200, 6500),
    ]
    found = {span.name: (span.begin_ms, span.end_ms) for span in spans_of(tasks)}
    assert found == {
        "map": (1000, 4000),
        "shuffle": (4000, 6000),
        "sort": (6000, 6200),
        "reduce": (6200, 7000),
    }
    assert lost_attempts(tasks)[0].startswith("attempt_1_2_m_000002_0 on ?: KILLED")


@pytest.mark.parametrize("broken", [{}, {"state": "SUCCEEDED"}, {"state": "SUCCEEDED", "type": 1}])
def test_tasks_without_times_are_an_error_or_ignored(broken: dict[str, Any]) -> None:
    if broken.get("type") == 1:
        assert spans_of([broken]) == ()
    else:
        with pytest.raises(KeyError):
            spans_of([broken])


def test_every_listed_job_counts_once() -> None:
    output = "Running job: job_1_0001\nJob job_1_0001 completed\nRunning job: job_1_0002"
    assert jobs_of(output) == ("job_1_0001", "job_1_0002")
    assert jobs_of("nothing") == ()


@pytest.mark.fuzz
@given(st.text())
def test_any_output_can_be_looked_through(output: str) -> None:
    assert isinstance(jobs_of(output), tuple)


def one_job(number: int, spilled: int, map_s: float) -> dict[str, Any]:
    begin = 1000 * number
    return {
        "id": f"job_1_{number:04d}",
        "state": "SUCCEEDED",
        "submitted_ms": begin,
        "started_ms": begin + 1,
        "finished_ms": begin + 900,
        "maps": 2,
        "reduces": None,
        "counters": {"spilled": spilled, **({"gc_ms": 5} if number == 1 else {})},
        "delay_s": 0.25,
        "phases": {"map": map_s, "reduce": 1.0},
        "spans": [["map", begin + 2, begin + 800]],
        "lost": (),
    }


@given(st.lists(st.tuples(st.integers(0, 10**9), st.floats(0, 1e6)), min_size=1, max_size=5))
def test_consecutive_jobs_are_reported_as_their_sum(given: list[tuple[int, float]]) -> None:
    jobs = [one_job(number, *values) for number, values in enumerate(given, start=1)]
    whole = merge_records(jobs)
    assert whole["jobs"] == [job["id"] for job in jobs] and whole["id"] == jobs[-1]["id"]
    assert whole["counters"]["spilled"] == sum(spilled for spilled, _ in given)
    # Hadoop leaves out what it never counted, but one job has it nevertheless.
    assert whole["counters"]["gc_ms"] == 5
    assert whole["phases"]["map"] == pytest.approx(sum(map_s for _, map_s in given))
    assert whole["delay_s"] == 0.25 * len(jobs)
    assert (whole["submitted_ms"], whole["finished_ms"]) == (1000, 1000 * len(jobs) + 900)
    assert (whole["maps"], whole["reduces"]) == (2 * len(jobs), 0)
    assert [begin for _, begin, _ in whole["spans"]] == sorted(b for _, b, _ in whole["spans"])


def test_counters_are_added_over_groups() -> None:
    answer = {
        "jobCounters": {
            "counterGroup": [
                {"counter": [{"name": "GC_TIME_MILLIS", "totalCounterValue": 7}]},
                {"counter": [{"name": "GC_TIME_MILLIS", "totalCounterValue": 5}]},
                {"counter": [{"name": "ELSE", "totalCounterValue": 5}]},
                {},
            ]
        }
    }
    assert counters_of(answer) == {"gc_ms": 12}


def test_the_delay_is_from_submission_to_the_first_task() -> None:
    spans = spans_of([attempt("MAP", 0, 1500, 2000), attempt("MAP", 1, 1600, 2000)])
    assert delay_of({"submitTime": 1000}, spans) == 0.5
    # Clocks of two machines may differ by more than that.
    assert delay_of({"submitTime": 1600}, spans) == 0.0
    with pytest.raises(ValueError, match="no task"):
        delay_of({"submitTime": 1000}, ())


def test_time_that_hadoop_could_not_count_is_not_zero() -> None:
    counters = [{"name": "CPU_MILLISECONDS", "totalCounterValue": 0}]
    assert counters_of({"jobCounters": {"counterGroup": [{"counter": counters}]}}) == {}


def test_an_attempt_is_one_at_a_task() -> None:
    assert task_of("attempt_1_2_r_000003_1") == "task_1_2_r_000003"
