"""Clusters in a study: their machines, where they run, and which workloads are jobs on one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from study.shipped_studies import shipped_plan
from tare.run.catalog import build_catalog
from tare.study.model.scenario import Scenario
from tare.study.model.study import Study
from tare.study.planning.host_cpus import HostCpus
from tare.study.planning.placement import place
from tare.study.planning.plan import CLUSTER_S, ArmFacts, HostFacts, Plan, make_plan
from tare.study.reading.load import load_study
from tare.study.reading.yamltext import StudyError
from tare.workloads import WORKLOADS
from tare.workloads.mapreduce.workload import ClusterWorkload

STUDY = """
study: small
baseline: bare
blocks: {least: 2, most: 2}
shape: {vcpus: 1, memory: 1GiB, disk: 1GiB}
arms:
  bare: {platform: bare}
scenarios:
  two: {cluster: {slaves: 2}}
  alone: {}
workloads:
  terasort: {size: 1MB}
  numeric-sort: {}
"""


def loaded(folder: Path, text: str = STUDY) -> Study:
    path = folder / "small.yaml"
    path.write_text(text)
    return load_study(path, build_catalog())


def planned(folder: Path, text: str = STUDY) -> Plan:
    facts = {"bare": ArmFacts(usable=True, max_vcpus=4, pinning=True, boot_s=0.1)}
    hosts = {"": HostFacts(HostCpus((0, 1, 2, 3)))}
    return make_plan(loaded(folder, text), 1, facts, hosts, WORKLOADS)


def scenario(**cluster: object) -> Scenario:
    return Scenario.model_validate({"subject": {"cpus": "pinned"}, "cluster": cluster})


@given(st.integers(1, 16), st.sampled_from(["apart", "with-first"]))
def test_a_cluster_has_as_many_machines_as_slaves_and_a_master(slaves: int, master: str) -> None:
    wanted = scenario(slaves=slaves, master=master)
    placed = place(wanted, HostCpus(tuple(range(8))), 1, True)
    assert 1 + len(placed.companions) == slaves + (master == "apart")
    assert [each.role for each in placed.companions][-1:] == (
        [] if (slaves, master) == (1, "with-first") else [f"slave-{slaves}"]
    )
    assert placed.cluster == wanted.cluster


def test_a_master_that_is_a_slave_too_has_a_slaves_size(tmp_path: Path) -> None:
    study = loaded(
        tmp_path,
        STUDY.replace("slaves: 2", "slaves: 2, memory: 2GiB, vcpus: 2, master: with-first"),
    )
    first = study.scenarios["two"]
    placed = place(first, HostCpus(tuple(range(8))), 2, True)
    assert study.vcpus_of("bare", "two", 8) == 2
    assert placed.subject_memory == 2 << 30 == placed.companions[0].memory
    apart = place(scenario(slaves=2, memory="2GiB"), HostCpus(tuple(range(8))), 1, True)
    assert apart.subject_memory is None
    assert study.vcpus_of("bare", "alone", 8) == 1


@given(st.integers(1, 8), st.integers(1, 3), st.integers(2, 16))
def test_slaves_have_cpus_of_their_own_as_far_as_there_are_enough(
    slaves: int, vcpus: int, online: int
) -> None:
    cpus = HostCpus(tuple(range(online)))
    if vcpus >= online:
        return
    placed = place(scenario(slaves=slaves, cpus="own"), cpus, vcpus, True)
    taken = [set(each.cpus) for each in placed.companions]
    assert all(1 <= len(each) <= vcpus and not each & set(placed.subject) for each in taken)
    enough = slaves * vcpus <= online - vcpus
    assert enough == (not any("slaves" in note for note in placed.notes))
    if enough:
        assert len(set().union(*taken)) == slaves * vcpus


def test_slaves_take_turns_on_the_hosts_that_are_named() -> None:
    wanted = scenario(slaves=3, cpus="own", hosts=["here", "there"])
    placed = place(wanted, HostCpus((0, 1, 2, 3)), 1, True, "here")
    assert [each.host for each in placed.companions] == ["", "there", ""]
    first, abroad, third = (each.cpus for each in placed.companions)
    assert abroad == () and len({*first, *third}) == 2


@pytest.mark.parametrize("slaves", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("master", ["apart", "with-first"])
def test_the_first_slave_is_on_the_first_host_whether_it_is_the_master_or_not(
    slaves: int, master: str
) -> None:
    hosts = ["here", "b", "c"]
    wanted = scenario(slaves=slaves, master=master, hosts=hosts)
    placed = place(wanted, HostCpus((0, 1, 2, 3)), 1, True, "here")
    turns = [hosts[number % 3] for number in range(slaves)]
    own = turns if master == "apart" else turns[1:]
    assert [each.host or "here" for each in placed.companions] == own


def test_settings_that_do_not_apply_to_other_hosts_are_noted() -> None:
    cpus = HostCpus((0, 1, 2, 3))
    own = place(scenario(slaves=3, cpus="own", hosts=["here", "b", "c"]), cpus, 1, True, "here")
    assert own.notes == (
        "slaves on b, c are bound to no CPUs: those are the arm's own host's",
        "of hosts the arm's own alone is sampled every second, and not b, c",
    )
    anywhere = place(scenario(slaves=2, hosts=["here", "b"]), cpus, 1, True, "here")
    assert [note for note in anywhere.notes if "slaves" in note] == []
    assert "sampled every second, and not b" in anywhere.notes[-1]
    assert place(scenario(slaves=2, hosts=["here"]), cpus, 1, True, "here").notes == ()


def test_the_study_of_two_hosts_has_as_many_slaves_on_one_as_on_both() -> None:
    plan = shipped_plan("mapreduce-hosts", 8)
    assert not [skip for skip in plan.skipped if skip.arm in ("bare", "oci")], plan.skipped
    where = {
        batch.scenario: Counter(each.host or "here" for each in batch.placement.companions)
        for batch in plan.batches
    }
    assert where == {
        "two": {"here": 2},
        "two-apart": {"here": 1, "there": 1},
        "four": {"here": 4},
        "four-apart": {"here": 2, "there": 2},
    }
    # One host and two differ in nothing else: no machine has a CPU to itself.
    assert not any(each.cpus for batch in plan.batches for each in batch.placement.companions)
    assert {cell.kind for batch in plan.batches for cell in batch.cells} == {"dfsio"}
    assert any("and not there" in note for note in plan.notes)


def test_jobs_run_on_clusters_and_nothing_else_does(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    cells = {batch.scenario: [cell.kind for cell in batch.cells] for batch in plan.batches}
    assert cells == {"two": ["terasort"], "alone": ["numeric-sort"]}
    reasons = {(skip.scenario, skip.workload): skip.reason for skip in plan.skipped}
    assert "cluster: {slaves: 2}" in reasons["alone", "terasort"]
    assert reasons["two", "numeric-sort"] == "numeric-sort is not a job on a cluster"


def test_the_estimate_counts_every_boot_and_the_cluster(tmp_path: Path) -> None:
    boots = {batch.scenario: batch.boot_s for batch in planned(tmp_path).batches}
    assert boots["alone"] == pytest.approx(0.1)
    assert boots["two"] == pytest.approx(0.3 + CLUSTER_S)


def test_cluster_of_unknown_hosts_is_reported_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="there is no host 'nowhere'"):
        loaded(tmp_path, STUDY.replace("slaves: 2", "slaves: 2, hosts: [nowhere]"))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [("slaves: 17", "16"), ("slaves: 0", "1"), ("slaves: 2, cpus: own", "subject: {cpus: pinned}")],
)
def test_impossible_cluster_is_reported(tmp_path: Path, wrong: str, words: str) -> None:
    with pytest.raises(StudyError, match=words):
        loaded(tmp_path, STUDY.replace("slaves: 2", wrong))


def test_a_stored_cluster_is_the_one_that_was_written(tmp_path: Path) -> None:
    study = loaded(tmp_path, STUDY.replace("slaves: 2", "slaves: 2, block: 16MiB, sync: true"))
    stored = study.scenarios["two"].model_dump(mode="json")
    assert Scenario.model_validate(stored) == study.scenarios["two"]


def test_only_cluster_workloads_have_slave_roles() -> None:
    assert all(
        (kind.topology == "cluster") == (kind.roles > frozenset({"slave-1"}))
        for kind in WORKLOADS.values()
    )


def test_slaves_apart_are_on_the_studys_hosts(tmp_path: Path) -> None:
    apart = STUDY.replace("slaves: 2", "slaves: 2, placement: apart")
    two = apart.replace(
        "baseline: bare", "baseline: bare\nhosts: {here: {ssh: a}, there: {ssh: b}}"
    )
    study = loaded(tmp_path, two)
    cluster = study.scenarios["two"].cluster
    assert cluster is not None and cluster.hosts == ("here", "there")
    with pytest.raises(StudyError, match="needs at least two hosts"):
        loaded(tmp_path, apart)


def test_slaves_on_hosts_are_not_together() -> None:
    assert scenario(slaves=2, hosts=["a", "b"], placement="apart").cluster is not None
    with pytest.raises(ValueError, match="spreads the slaves: write `placement: apart`"):
        scenario(slaves=2, hosts=["a", "b"], placement="together")


@given(st.integers(1, 16), st.sampled_from(["dfsio", "terasort", "wordcount"]))
def test_the_data_of_each_slave_are_as_many_however_many_there_are(slaves: int, name: str) -> None:
    kind = WORKLOADS[name]
    whole = kind.parameters.model_validate({})
    assert kind.on_slaves(whole, slaves) == whole
    each = kind.parameters.model_validate({"per_slave": True})
    more = kind.on_slaves(each, slaves)
    assert isinstance(kind, ClusterWorkload) and kind.grows
    for field in kind.grows:
        assert getattr(more, field) == slaves * getattr(each, field)
    assert kind.expected_s(more) >= kind.expected_s(each)


def test_the_estimate_counts_the_data_of_all_slaves(tmp_path: Path) -> None:
    def expected_s(text: str) -> float:
        batches = {batch.scenario: batch for batch in planned(tmp_path, text).batches}
        return batches["two"].cells[0].expected_s

    large = STUDY.replace("size: 1MB", "size: 10GB")
    each = STUDY.replace("size: 1MB", "size: 10GB, per-slave: true")
    assert expected_s(each) > 1.5 * expected_s(large)
