"""Faults planted into real clusters of Hadoop: each is named, with the log's own lines."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from run.run_clusters import (
    NEEDS,
    PARAMETERS,
    WORK,
    assert_nothing_is_left,
    daemon_of,
    run_job,
    this_host,
    tiny_cluster,
    tiny_machines,
    written,
)
from run.run_driving import Running, of_type, tare
from tare.errors import MachineFault, WorkloadFault
from tare.hosts import LocalHost
from tare.platforms.contract import Context
from tare.platforms.linux.cgroups import cgroup_mounts
from tare.run.topologies.cluster import cluster as clusters
from tare.run.topologies.cluster.cluster import RunningCluster
from tare.run.topologies.cluster.state import objects_in
from tare.workloads.mapreduce import configuration
from tare.workloads.mapreduce.configuration import MANAGER_WEB
from tare.workloads.mapreduce.job import JobStep
from tare.workloads.mapreduce.verifying import MADE

pytestmark = [
    *NEEDS,
    pytest.mark.acceptance,
    pytest.mark.timeout(2000),
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
TOO_MUCH = "dfsio: {size: [1200MiB, 16MiB], files: 1}"
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
        for answer in objects_in(await master.output(_RUNNING, master.address)):
            for application in (answer.get("apps") or {}).get("app", ()):
                return str(application["id"])
        await asyncio.sleep(LOOK_S)


async def test_wrong_output_and_killed_job_are_reported(context: Context, platform: str) -> None:
    job = WORK.job(PARAMETERS)
    assert job is not None
    spoil = JobStep(
        "spoil",
        script="echo 'a word 1' >/tmp/wrong\n"
        'hdfs PUT "/tare/wordcount/out/part-r-00000?op=CREATE&overwrite=true" -T /tmp/wrong\n',
    )
    *most, last = job.steps
    assert last.name == MADE
    async with tiny_cluster(context, platform) as cluster:
        with pytest.raises(WorkloadFault, match="the words are counted wrongly: the output's SHA"):
            await run_job(cluster, replace(job, steps=(*most, spoil, last)))

        async def kill() -> None:
            name = await running_application(cluster)
            await cluster.master.run(_KILL, cluster.master.address, name)

        with pytest.raises(MachineFault) as caught:
            await asyncio.gather(run_job(cluster, job), kill())
    assert str(caught.value).startswith("count: WordCount failed"), caught.value
    assert ": the job was killed: " in str(caught.value), caught.value
    assert "master-resourcemanager.log says: " in str(caught.value)


def test_run_continues_after_a_full_disk_of_a_datanode(
    tmp_path: Path, platform: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = STUDY.replace("ARM", platform).replace("wordcount: {copies: [1, 2]}", TOO_MUCH)
    assert TOO_MUCH in text
    study, folder = written(tmp_path, monkeypatch, text)
    done = tare("run", study, "--out", folder, limit_s=1700)
    assert done.returncode == 1, done.stdout + done.stderr
    sizes = {each["cell"]: each["parameters"]["size"] for each in of_type(folder, "cell_started")}
    ended = of_type(folder, "cell_finished")
    assert len(ended) == 4
    for cell in ended:
        if sizes[cell["cell"]] == 16 << 20:
            assert cell["status"] == "ok", cell
            continue
        assert cell["status"] == "failed" and cell["reason"].startswith("write: "), cell
        assert "a slave's disk is full: " in cell["reason"], cell
        assert ".log says: " in cell["reason"]
    # All that its client and its tasks had to say is with the daemons' logs.
    kept = [set(map(name_of, each["logs"])) for each in of_type(folder, "cluster_stopped")]
    assert sum("slave-1-datanode.log" in names for names in kept) == len(kept)
    assert sum("slave-1-containers.log" in names for names in kept) == 2
    assert_nothing_is_left(tmp_path, folder)


def name_of(path: str) -> str:
    return Path(path).name


async def test_namenode_stuck_in_safe_mode_is_reported(
    context: Context, platform: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = configuration.hdfs

    def waiting_for_two(layout: configuration.ClusterLayout, name: str) -> dict[str, str]:
        return {**whole(layout, name), "dfs.namenode.safemode.min.datanodes": "2"}

    monkeypatch.setattr(configuration, "hdfs", waiting_for_two)
    # As long as the NameNode and its one DataNode need to know one another.
    monkeypatch.setattr(clusters, "UP_S", 90.0)
    async with tiny_machines(context, platform) as cluster:
        with pytest.raises(MachineFault) as caught:
            await cluster.bring_up()
    text = str(caught.value)
    assert text.startswith("the cluster is not up after 90 s: the NameNode has not left safe mode")
    assert "its log says: " in text, text


Killing = Callable[[LocalHost, str], Awaitable[int]]
"""Returns the process to kill in a slave's machine; takes the machine's name."""


async def test_run_continues_after_a_lost_nodemanager(
    tmp_path: Path, platform: str, monkeypatch: pytest.MonkeyPatch, agent_program: Path
) -> None:
    study, folder = written(tmp_path, monkeypatch, STUDY.replace("ARM", platform))

    async def its_manager(host: LocalHost, machine: str) -> int:
        return await daemon_of(host, machine, b"NodeManager")

    await kill_in_mid_job(study, folder, LocalHost(agent_program), its_manager)
    reason = reason_of_the_first(folder)
    assert reason.startswith("the nodemanager on slave-1 ended unexpectedly"), reason
    assert_nothing_is_left(tmp_path, folder)


async def test_run_continues_after_a_lost_machine(
    tmp_path: Path, platform: str, monkeypatch: pytest.MonkeyPatch, agent_program: Path
) -> None:
    study, folder = written(tmp_path, monkeypatch, STUDY.replace("ARM", platform))
    machine = await kill_in_mid_job(study, folder, LocalHost(agent_program), first_of)
    # Not that a daemon ended, which is how it shows first, but the machine with its end.
    reason = reason_of_the_first(folder)
    assert reason.startswith(f"{machine}: ") and "killed" in reason, reason
    assert_nothing_is_left(tmp_path, folder)


async def kill_in_mid_job(study: Path, folder: Path, host: LocalHost, which: Killing) -> str:
    """Run a study, and kill a process of its first cell's slave; return that machine's name."""
    with Running(folder, "run", study, "--out", folder) as running:
        running.wait_for(lambda event: event["type"] == "cell_started", limit_s=600)
        machine = str(of_type(folder, "cell_started")[0]["machines"]["slave-1"])
        # A task is at work: the job is under way.
        while not await is_at(host, machine, b"YarnChild"):
            assert not of_type(folder, "cell_finished"), "the job ended before"
            await asyncio.sleep(LOOK_S)
        os.kill(await which(host, machine), signal.SIGKILL)
        code, output = running.end(limit_s=1200)
    assert code == 1, output
    return machine


def reason_of_the_first(folder: Path) -> str:
    """Return why the first cell failed, of four; all others are well, and all logs are there."""
    first, *others = of_type(folder, "cell_finished")
    assert first["status"] == "failed"
    assert [cell["status"] for cell in others] == ["ok"] * 3, others
    stopped = of_type(folder, "cluster_stopped")
    assert [event["expected"] for event in stopped] == [False, True, True]
    assert all(event["logs"] for event in stopped)
    return str(first["reason"])


async def first_of(host: LocalHost, machine: str) -> int:
    """Return the process of a machine's control group that was not started by another of it."""
    folder = (await cgroup_mounts(host)).of("memory", machine)
    assert folder is not None
    members = set(map(int, (folder / "cgroup.procs").read_text().split()))
    (first,) = (pid for pid in members if parent_of(pid) not in members)
    return first


def parent_of(pid: int) -> int:
    # Behind the name, which may hold blanks and brackets (proc_pid_stat(5)).
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def is_at(host: LocalHost, machine: str, word: bytes) -> bool:
    try:
        return bool(await daemon_of(host, machine, word))
    except AssertionError:
        return False
