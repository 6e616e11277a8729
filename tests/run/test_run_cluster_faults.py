"""Faults planted into real clusters of Hadoop: each is named, with the log's own lines."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from run.run_clusters import (
    NEEDS,
    PARAMETERS,
    WORK,
    assert_nothing_is_left,
    carried_out,
    daemon_of,
    this_host,
    tiny_cluster,
    tiny_machines,
    written,
)
from run.run_driving import Running, of_type
from tare.errors import MachineFault, WorkloadFault
from tare.hosts import LocalHost
from tare.platforms.contract import Context
from tare.run.cluster import cluster as clusters
from tare.run.cluster.cluster import RunningCluster
from tare.run.cluster.state import objects_in
from tare.workloads import WORKLOADS
from tare.workloads.mapreduce import configuration
from tare.workloads.mapreduce.configuration import MANAGER_WEB
from tare.workloads.mapreduce.job import Step
from tare.workloads.mapreduce.verifying import MADE

pytestmark = [
    *NEEDS,
    pytest.mark.acceptance,
    pytest.mark.timeout(1800),
    pytest.mark.parametrize("platform", ["bare", "oci"]),
]
LOOK_S = 0.2
STUDY = """
study: faults
baseline: ARM
blocks: {least: 2, most: 2}
shape: {vcpus: 1, memory: 1GiB, disk: 1GiB}
arms:
  ARM: {platform: ARM}
scenarios:
  one: {cluster: {slaves: 1, tasks: 1}}
workloads:
  wordcount: {copies: [1, 2]}
"""
_RUNNING = f'curl -sS -m 5 "http://$1:{MANAGER_WEB}/ws/v1/cluster/apps?states=RUNNING"'
_KILL = (
    "curl -sS -m 20 -X PUT -H 'Content-Type: application/json' -d '{\"state\":\"KILLED\"}' "
    f'"http://$1:{MANAGER_WEB}/ws/v1/cluster/apps/$2/state?user.name=root"'
)


@pytest.fixture
def context(tmp_path: Path, agent_program: Path) -> Iterator[Context]:
    with this_host(tmp_path, agent_program) as context:
        yield context


async def running_application(cluster: RunningCluster) -> str:
    """Wait until an application is at work, and return its name."""
    master = cluster.master
    while True:
        for told in objects_in(await master.output(_RUNNING, master.address)):
            for application in (told.get("apps") or {}).get("app", ()):
                return str(application["id"])
        await asyncio.sleep(LOOK_S)


async def test_an_output_that_is_wrong_and_a_job_that_is_killed_are_told(
    context: Context, platform: str
) -> None:
    job = WORK.job(PARAMETERS)
    assert job is not None
    spoil = Step(
        "spoil",
        script="echo 'a word 1' >/tmp/wrong\n"
        'hdfs PUT "/tare/wordcount/out/part-r-00000?op=CREATE&overwrite=true" -T /tmp/wrong\n',
    )
    *most, last = job.steps
    assert last.name == MADE
    async with tiny_cluster(context, platform) as cluster:
        with pytest.raises(WorkloadFault, match="the words are counted wrongly: the output's SHA"):
            await carried_out(cluster, replace(job, steps=(*most, spoil, last)))

        async def kill() -> None:
            name = await running_application(cluster)
            await cluster.master.run(_KILL, cluster.master.address, name)

        with pytest.raises(MachineFault) as caught:
            await asyncio.gather(carried_out(cluster, job), kill())
    assert str(caught.value).startswith("count: WordCount failed"), caught.value
    assert ": the job was killed: " in str(caught.value), caught.value
    assert "master-resourcemanager.log says: " in str(caught.value)


async def test_a_datanode_whose_disk_is_full_is_told(context: Context, platform: str) -> None:
    work = WORKLOADS["dfsio"]
    too_much = work.job(work.parameters.model_validate({"size": "1200MiB", "files": 1}))
    async with tiny_cluster(context, platform) as cluster:
        with pytest.raises(MachineFault) as caught:
            await carried_out(cluster, too_much)
    assert str(caught.value).startswith("write: "), caught.value
    assert "a slave's disk is full: " in str(caught.value), caught.value
    assert ".log says: " in str(caught.value)


async def test_a_namenode_that_does_not_leave_safe_mode_is_told(
    context: Context, platform: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = configuration.hdfs

    def waiting_for_two(layout: configuration.Layout, name: str) -> dict[str, str]:
        return {**whole(layout, name), "dfs.namenode.safemode.min.datanodes": "2"}

    monkeypatch.setattr(configuration, "hdfs", waiting_for_two)
    # As long as the NameNode and its one DataNode need to know one another.
    monkeypatch.setattr(clusters, "UP_S", 90.0)
    async with tiny_machines(context, platform) as cluster:
        with pytest.raises(MachineFault) as caught:
            await cluster.bring_up()
    said = str(caught.value)
    assert said.startswith("the cluster is not up after 90 s: the NameNode has not left safe mode")
    assert "its log says: " in said, said


async def test_a_run_goes_on_after_a_nodemanager_was_lost_in_mid_job(
    tmp_path: Path, platform: str, monkeypatch: pytest.MonkeyPatch, agent_program: Path
) -> None:
    study, folder = written(tmp_path, monkeypatch, STUDY.replace("ARM", platform))
    host = LocalHost(agent_program)
    with Running(folder, "run", study, "--out", folder) as running:
        running.wait_for(lambda event: event["type"] == "cell_started", limit_s=600)
        machine = of_type(folder, "cell_started")[0]["machines"]["slave-1"]
        # A task is at work: the job is under way.
        while not await is_at(host, machine, b"YarnChild"):
            assert not of_type(folder, "cell_finished"), "the job ended before"
            await asyncio.sleep(LOOK_S)
        os.kill(await daemon_of(host, machine, b"NodeManager"), signal.SIGKILL)
        code, output = running.end(limit_s=1200)
    assert code == 1, output
    first, *others = of_type(folder, "cell_finished")
    assert first["status"] == "failed"
    assert first["reason"].startswith("the nodemanager on slave-1 ended by itself"), first
    assert [cell["status"] for cell in others] == ["ok"] * 3, others
    stopped = of_type(folder, "cluster_stopped")
    assert [event["expected"] for event in stopped] == [False, True, True]
    assert all(event["logs"] for event in stopped)
    assert_nothing_is_left(tmp_path, folder)


async def is_at(host: LocalHost, machine: str, word: bytes) -> bool:
    try:
        return bool(await daemon_of(host, machine, word))
    except AssertionError:
        return False
