"""Hive answers the same questions as other engines, is checked alike, and gets all settings."""

from __future__ import annotations

import pytest

from tare.workloads import WORKLOADS
from tare.workloads.mapreduce.configuration import DATA, mapred
from tare.workloads.mapreduce.daemons import jvm
from tare.workloads.mapreduce.hive import ARCHIVES, settings
from tare.workloads.mapreduce.job import JobStep
from tare.workloads.mapreduce.spark import LEAST_MEMORY
from workloads.test_mapreduce_configuration import layout
from workloads.workload_kinds import JOBS

QUERIES = ("aggregate", "join")


def steps_of(name: str, **given: object) -> dict[str, JobStep]:
    workload = JOBS[name]
    job = workload.job(workload.parameters.model_validate(given))
    return {step.name: step for step in job.steps}


@pytest.mark.parametrize("name", QUERIES)
def test_hive_is_asked_what_spark_is_and_checked_by_the_same_programs(name: str) -> None:
    ours, spark = steps_of(name, engine="hive"), steps_of(name, engine="spark")
    for step in ("put", "expected", "counted"):
        assert ours[step] == spark[step]
    question = spark["query"].arguments[1]
    assert (
        ours["query"].arguments[-1] == f"INSERT OVERWRITE DIRECTORY '/tare/{name}/out' {question}"
    )
    # The declaration of Hive's tables is not a part of what is measured.
    assert ours["query"].measured and ours["query"].cold
    assert not ours["tables"].measured and ours["tables"].alone
    made = ours["tables"].arguments[-1]
    assert made.count("CREATE EXTERNAL TABLE") == {"aggregate": 1, "join": 2}[name]


@pytest.mark.parametrize("name", QUERIES)
def test_history_has_what_that_of_mapreduce_has(name: str) -> None:
    workload = WORKLOADS[name]
    given = workload.parameters.model_validate({"engine": "hive"})
    names = {metric.name for metric in workload.metrics_for(given)}
    assert {"query-time", "query-map", "query-shuffle", "query-sort", "query-reduce"} <= names
    assert "toolbox-analytics" in workload.needs_for(given)
    assert workload.memory_for(given) == LEAST_MEMORY


def test_reduces_and_copies_reach_hive() -> None:
    query = steps_of("join", engine="hive", reduces=7, replication=2)["query"]
    assert "mapreduce.job.reduces=7" in query.arguments
    assert dict(query.properties) == {"dfs.replication": 2}


def test_one_cell_leaves_nothing_for_the_next() -> None:
    steps = steps_of("aggregate", engine="hive")
    assert f"rm -rf {DATA}/hive" in steps["forget"].script
    assert list(steps).index("forget") < list(steps).index("tables")
    for name, value in settings("/tare/x", 1).items():
        if name.endswith((".dir", "scratchdir", "ConnectionURL", "location")):
            assert f"{DATA}/hive" in str(value) or str(value).startswith("/tare/x/")


def test_only_jvms_of_hive_open_java_internals() -> None:
    opened = "--add-opens=java.base/java.util.concurrent.atomic=ALL-UNNAMED"
    assert opened not in jvm(96, 1, brief=True)
    # Plans are packed in the client and unpacked in the tasks, both by reflection.
    for archives in (ARCHIVES, ""):
        assert (opened in mapred(layout(), archives)["mapreduce.map.java.opts"]) == bool(archives)
