"""Spark's settings on a cluster: everything that a result depends on, within its memory."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tare.errors import InputError
from tare.workloads.mapreduce.configuration import DATA, ClusterLayout
from tare.workloads.mapreduce.sizes import MIB, of_master, sizes_for
from tare.workloads.mapreduce.spark import (
    BEYOND_EXECUTOR,
    BUFFERS_MIB,
    DRIVER_HEAP,
    LEAST_HEAP,
    LEAST_MEMORY,
    executors_for,
    settings,
    submission,
)
from tare.workloads.mapreduce.tables import Tables
from workloads.workload_kinds import JOBS

ENGINES = ("terasort", "wordcount", "aggregate")


def layout(**changes: Any) -> ClusterLayout:
    made = ClusterLayout(
        addresses={"master": "10.0.0.3", "slave-1": "10.0.0.4", "slave-2": "10.0.0.5"},
        slaves=("slave-1", "slave-2"),
        sizes=sizes_for(LEAST_MEMORY, 2),
        processors=1,
        replication=3,
        block=32 << 20,
        sync=False,
        slow_start=1.0,
    )
    return replace(made, **changes)


@given(st.integers(1 << 30, 1 << 36), st.integers(1, 16), st.integers(1, 16))
def test_an_executor_takes_what_a_slaves_tasks_would(memory: int, tasks: int, slaves: int) -> None:
    try:
        sizes = sizes_for(memory, tasks)
        executors = executors_for(slaves, sizes)
    except InputError as error:
        assert "memory" in f"{error.message} {error.hint}"
        return
    assert executors.heap >= LEAST_HEAP
    # The application master has room next to it, and a second executor has none.
    free = sizes.node - sizes.manager_container
    assert executors.heap + executors.beyond == free
    assert (executors.count, executors.cores) == (slaves, tasks)


def test_the_least_memory_is_enough_for_slaves_and_for_the_master() -> None:
    assert executors_for(1, sizes_for(LEAST_MEMORY, 2)).heap >= LEAST_HEAP
    client = sizes_for(LEAST_MEMORY, 2).client
    assert of_master() + (DRIVER_HEAP - client + BEYOND_EXECUTOR) * MIB <= LEAST_MEMORY
    with pytest.raises(InputError, match="executor") as caught:
        executors_for(1, sizes_for(1 << 30, 2))
    assert "memory: 1536MiB" in caught.value.hint


def test_nothing_that_a_result_depends_on_is_left_to_spark() -> None:
    chosen = settings(layout())
    assert chosen["spark.executor.instances"] == "2"
    assert chosen["spark.executor.cores"] == "2"
    off = ("spark.speculation", "spark.dynamicAllocation.enabled", "spark.eventLog.compress")
    assert {chosen[name] for name in off} == {"false"}
    assert chosen["spark.eventLog.enabled"] == "true"
    assert chosen["spark.task.maxFailures"] == "1"
    # Otherwise no executor starts: Spark compares the two.
    buffers = f"-XX:MaxDirectMemorySize={BUFFERS_MIB}m"
    assert buffers in chosen["spark.executor.extraJavaOptions"]
    block = chosen["spark.network.maxRemoteBlockSizeFetchToMem"]
    assert int(block.removesuffix("m")) < BUFFERS_MIB
    for name in ("spark.executor.extraJavaOptions", "spark.yarn.am.extraJavaOptions"):
        assert "-XX:+UseSerialGC" in chosen[name]
        assert "-XX:ActiveProcessorCount=1" in chosen[name]
        # Spark refuses to start where it is given the heap among these.
        assert "-Xmx" not in chosen[name]


def test_job_is_submitted_with_its_settings() -> None:
    argv = submission(layout(), "tare.spark.WordCount", ["/in", "/out", "2"], {"spark.x": True})
    assert argv[-3:] == ["/in", "/out", "2"]
    assert "spark.x=true" in argv
    assert argv.count(f"-Xmx{DRIVER_HEAP}m") == 1
    before = argv.index("org.apache.spark.deploy.SparkSubmit")
    assert not any(word.startswith("-XX:MaxMetaspaceSize=128m") for word in argv[:before])


@pytest.mark.parametrize("name", ENGINES)
def test_the_engine_is_a_parameter_and_the_checks_are_the_same(name: str) -> None:
    workload = JOBS[name]
    by = {
        engine: workload.parameters.model_validate({"engine": engine, "reduces": 3})
        for engine in ("mapreduce", "spark")
    }
    jobs = {engine: workload.job(given) for engine, given in by.items()}
    ours, theirs = jobs["mapreduce"], jobs["spark"]
    differing = [a.name for a, b in zip(ours.steps, theirs.steps, strict=True) if a != b]
    (step,) = differing
    (spark,) = (each for each in theirs.steps if each.engine == "spark")
    assert spark.name == step and spark.measured and spark.cold
    assert "toolbox-analytics" in workload.needs_for(by["spark"])
    assert workload.memory_for(by["spark"]) == LEAST_MEMORY > workload.memory_for(by["mapreduce"])
    names = {metric.name for metric in workload.metrics_for(by["spark"])}
    assert f"{step}-map" in names and f"{step}-shuffle" not in names
    with pytest.raises(ValidationError, match="engine"):
        workload.parameters.model_validate({"engine": "tez"})


def test_copies_and_sync_of_a_sorted_output_reach_spark() -> None:
    given = JOBS["terasort"].parameters.model_validate(
        {"engine": "spark", "output_replication": 2, "final_sync": False, "replication": 3}
    )
    job = JOBS["terasort"].job(given)
    (step,) = (each for each in job.steps if each.engine == "spark")
    assert step.properties["spark.hadoop.dfs.replication"] == 2
    assert step.properties["spark.hadoop.mapreduce.terasort.final.sync"] is False


def test_shuffle_partitions_and_adaptive_execution_are_stated() -> None:
    given = JOBS["join"].parameters.model_validate({"reduces": 5, "adaptive": False})
    job = JOBS["join"].job(given)
    (step,) = (each for each in job.steps if each.engine == "spark")
    assert step.properties["spark.sql.shuffle.partitions"] == 5
    assert step.properties["spark.sql.adaptive.enabled"] is False


def test_a_wrong_answer_is_refused() -> None:
    for name in ("aggregate", "join"):
        job = JOBS[name].job(JOBS[name].parameters())
        right, wrong = ({"output": f"{letter * 64}  -\n"} for letter in "ab")
        assert job.check({"expected": right, "counted": right}) == ""
        assert "answered wrongly" in job.check({"expected": right, "counted": wrong})
        assert "missing" in job.check({"expected": right, "counted": {"output": ""}})


def test_sums_by_awk_are_those_of_another_computation(tmp_path: Path) -> None:
    if shutil.which("mawk") is None:
        pytest.skip("the toolbox's awk is mawk")
    tables = Tables(rows=500, files=2, sources=7, pages=11)
    sums: dict[str, int] = {}
    ranks: dict[str, int] = {}
    for seed in (1, 2):
        state = (seed * 104729) % 2147483646 + 1
        drawn = []
        for _ in range(1 + 3 * 500):
            state = state * 16807 % 2147483647
            drawn.append(state)
        for row in range(500):
            source, page, cents = drawn[1 + 3 * row : 4 + 3 * row]
            name = f"s{source % 7}"
            sums[name] = sums.get(name, 0) + cents % 10000
            ranks[name] = ranks.get(name, 0) + page % 11 * 7919 % 1000
    lines = [f"{name}\t{amount}\n" for name, amount in sums.items()]
    assert printed(tables.sums, tmp_path) == of_lines(lines)
    joined = [f"{name}\t{amount}\t{ranks[name]}\n" for name, amount in sums.items()]
    assert printed(tables.joined, tmp_path) == of_lines(joined)


def printed(script: str, folder: Path) -> str:
    """Return the sum that a script prints, with the toolbox's awk and a folder of its own."""
    here = script.replace("awk ", "mawk ").replace(DATA, str(folder))
    return subprocess.run(["sh", "-c", here], capture_output=True, text=True, check=True).stdout[
        :64
    ]


def of_lines(lines: list[str]) -> str:
    return hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()
