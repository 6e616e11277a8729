"""Spark, Mahout and Hive for real: on clusters of bare machines and of containers, verified."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from run.run_clusters import (
    NEEDS,
    assert_nothing_is_left,
    run_job,
    this_host,
    tiny_cluster,
    written,
)
from run.run_driving import of_type, tare
from tare.platforms.contract import Shape
from tare.workloads.mapreduce.job import JobStep
from workloads.workload_kinds import JOBS

pytestmark = NEEDS
STUDY = """
study: engines
baseline: bare
blocks: {least: 2, most: 2}
shape: {vcpus: 1, memory: 1536MiB, disk: 2GiB}
arms:
  bare: {platform: bare}
  oci: {platform: oci}
scenarios:
  two: {cluster: {slaves: 2}}
workloads:
"""
OF_SPARK = """
  wordcount: {copies: 1, engine: spark}
  terasort: {size: 10MB, engine: spark}
  aggregate: {rows: 100000, files: 2, engine: [mapreduce, spark]}
  join: {rows: 100000, files: 2, engine: spark}
"""
OF_HIVE = """
  aggregate: {rows: 100000, files: 2, engine: hive}
  join: {rows: 100000, files: 2, engine: hive}
"""
OF_MAHOUT = """
  kmeans: {vectors: 2000, dimensions: 3, iterations: 2}
"""
COPIED: dict[str, tuple[dict[str, Any], str]] = {
    "wordcount": ({"copies": 1}, "wordcount/out"),
    "terasort": ({"size": "1MB"}, "terasort/out"),
    "dfsio": ({"size": "2MiB", "files": 2}, "dfsio/io_data"),
    "wordcount by Spark": ({"copies": 1, "engine": "spark"}, "wordcount/out"),
    "aggregate by Hive": ({"rows": 1000, "files": 1, "engine": "hive"}, "aggregate/out"),
    "kmeans": ({"vectors": 1000, "files": 1, "iterations": 1}, "kmeans/found/clusteredPoints"),
}
"""The parameters of a job, and the folder of its output."""
LARGE = Shape(2, 1536 << 20, 2 << 30)
Begin = Callable[[str], tuple[Path, Path]]
"""Writes a study, and returns its file and the folder of its run."""
TIMES = 2 * 2
"""How often each job is done: by two arms, in two blocks."""
LIMIT_S = 3500
SMALL = """
study: small-slaves
baseline: bare
blocks: {least: 2, most: 2}
shape: {vcpus: 1, memory: 1536MiB, disk: 2GiB}
arms:
  bare: {platform: bare}
scenarios:
  one: {cluster: {slaves: 1, memory: 1GiB}}
workloads:
  wordcount: {copies: 1, engine: spark}
"""


def steps_of(begin: Begin, workloads: str) -> list[dict[str, Any]]:
    """Run a study of these jobs to its end, and return the steps of each cell."""
    study, folder = begin(STUDY + workloads)
    done = tare("run", study, "--out", folder, limit_s=LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    ended = of_type(folder, "cell_finished")
    assert {cell["status"] for cell in ended} == {"ok"}, ended
    assert_nothing_is_left(study.parent, folder)
    return [cell["facts"]["job"]["steps"] for cell in ended]


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Begin:
    return partial(written, tmp_path, monkeypatch)


@pytest.mark.acceptance
@pytest.mark.timeout(LIMIT_S + 100)
def test_spark_does_all_its_jobs_in_bare_machines_and_containers(begin: Begin) -> None:
    by_spark = [
        each["job"]
        for steps in steps_of(begin, OF_SPARK)
        for each in steps.values()
        if str(each.get("job", {}).get("id", "")).startswith("application_")
    ]
    assert len(by_spark) == 4 * TIMES
    for each in by_spark:
        # Its log was whole: all tasks of all stages, none of them lost, and what they wrote.
        assert (each["state"], list(each["lost"])) == ("SUCCEEDED", [])
        assert each["reduces"] >= 1 and each["counters"]["output_bytes"] > 0
        assert [name for name, *_ in each["spans"]][-1] == "reduce"


@pytest.mark.acceptance
@pytest.mark.timeout(LIMIT_S + 100)
def test_mahout_finds_centres_in_bare_machines_and_containers(begin: Begin) -> None:
    searched = [steps["cluster"]["job"] for steps in steps_of(begin, OF_MAHOUT)]
    # An iteration each, and the one that puts points to their centres; all count together.
    assert [len(each["jobs"]) for each in searched] == [3] * TIMES
    for each in searched:
        assert len([name for name, *_ in each["spans"] if name == "map"]) == 3
        assert each["maps"] == 6 and each["reduces"] == 2


@pytest.mark.acceptance
@pytest.mark.timeout(LIMIT_S + 100)
def test_hive_answers_queries_in_bare_machines_and_containers(begin: Begin) -> None:
    # Hive runs a sum as one MapReduce job, and a sum over a join as two.
    by_hive = [steps["query"]["job"]["jobs"] for steps in steps_of(begin, OF_HIVE)]
    assert sorted(map(len, by_hive)) == [1] * TIMES + [2] * TIMES


@pytest.mark.acceptance
@pytest.mark.timeout(1500)
async def test_requested_copies_are_those_in_hdfs(tmp_path: Path, agent_program: Path) -> None:
    """HDFS keeps how many copies of a file are wanted, however few machines there are."""
    found: dict[str, set[int]] = {}
    with this_host(tmp_path, agent_program) as context:
        async with tiny_cluster(context, "bare", "analytics", LARGE) as cluster:
            for name, (parameters, output) in COPIED.items():
                work = JOBS[name.partition(" ")[0]]
                given = {"replication": 2, "output_replication": 2, **parameters}
                known = {key: given[key] for key in given if key in work.parameters.model_fields}
                job = work.job(work.parameters.model_validate(known))
                assert job.copies == 2
                look = JobStep("look", script=f'hdfs GET "/tare/{output}?op=LISTSTATUS"')
                done = await run_job(cluster, replace(job, steps=(*job.steps, look)))
                copies = json.loads(done.value["steps"]["look"]["output"])
                found[name] = {
                    each["replication"]
                    for each in copies["FileStatuses"]["FileStatus"]
                    # Such as `_partition.lst`, which all of TeraSort's maps read.
                    if each["type"] == "FILE" and not each["pathSuffix"].startswith("_")
                }
                assert done.value["replication"] == 1
    assert found == {name: {2} for name in COPIED}


@pytest.mark.acceptance
@pytest.mark.timeout(1000)
def test_slaves_too_small_for_spark_are_reported(begin: Begin) -> None:
    study, folder = begin(SMALL)
    tare("run", study, "--out", folder, limit_s=900)
    ended, _ = of_type(folder, "cell_finished")
    assert ended["status"] == "failed"
    assert "heap of Spark's executor" in ended["reason"]
    assert "memory: 1536MiB" in ended["reason"]
