"""K-Means: points whose centres are known, and a check that no wrong centre passes."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tare.workloads.mapreduce.configuration import DATA, as_xml, mapred
from tare.workloads.mapreduce.daemons import CONF, OWN_CONF, java
from tare.workloads.mapreduce.job import JobStep
from tare.workloads.mapreduce.kmeans import APART, ASIDE, SPREAD, Points
from workloads.test_mapreduce_configuration import layout
from workloads.workload_kinds import JOBS

KMEANS = JOBS["kmeans"]


def steps_of(**given: Any) -> dict[str, JobStep]:
    job = KMEANS.job(KMEANS.parameters.model_validate(given))
    return {step.name: step for step in job.steps}


def clustered(expected: str, made: str, jobs: int) -> dict[str, Any]:
    return {
        "cluster": {"job": {"jobs": [f"job_1_{number}" for number in range(jobs)]}},
        "expected": {"output": f"{expected * 64}  -\n"},
        "counted": {"output": f"{made * 64}  -\n"},
    }


def test_no_iteration_is_spared_unless_a_study_says_when() -> None:
    for changes, least in (({}, "-1.0"), ({"convergence": 0.5}, "0.5")):
        search = steps_of(iterations=4, **changes)["cluster"]
        words = list(search.arguments)
        assert words[words.index("-cd") + 1] == least
        assert words[words.index("-x") + 1] == "4"
        assert search.measured and search.cold


def test_wrong_centres_are_refused() -> None:
    job = KMEANS.job(KMEANS.parameters.model_validate({"iterations": 2}))
    assert job is not None
    assert job.check(clustered("a", "a", 3)) == ""
    assert "found wrongly" in job.check(clustered("a", "b", 3))
    # Right centres too, when not all that was to be measured was done.
    assert "took 2 jobs, and not 3" in job.check(clustered("a", "a", 2))
    converging = KMEANS.job(KMEANS.parameters.model_validate({"iterations": 2, "convergence": 1}))
    assert converging is not None
    assert converging.check(clustered("a", "a", 2)) == ""
    assert "took 4 jobs" in converging.check(clustered("a", "a", 4))


def test_tasks_find_mahout_as_the_client_does_and_no_other_job_does() -> None:
    steps = steps_of(replication=2)
    for name in ("convert", "cluster"):
        assert steps[name].archives == "/opt/mahout.jar"
        assert dict(steps[name].properties) == {"dfs.replication": 2}
    path = java(96, 1, "Main", archives="/opt/mahout.jar")
    parts = path[path.index("-cp") + 1].split(":")
    # Its own configuration goes before the cluster's, and Mahout's archives behind all others.
    assert parts.index(OWN_CONF) < parts.index(CONF) and parts[-1] == "/opt/mahout.jar"
    for archives in ("/opt/mahout.jar", ""):
        read = ET.fromstring(as_xml(mapred(layout(), archives)))
        found = {one.findtext("name"): one.findtext("value") or "" for one in read}
        assert ("/opt/mahout" in found["mapreduce.application.classpath"]) == bool(archives)


@given(st.integers(1, 100), st.integers(1, 100))
def test_a_search_begins_nearer_to_each_point_than_any_other_beginning(
    own: int, other: int
) -> None:
    if own == other:
        return
    for aside in (-SPREAD, SPREAD):
        point = own * APART + aside
        assert abs(point - (own * APART + ASIDE)) < abs(point - (other * APART + ASIDE))


@pytest.mark.skipif(shutil.which("mawk") is None, reason="the toolbox's awk is mawk")
@settings(max_examples=15)
@given(st.integers(1, 40), st.integers(1, 3), st.integers(1, 4), st.integers(1, 4))
def test_centres_by_awk_are_those_of_another_computation(
    tmp_path_factory: pytest.TempPathFactory, each: int, files: int, dimensions: int, clusters: int
) -> None:
    sums: dict[int, list[int]] = {}
    for seed in range(1, files + 1):
        state = (seed * 104729) % 2147483646 + 1
        state = state * 16807 % 2147483647
        for _ in range(each):
            state = state * 16807 % 2147483647
            cluster = state % clusters
            found = sums.setdefault(cluster, [0] * (dimensions + 1))
            found[0] += 1
            for place in range(1, dimensions + 1):
                state = state * 16807 % 2147483647
                found[place] += cluster * APART - SPREAD + state % (2 * SPREAD + 1)
    lines = ["\t".join(map(str, (found[0], *found))) + "\n" for found in sums.values()]
    folder = tmp_path_factory.mktemp("points")
    script = Points(each, files, dimensions, clusters).centres
    assert printed(script, folder) == hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()


def printed(script: str, folder: Path) -> str:
    here = script.replace("awk ", "mawk ").replace(DATA, str(folder))
    env = {"LC_ALL": "C", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(["sh", "-c", here], capture_output=True, text=True, check=True, env=env)
    return done.stdout[:64]
