"""Real clusters of Hadoop on an arm's machines: up, given jobs, verified, and gone."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

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
    written,
)
from run.run_driving import of_type, tare
from tare.errors import MachineFault, WorkloadFault
from tare.platforms.contract import Context
from tare.run.probes.cost import cost_together
from tare.run.topologies.cluster.jobs import job_facts
from tare.workloads.mapreduce.daemons import CLASSES
from tare.workloads.mapreduce.wordcount import TEXT_BYTES

pytestmark = NEEDS
DAEMON = 64 << 20
"""Less than one of Hadoop's Java machines holds; a cluster has five or more of them."""
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
  dfsio-once: {workload: dfsio, scenarios: [two], size: 16MiB, files: 2, replication: 1}
  terasort: {size: 10MB, scenarios: [two]}
  wordcount: {copies: 1, scenarios: [two]}
"""


@pytest.fixture
def context(tmp_path: Path, agent_program: Path) -> Iterator[Context]:
    with this_host(tmp_path, agent_program) as context:
        yield context


@pytest.mark.slow
@pytest.mark.boots
async def test_tiny_cluster_counts_words_and_reports_its_phases(context: Context) -> None:
    async with tiny_cluster(context) as cluster:
        machines = [member.machine for member in cluster.members.values()]
        before = await cost_together(machines)
        outcome = await run_job(cluster, WORK.job(PARAMETERS))
        after = await cost_together(machines)
        values = WORK.observe(PARAMETERS, outcome.value)
        assert set(values) == {metric.name for metric in WORK.metrics_for(PARAMETERS)}
        assert values["count-time"] > values["count-map"] > 0
        # The text was read whole by the map, and its counts were written once.
        facts: Any = job_facts(outcome.value)["job"]["steps"]["count"]["job"]
        assert facts["counters"]["hdfs_read_bytes"] >= 8 << 20
        assert (facts["maps"], facts["reduces"], facts["state"]) == (1, 1, "SUCCEEDED")
        # The host saw all that tasks used by Hadoop's count, and the Java machines that carry them.
        assert after["cpu_s"] - before["cpu_s"] > values["count-cpu"] > 0
        assert after["rss_bytes"] > 5 * DAEMON
        assert {phase["name"] for phase in outcome.value["phases"]} >= {"count map"}
        assert values["copies"] == 1
        # What was put to HDFS before is not the job's work, not even right after another job.
        again = WORK.observe(PARAMETERS, (await run_job(cluster, WORK.job(PARAMETERS))).value)
        for each in (values, again):
            assert 0 < each["written"] < TEXT_BYTES, (values, again)
        logs = await cluster.logs(60)
        assert "master-namenode.log" in logs and all(logs.values())
        pid = await daemon_of(context.host, cluster.slaves[0].machine.name, b"NodeManager")
        # Java fell silent where it could not use the archive of classes.
        assert Path(CLASSES).name in Path(f"/proc/{pid}/maps").read_text()
        # A daemon that is lost is named, with the machine that it was on.
        os.kill(pid, signal.SIGKILL)
        reason = await asyncio.wait_for(cluster.lost, 60)
        how = "sh was killed, though the machine had not run out of memory"
        assert reason == f"the nodemanager on slave-1 ended unexpectedly: {how}"


def test_a_wrong_count_is_refused() -> None:
    job = WORK.job(PARAMETERS)
    assert job is not None
    right, wrong = f"{'a' * 64}  -\n", f"{'b' * 64}  -\n"
    assert job.check({"expected": {"output": right}, "counted": {"output": right}}) == ""
    reason = job.check({"expected": {"output": right}, "counted": {"output": wrong}})
    assert "counted wrongly" in reason
    assert "missing" in job.check({"expected": {"output": right}, "counted": {"output": ""}})


@pytest.mark.acceptance
@pytest.mark.timeout(3700)
def test_clusters_of_bare_machines_and_containers_do_all_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, folder = written(tmp_path, monkeypatch, STUDY)
    done = tare("run", study, "--out", folder, limit_s=3600)
    assert done.returncode == 0, done.stdout + done.stderr
    ended = of_type(folder, "cell_finished")
    assert [cell["status"] for cell in ended] == ["ok"] * 20, ended
    assert_copies_are_those_of_the_jobs(folder)
    ready, stopped = of_type(folder, "cluster_ready"), of_type(folder, "cluster_stopped")
    assert len(ready) == len(stopped) == 8
    copies = {event["scenario"]: event["facts"]["effective_replication"] for event in ready}
    assert copies == {"two": 2, "together": 1}
    for event in stopped:
        assert event["expected"] and event["logs"]
        assert all((folder / log).stat().st_size for log in event["logs"])
    assert_hosts_saw_what_tasks_used(ended)
    report = (folder / "report.html").read_text()
    assert "Jobs of Hadoop, phase by phase" in report
    assert "copies" in report
    assert_nothing_is_left(tmp_path, folder)


def assert_hosts_saw_what_tasks_used(ended: Sequence[Mapping[str, Any]]) -> None:
    """By the host's count a cluster used more CPU time than its tasks did by Hadoop's."""
    for cell in ended:
        job, cost = cell["facts"]["job"], cell["facts"]["host_cost"]
        jobs = [step["job"] for step in job["steps"].values() if step.get("job")]
        assert cost["cpu_s"] > sum(each["counters"]["cpu_ms"] for each in jobs) / 1000 > 0, cell
        assert cost["rss_bytes"] > 5 * DAEMON, cell


def assert_copies_are_those_of_the_jobs(folder: Path) -> None:
    """Check that on two slaves TestDFSIO makes two copies by default, and TeraSort one."""
    jobs = {cell["cell"]: cell["facts"]["job"] for cell in of_type(folder, "cell_finished")}
    written: dict[tuple[int, str], dict[str, float]] = {}
    for cell in of_type(folder, "cell_started"):
        if cell["scenario"] != "two":
            continue
        job, label = jobs[cell["cell"]], cell["workload"]
        wanted = {"dfsio": 2, "dfsio-once": 1, "terasort": 1, "wordcount": 2}
        assert job["replication"] == wanted[label], cell
        by_label = written.setdefault((cell["block"], cell["arm"]), {})
        by_label[label] = float(job["hdfs_written_bytes"])
    assert len(written) == 4
    for counts in written.values():
        # DataNodes counted as many copies as were set; Hadoop keeps some files in addition.
        assert 1.5 < counts["dfsio"] / counts["dfsio-once"] < 2.2, counts


@pytest.mark.acceptance
async def test_failed_job_is_reported_with_its_reason(context: Context) -> None:
    async with tiny_cluster(context) as cluster:
        too_much = WORK.parameters.model_validate({"copies": 200})
        with pytest.raises((MachineFault, WorkloadFault)) as caught:
            # The disk of 1 GiB holds no text of 1.6 GiB.
            await run_job(cluster, WORK.job(too_much))
        assert "curl" in str(caught.value) or "space" in str(caught.value)
