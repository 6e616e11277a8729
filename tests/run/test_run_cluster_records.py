"""The records of a job: copies, page caches, and the whole output of a failed job."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from run.run_pretended_cluster import (
    PretendedMachine,
    PretendedMember,
    asked_of,
    client,
    done,
    layout_of,
    pretended,
)
from run.test_run_cluster_state import state_words
from tare.errors import MachineFault, WorkloadFault
from tare.platforms.contract import Machine
from tare.run.topologies.cluster import cluster as clusters
from tare.run.topologies.cluster.member import SHORT_S
from tare.workloads.mapreduce.daemons import OWN_CONF
from tare.workloads.mapreduce.job import Job, JobStep
from tare.workloads.mapreduce.outside import properties_of
from workloads.workload_kinds import JOBS


def right(count: object) -> str:
    return ""


def job_of(name: str, **parameters: Any) -> Job:
    return JOBS[name].job(JOBS[name].parameters.model_validate(parameters))


@pytest.mark.parametrize(("wanted", "made"), [(None, 3), (1, 1), (3, 3), (9, 4)])
async def test_copies_are_those_that_the_job_asks_for_as_far_as_there_are_slaves(
    wanted: int | None, made: int
) -> None:
    job = Job((JobStep("put", script=":"),), right, copies=wanted)
    assert (await done(pretended(slaves=4), job))["replication"] == made


@pytest.mark.parametrize("name", JOBS)
def test_every_job_says_how_many_copies_of_its_output_it_asks_for(name: str) -> None:
    # TeraSort's sorted output is not what `replication` is about, nor what the cluster has.
    default, asked = (1, 1) if name == "terasort" else (None, 2)
    assert job_of(name).copies == default
    assert job_of(name, replication=2).copies == asked
    if name == "terasort":
        assert job_of(name, output_replication=3).copies == 3


@given(st.integers(1, 16), st.integers(1, 16))
def test_no_machine_holds_two_copies(wanted: int, slaves: int) -> None:
    layout = layout_of(slaves)
    assert layout.copies(wanted) == min(wanted, slaves)
    assert layout.copies(None) == layout.effective_replication <= slaves


async def test_client_with_its_own_archives_gets_copies_in_both_files() -> None:
    cluster = pretended(lambda script, words: client("done") if "TARE-BEGAN" in script else "")
    step = JobStep(
        "query", "a.Main", alone=True, archives="/opt/x.jar", properties={"dfs.replication": 1}
    )
    await done(cluster, Job((step,), right))
    (written,) = (each.words for each in asked_of(cluster) if OWN_CONF in each.script)
    # Which one Hadoop reads last depends on what the client happens to load first.
    mapred, hdfs = (properties_of(text, Path("x.xml")) for text in written)
    assert mapred["dfs.replication"] == hdfs["dfs.replication"] == "1"
    assert mapred["mapreduce.framework.name"] == "yarn"
    assert hdfs["dfs.blocksize"] == str(cluster.layout.block)


async def test_all_words_of_a_client_that_failed_and_of_its_tasks_are_kept() -> None:
    words = client("\n".join(f"line {number}" for number in range(100)), code=1)
    tasks = "=== application_1/container_2/syslog\njava.io.IOException: the reason\n"

    def answer(script: str, arguments: tuple[str, ...]) -> str:
        if "TARE-BEGAN" in script:
            return words
        return tasks if "containers/application_" in script else ""

    cluster = pretended(answer, slaves=2)
    with pytest.raises(MachineFault) as caught:
        await done(cluster, Job((JobStep("count", "a.WordCount", measured=True),), right))
    # The reason stays short; what is kept is whole.
    assert str(caught.value).startswith("count: WordCount failed")
    assert "line 50" not in str(caught.value)
    assert cluster.notes == {
        "count-client.log": words,
        "slave-1-containers.log": tasks,
        "slave-2-containers.log": tasks,
    }


async def test_a_job_that_is_done_leaves_no_notes() -> None:
    cluster = pretended()
    await done(cluster, Job((JobStep("put", script=":"),), right))
    assert cluster.notes == {}


@pytest.mark.parametrize("fails", [False, True])
async def test_a_guest_whose_caches_stay_does_not_count_as_cold(fails: bool) -> None:
    def answer(script: str, words: tuple[str, ...]) -> str:
        assert "drop_caches" in script and "||" not in script
        if fails:
            raise WorkloadFault("drop_caches: Read-only file system")
        return ""

    machine = PretendedMachine(shares_clock=False, reported={"dropped": "the disk's file"})
    member = PretendedMember("slave-1", cast(Machine, machine), "10.0.0.1", answer)
    result = await member.drop_caches()
    assert result["dropped"] == "the disk's file"
    reason = "not dropped: drop_caches: Read-only file system"
    assert result["guest"] == (reason if fails else "dropped")


async def test_a_process_of_the_host_has_no_caches_of_its_own() -> None:
    machine = PretendedMachine(reported={"dropped": "all caches of files"})
    member = PretendedMember("slave-1", cast(Machine, machine), "10.0.0.1")
    assert await member.drop_caches() == {"dropped": "all caches of files"}
    assert member.asked == []


@pytest.mark.parametrize("times", [1.0, clusters.EMULATED])
async def test_emulated_daemons_are_asked_seldom_and_waited_for(
    monkeypatch: pytest.MonkeyPatch, times: float
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    answers = iter([state_words(live=0), state_words(live=1, nodes=1)])
    cluster = pretended(
        lambda script, words: next(answers) if "NameNodeInfo" in script else "",
        slaves=1,
        slower=times,
    )
    await cluster.bring_up()
    assert slept == [clusters.LOOK_S * times]
    asked = [each for each in asked_of(cluster) if "NameNodeInfo" in each.script]
    assert [each.words[1] for each in asked] == [f"{clusters.ANSWER_S * times:.0f}"] * 2
    # Time for all three answers, or the question itself would fail.
    assert all(
        each.timeout_s >= clusters.ASKED * clusters.ANSWER_S * times + SHORT_S for each in asked
    )
