"""Real clusters of Hadoop on an arm's machines: up, given jobs, verified, and gone."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from run.run_driving import (
    assert_no_ledger_is_left,
    assert_no_process_is_left,
    of_type,
    tare,
)
from tare.agent.barrier import Barrier
from tare.errors import MachineFault, WorkloadFault
from tare.hosts import Ledger, LocalHost
from tare.images.cache import default_cache
from tare.images.toolbox.toolbox import prepare_toolbox
from tare.platforms.bare import Bare, BareOptions
from tare.platforms.contract import Context, MachineSpec, Shape, ToolboxFiles
from tare.platforms.linux.network import spanning_network
from tare.platforms.oci.cgroups import cgroup_mounts
from tare.run.cluster.cluster import RunningCluster, layout_for
from tare.run.cluster.jobs import ClusterJob, job_facts
from tare.run.cluster.member import Member
from tare.study.scenario import Cluster
from tare.workloads import WORKLOADS
from tare.workloads.mapreduce.daemons import CLASSES
from tare.workloads.mapreduce.job import Job

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="networks and control groups need root"),
    pytest.mark.skipif(shutil.which("mvn") is None, reason="Maven fetches Hadoop"),
]
SHAPE = Shape(2, 900 << 20, 1 << 30)
WORK = WORKLOADS["wordcount"]
PARAMETERS = WORK.parameters.model_validate({"copies": 1})
PATIENCE_S = 600.0
STUDY = """
study: clusters
baseline: bare
blocks: {least: 2, most: 2}
shape: {vcpus: 1, memory: 1GiB, disk: 2GiB}
arms:
  bare: {platform: bare}
  oci: {platform: oci}
scenarios:
  two: {cluster: {slaves: 2}}
  together: {cluster: {slaves: 1, master: with-first, memory: 2GiB}}
workloads:
  dfsio: {size: 16MiB, files: 2}
  terasort: {size: 10MB, scenarios: [two]}
  wordcount: {copies: 1, scenarios: [two]}
"""


@pytest.fixture
def context(tmp_path: Path, agent_program: Path) -> Iterator[Context]:
    with Ledger(tmp_path / "ledger") as ledger:
        yield Context(LocalHost(agent_program), ledger, default_cache(), agent_program)
        assert ledger.open_entries() == ()


@asynccontextmanager
async def tiny_cluster(context: Context) -> AsyncIterator[RunningCluster]:
    """Hold a cluster of two bare machines, a master and a slave."""
    host, agent = context.host, context.agent
    box = await prepare_toolbox(host, "hadoop", agent=agent, cache=context.cache)
    files = ToolboxFiles(image=box.image, digest=box.digest, tree=box.tree)
    bare, options = Bare(), BareOptions()
    wanted = Cluster.model_validate({"tasks": 1})
    async with AsyncExitStack() as held:
        whole = await held.enter_async_context(spanning_network([context], True))
        prepared = await bare.prepare(context, options, SHAPE, False)
        machines = {}
        for role in ("subject", "slave-1"):
            name = f"tare-test-{os.getpid()}-{role}"
            spec = MachineSpec(
                *(name, SHAPE, (), context.ledger.path.parent / name, False, role),
                toolbox=files,
                network=whole.on(host.name),
                way="bridge",
                own_address=True,
                keeps_memory=True,
            )
            machine = machines[role] = await bare.start(context, options, prepared, spec)
            held.push_async_callback(machine.stop)
            await machine.ready(60)
        addresses = {role: whole.links[each.name].address for role, each in machines.items()}
        layout = layout_for(wanted, addresses, SHAPE.memory, SHAPE.vcpus)
        members = {
            name: Member(name, machine, layout.addresses[name])
            for name, machine in zip(layout.addresses, machines.values(), strict=True)
        }
        cluster = RunningCluster(members, layout)
        held.push_async_callback(cluster.stop)
        await cluster.bring_up()
        yield cluster


async def daemon_of(context: Context, cluster: RunningCluster, word: bytes) -> int:
    """Return the process that runs a daemon, out of those of the machine's own control group."""
    name = cluster.slaves[0].machine.name
    folder = (await cgroup_mounts(context.host)).of("memory", name)
    assert folder is not None
    for pid in map(int, (folder / "cgroup.procs").read_text().split()):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if words[-2].endswith(b"." + word):
            return pid
    raise AssertionError(f"no process of the cluster is a {word.decode()}")


