"""A cluster's cost in addition to its jobs is read from a run's events, and goals can be missed."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks._runs import CarriedOut, Unmeasured
from benchmarks.cluster_cost import (
    available,
    facts_of,
    memory_goal,
    run_goals,
    spent,
    starts,
    study,
    taking,
    watching,
)
from tare.events import CellFinished, CellStarted, ClusterReady, EventLog, Record, read_events
from tare.run.catalog import build_catalog
from tare.study.reading.load import load_study

WHOLE_S = 100.0


def recorded(folder: Path, *, took_s: float, steps: dict[str, Any]) -> tuple[Record, ...]:
    path = folder / "events.jsonl"
    job = {"job": {"steps": steps, "spent_s": {"caches": 0.4}}}
    with EventLog(path) as log:
        for slaves in (1, 4):
            log.append(
                ClusterReady(
                    machine="m", block=1, arm="bare", scenario="s", took_s=took_s,
                    facts={"slaves": slaves},
                )
            )  # fmt: skip
        log.append(
            CellStarted(
                cell="c", block=1, arm="bare", scenario="s", workload="wordcount", parameters={}
            )
        )
        log.append(CellFinished(cell="c", status="ok", measured_s=99.0, facts=job))
    *before, last = read_events(path)
    ended = last.model_copy(update={"time": before[-1].time + WHOLE_S})
    return (*before, ended)


def test_tares_share_is_the_time_outside_a_jobs_steps(tmp_path: Path) -> None:
    steps: dict[str, Any] = {"put": {"took_s": 20.0}, "count": {"took_s": 79.0, "caches": []}}
    run = CarriedOut(0.0, 1.0, recorded(tmp_path, took_s=12.0, steps=steps))
    (cell,) = spent(run.records)
    assert (cell.clients, cell.scripts, cell.caches) == (79.0, 20.0, 0.4)
    # The time around the measurement counts too, so the sum is at least the cell's time.
    assert cell.tares == pytest.approx(1.0, abs=1e-5)
    assert cell.share == pytest.approx(0.01, abs=1e-7)
    assert starts(run.records) == {1: [12.0], 4: [12.0]}
    assert all(goal.met for goal in run_goals(run))
    facts = {fact.name: fact.value for fact in facts_of(run)}
    assert facts["from how long a cell on that is at most 2 %"] == pytest.approx(50.0, abs=1e-3)


def test_a_cell_that_takes_too_long_misses_its_goal(tmp_path: Path) -> None:
    records = recorded(tmp_path, took_s=46.0, steps={"count": {"took_s": 90.0, "caches": []}})
    assert [goal.met for goal in run_goals(CarriedOut(0.0, 1.0, records))] == [False] * 3


def test_a_run_that_failed_measures_nothing(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with EventLog(path) as log:
        log.append(CellFinished(cell="c", status="failed", reason="lost", measured_s=1.0))
    with pytest.raises(Unmeasured):
        run_goals(CarriedOut(0.0, 1.0, tuple(read_events(path))))


def test_memory_that_was_taken_meanwhile_is_reported_after_its_release() -> None:
    gib, dipped = 1 << 30, threading.Event()
    left = iter([16 * gib, 7 * gib, 15 * gib])

    def look() -> int:
        found = next(left, None)
        if found is None:
            dipped.set()
        return 15 * gib if found is None else found

    with taking(look, 0.001) as taken:
        assert dipped.wait(20)
    goal = memory_goal(taken)
    assert (goal.found, goal.met) == (9.0, False)
    with taking(lambda: 16 * gib, 0.001) as none:
        pass
    assert memory_goal(none).met and none.most == 0


def test_swapped_memory_is_not_available(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    text = "MemTotal:   9 kB\nMemAvailable:   4 kB\nSwapTotal: 9 kB\nSwapFree:   2 kB\n"
    meminfo.write_text(text)
    assert available(meminfo) == 6 << 10
    meminfo.write_text(text.replace("MemAvailable", "MemFree"))
    with pytest.raises(Unmeasured, match="lacks"):
        available(meminfo)
    assert available() > 0


def test_the_study_of_the_benchmark_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "cluster-cost.yaml"
    path.write_text(yaml.safe_dump(study((1, 4), 2)))
    found = load_study(path, build_catalog())
    assert {
        name: each.cluster.slaves for name, each in found.scenarios.items() if each.cluster
    } == {
        "slaves-1": 1,
        "slaves-4": 4,
    }


async def test_sampling_takes_some_time_and_next_to_none(agent_program: Path) -> None:
    assert 0 < await watching(agent_program, 1.2) < 0.5
