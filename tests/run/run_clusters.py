"""Tiny clusters of real machines for tests, and studies of clusters."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from run.run_driving import assert_no_ledger_is_left, assert_no_process_is_left
from tare.agent.barrier import Barrier
from tare.agent.client import Outcome
from tare.hosts import Host, Ledger, LocalHost
from tare.images.cache import default_cache
from tare.images.toolbox.recipe import Kind
from tare.images.toolbox.toolbox import prepare_toolbox
from tare.platforms.contract import Context, MachineSpec, Shape, ToolboxFiles
from tare.platforms.linux.cgroups import cgroup_mounts
from tare.platforms.linux.network import spanning_network
from tare.registry import installed
from tare.run.topologies.cluster.cluster import RunningCluster, layout_for
from tare.run.topologies.cluster.jobs import ClusterJob
from tare.run.topologies.cluster.member import Member
from tare.study.model.scenario import Cluster
from tare.workloads.mapreduce.job import Job
from workloads.workload_kinds import JOBS

NEEDS = [
    pytest.mark.skipif(os.geteuid() != 0, reason="networks and control groups need root"),
    pytest.mark.skipif(shutil.which("mvn") is None, reason="Maven fetches Hadoop"),
]
SHAPE = Shape(2, 900 << 20, 1 << 30)
WORK = JOBS["wordcount"]
PARAMETERS = WORK.parameters.model_validate({"copies": 1})
PATIENCE_S = 600.0


@contextmanager
def this_host(home: Path, agent: Path) -> Iterator[Context]:
    """Hold this host with a ledger of its own, in which nothing may be left."""
    with Ledger(home / "ledger") as ledger:
        yield Context(LocalHost(agent), ledger, default_cache(), agent)
        assert ledger.open_entries() == ()


def written(home: Path, monkeypatch: pytest.MonkeyPatch, study: str) -> tuple[Path, Path]:
    """Return the file of a study and the folder of its run; Tare keeps its state there too."""
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    file = home / "clusters.yaml"
    file.write_text(study)
    return file, home / "run"


def assert_nothing_is_left(home: Path, folder: Path) -> None:
    assert_no_ledger_is_left(home)
    assert_no_process_is_left(folder)


@asynccontextmanager
async def tiny_cluster(
    context: Context, platform: str = "bare", toolbox: Kind = "hadoop", shape: Shape = SHAPE
) -> AsyncIterator[RunningCluster]:
    """Hold a cluster of two machines of a platform, a master and a slave, that is up."""
    async with tiny_machines(context, platform, toolbox, shape) as cluster:
        await cluster.bring_up()
        yield cluster


@asynccontextmanager
async def tiny_machines(
    context: Context, platform: str = "bare", toolbox: Kind = "hadoop", shape: Shape = SHAPE
) -> AsyncIterator[RunningCluster]:
    """Hold a cluster of two machines of a platform that is not up yet."""
    host, agent = context.host, context.agent
    box = await prepare_toolbox(host, toolbox, agent=agent, cache=context.cache)
    files = ToolboxFiles(image=box.image, digest=box.digest, tree=box.tree)
    made_by = installed().platforms[platform]
    options = made_by.options()
    wanted = Cluster.model_validate({"tasks": 1})
    async with AsyncExitStack() as held:
        whole = await held.enter_async_context(spanning_network([context], True))
        prepared = await made_by.prepare(context, options, shape, False)
        machines = {}
        for role in ("subject", "slave-1"):
            name = f"tare-test-{os.getpid()}-{role}"
            spec = MachineSpec(
                *(name, shape, (), context.ledger.path.parent / name, False, role),
                toolbox=files,
                network=whole.on(host.name),
                way="bridge",
                own_address=True,
                keeps_memory=True,
            )
            machine = machines[role] = await made_by.start(context, options, prepared, spec)
            held.push_async_callback(machine.stop)
            await machine.ready(60)
        addresses = {role: whole.links[each.name].address for role, each in machines.items()}
        layout = layout_for(wanted, addresses, shape.memory, shape.vcpus)
        members = {
            name: Member(name, machine, layout.addresses[name])
            for name, machine in zip(layout.addresses, machines.values(), strict=True)
        }
        cluster = RunningCluster(members, layout)
        held.push_async_callback(cluster.stop)
        yield cluster


async def daemon_of(host: Host, machine: str, word: bytes) -> int:
    """Return the process that runs a class, out of those of a machine's own control group.

    Raises:
        AssertionError: None does.
    """
    folder = (await cgroup_mounts(host)).of("memory", machine)
    assert folder is not None
    for pid in map(int, (folder / "cgroup.procs").read_text().split()):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(each.endswith(b"." + word) for each in words):
            return pid
    raise AssertionError(f"no process of {machine} is a {word.decode()}")


def job_of(cluster: RunningCluster, job: Job | None) -> ClusterJob:
    assert job is not None
    return ClusterJob(cluster, job, PATIENCE_S)


async def run_job(cluster: RunningCluster, job: Job | None) -> Outcome:
    return await job_of(cluster, job).run(barrier=Barrier(1), on_progress=lambda *_: None)