def job_of(cluster: RunningCluster, job: Job | None) -> ClusterJob:
    assert job is not None
    return ClusterJob(cluster, job, PATIENCE_S)


@pytest.mark.slow
@pytest.mark.boots
async def test_a_tiny_cluster_counts_words_rightly_and_tells_its_phases(context: Context) -> None:
    async with tiny_cluster(context) as cluster:
        job = job_of(cluster, WORK.job(PARAMETERS))
        outcome = await job.carry_out(barrier=Barrier(1), on_progress=lambda *_: None)
        values = WORK.observe(PARAMETERS, outcome.value)
        assert set(values) == {metric.name for metric in WORK.metrics_for(PARAMETERS)}
        assert values["count-time"] > values["count-map"] > 0
        # The text was read whole by the map, and its counts were written once.
        told = job_facts(outcome.value)["job"]["steps"]["count"]["job"]
        assert told["counters"]["hdfs_read_bytes"] >= 8 << 20
        assert (told["maps"], told["reduces"], told["state"]) == (1, 1, "SUCCEEDED")
        assert {phase["name"] for phase in outcome.value["phases"]} >= {"count map"}
        assert values["copies"] == 1
        assert values["written"] > 0
        logs = await cluster.logs()
        assert "master-namenode.log" in logs and all(logs.values())
        pid = await daemon_of(context, cluster, b"NodeManager")
        # Java fell silent where it could not use the archive of classes.
        assert Path(CLASSES).name in Path(f"/proc/{pid}/maps").read_text()
        # A daemon that is lost is named, with the machine that it was on.
        os.kill(pid, signal.SIGKILL)
        said = await asyncio.wait_for(cluster.lost, 60)
        assert said == "the nodemanager on slave-1 ended by itself"


def test_a_wrong_count_is_no_result() -> None:
    job = WORK.job(PARAMETERS)
    assert job is not None
    right, wrong = f"{'a' * 64}  -\n", f"{'b' * 64}  -\n"
    assert job.check({"expected": {"output": right}, "counted": {"output": right}}) == ""
    said = job.check({"expected": {"output": right}, "counted": {"output": wrong}})
    assert "counted wrongly" in said
    assert "missing" in job.check({"expected": {"output": right}, "counted": {"output": ""}})


@pytest.mark.acceptance
@pytest.mark.timeout(3700)
def test_clusters_of_bare_machines_and_containers_do_all_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    study, folder = tmp_path / "clusters.yaml", tmp_path / "run"
    study.write_text(STUDY)
    done = tare("run", study, "--out", folder, limit_s=3600)
    assert done.returncode == 0, done.stdout + done.stderr
    ended = of_type(folder, "cell_finished")
    assert [cell["status"] for cell in ended] == ["ok"] * 16, ended
    ready, stopped = of_type(folder, "cluster_ready"), of_type(folder, "cluster_stopped")
    assert len(ready) == len(stopped) == 8
    copies = {event["scenario"]: event["facts"]["effective_replication"] for event in ready}
    assert copies == {"two": 2, "together": 1}
    for event in stopped:
        assert event["expected"] and event["logs"]
        assert all((folder / log).stat().st_size for log in event["logs"])
    report = (folder / "report.html").read_text()
    assert "Jobs of Hadoop, phase by phase" in report
    assert "copies" in report
    assert_no_ledger_is_left(tmp_path)
    assert_no_process_is_left(folder)


@pytest.mark.acceptance
async def test_a_job_that_fails_is_told_with_its_reason(context: Context) -> None:
    async with tiny_cluster(context) as cluster:
        too_much = WORK.parameters.model_validate({"copies": 200})
        job = job_of(cluster, WORK.job(too_much))
        with pytest.raises((MachineFault, WorkloadFault)) as caught:
            # The disk of 1 GiB holds no text of 1.6 GiB.
            await job.carry_out(barrier=Barrier(1), on_progress=lambda *_: None)
        assert "curl" in str(caught.value) or "space" in str(caught.value)
