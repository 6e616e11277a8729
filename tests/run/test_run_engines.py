"""Spark, Mahout and Hive for real: on clusters of bare machines and of containers, verified."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from run.run_driving import (
    assert_no_ledger_is_left,
    assert_no_process_is_left,
    of_type,
    tare,
)

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="networks and control groups need root"),
    pytest.mark.skipif(shutil.which("mvn") is None, reason="Maven fetches Hadoop and Spark"),
]
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
  wordcount: {copies: 1, engine: spark}
  terasort: {size: 10MB, engine: spark}
  kmeans: {vectors: 2000, dimensions: 3, iterations: 2}
  aggregate: {rows: 100000, files: 2, engine: [mapreduce, spark, hive]}
  join: {rows: 100000, files: 2, engine: [spark, hive]}
"""
CELLS = 8
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


@pytest.mark.acceptance
def test_spark_mahout_and_hive_do_all_jobs_in_bare_machines_and_containers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    study, folder = tmp_path / "engines.yaml", tmp_path / "run"
    study.write_text(STUDY)
    done = tare("run", study, "--out", folder, limit_s=3600)
    assert done.returncode == 0, done.stdout + done.stderr
    ended = of_type(folder, "cell_finished")
    assert [cell["status"] for cell in ended] == ["ok"] * 4 * CELLS, ended
    jobs = [cell["facts"]["job"]["steps"] for cell in ended]
    by_spark = [
        told["job"]
        for steps in jobs
        for told in steps.values()
        if str(told.get("job", {}).get("id", "")).startswith("application_")
    ]
    assert len(by_spark) == 16
    for told in by_spark:
        # Its log was whole: all tasks of all stages, none of them lost, and what they wrote.
        assert (told["state"], list(told["lost"])) == ("SUCCEEDED", [])
        assert told["reduces"] >= 1 and told["counters"]["output_bytes"] > 0
        assert [name for name, *_ in told["spans"]][-1] == "reduce"
    searched = [steps["cluster"]["job"] for steps in jobs if "cluster" in steps]
    # An iteration each, and the one that puts points to their centres; all count together.
    assert [len(told["jobs"]) for told in searched] == [3] * 4
    for told in searched:
        assert len([name for name, *_ in told["spans"] if name == "map"]) == 3
        assert told["maps"] == 6 and told["reduces"] == 2
    # Of Hive's queries a sum is one job of MapReduce, and a sum over a join two.
    by_hive = [steps["query"]["job"]["jobs"] for steps in jobs if "tables" in steps]
    assert sorted(map(len, by_hive)) == [1] * 4 + [2] * 4
    assert_no_ledger_is_left(tmp_path)
    assert_no_process_is_left(folder)


@pytest.mark.acceptance
def test_slaves_that_are_too_small_for_spark_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    study, folder = tmp_path / "small.yaml", tmp_path / "run"
    study.write_text(SMALL)
    tare("run", study, "--out", folder, limit_s=900)
    ended, _ = of_type(folder, "cell_finished")
    assert ended["status"] == "failed"
    assert "heap of Spark's executor" in ended["reason"]
    assert "memory: 1536MiB" in ended["reason"]
