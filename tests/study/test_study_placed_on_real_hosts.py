"""Every study that is shipped, planned on the CPUs of 16 real computers.

A placement is sensible if

- a pinned subject has CPUs that it may use, as many as vCPUs, all of one design of core;
- isolated CPUs are used before others;
- no two vCPUs share a core where there are enough cores;
- the first CPU, where a kernel does its housekeeping, is left out where there are enough CPUs;
- the CPUs are on one NUMA node where one has enough cores, and enough memory if any such one has;
- neighbours are where the scenario wants them, and not on the subject's core before they must;
- all arms of a scenario have the same CPUs.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from hosts.snapshots import NAMES as COMPUTERS
from hosts.snapshots import snapshot
from study.shipped_studies import NAMES, shipped_plan
from tare.errors import InputError
from tare.run.preflight.checking import arranged_cpus
from tare.study.model.scenario import Scenario
from tare.study.planning.cells import Batch
from tare.study.planning.cpu_choice import CpuChoice, arranged
from tare.study.planning.host_cpus import HostCpus
from tare.study.planning.placement import place
from tare.study.planning.plan import Plan

ISOLATED = "20em64t-hybrid-1p6c2t+2ca4co1t with 8-11 isolated"


def computer(name: str) -> HostCpus:
    if name == ISOLATED:
        return replace(snapshot(COMPUTERS[4]), isolated=frozenset(range(8, 12)))
    return snapshot(name)


def plan_on(study: str, cpus: HostCpus) -> Plan | None:
    """Plan a study; None where a computer has too few CPUs for its baseline."""
    try:
        return shipped_plan(study, cpus)
    except InputError as error:
        few = "CPU" in error.message or "core" in error.message
        assert few and len(cpus.online) < 8, (study, error)
        return None


@pytest.mark.parametrize("name", [*COMPUTERS, ISOLATED])
def test_every_shipped_study_is_placed_sensibly(name: str) -> None:
    placed = 0
    for study in NAMES:
        plan = plan_on(study, computer(name))
        for batch in plan.batches if plan else ():
            cpus = arranged_cpus(plan.study, batch.host, computer(name)) if plan else None
            assert cpus is not None
            if batch.placement.subject:
                sensible_subject(batch, cpus, batch.placement.subject)
                placed += 1
            sensible_neighbours(plan, batch, cpus)
        if plan and not plan.study.blocks.duet:
            same_on_all_arms(plan)
    assert placed > 50


def sensible_subject(batch: Batch, cpus: HostCpus, subject: tuple[int, ...]) -> None:
    where = (batch.arm, batch.scenario, subject)
    assert set(subject) <= set(cpus.machines) <= set(cpus.online), where
    assert len(set(subject)) == len(subject) == batch.vcpus, where
    assert len({cpus.design(cpu) for cpu in subject}) == 1, where
    cores = {cpus.core(cpu) for cpu in cpus.machines if cpu != cpus.online[0]}
    if len(cores) >= batch.vcpus:
        assert len({cpus.core(cpu) for cpu in subject}) == batch.vcpus, where
    if len(cpus.machines) > batch.vcpus:
        assert cpus.online[0] not in subject, where
    isolated = {cpus.core(cpu) for cpu in cpus.isolated}
    if len(isolated) >= batch.vcpus:
        assert set(subject) <= cpus.isolated, where
    by_node = {cpus.node(cpu): set[frozenset[int]]() for cpu in cpus.machines}
    for cpu in cpus.machines:
        if cpu != cpus.online[0]:
            by_node[cpus.node(cpu)].add(cpus.core(cpu))
    if any(len(own) >= batch.vcpus for own in by_node.values()):
        assert len({cpus.node(cpu) for cpu in subject}) == 1, where


def sensible_neighbours(plan: Plan | None, batch: Batch, cpus: HostCpus) -> None:
    assert plan is not None
    subject = set(batch.placement.subject)
    wanted = iter(batch.placement.neighbours)
    for neighbours in plan.study.scenarios[batch.scenario].neighbours:
        many = neighbours.count
        own = [next(wanted) for _ in range(many)] if isinstance(many, int) else list(wanted)
        shared = {cpu for each in subject for cpu in cpus.core(each)}
        free = set(cpus.machines) - shared - {cpus.online[0]}
        for number, each in enumerate(own):
            assert set(each.cpus) <= set(cpus.machines)
            if neighbours.cpus == "same":
                assert set(each.cpus) == subject
            elif neighbours.cpus != "any":
                assert each.cpus and not subject & set(each.cpus)
            if neighbours.cpus == "sibling":
                assert set(each.cpus) <= shared
            if neighbours.cpus == "other" and number < len(free):
                assert each.cpus[0] in free


def same_on_all_arms(plan: Plan) -> None:
    for scenario in {batch.scenario for batch in plan.batches}:
        placed: dict[tuple[str, int], set[tuple[int, ...]]] = {}
        for batch in plan.batches:
            if batch.scenario == scenario:
                size = (batch.host, batch.vcpus)
                placed.setdefault(size, set()).add(batch.placement.subject)
        assert all(len(subjects) == 1 for subjects in placed.values()), placed


def test_memory_and_cpus_are_on_one_node_where_it_fits() -> None:
    pinned = Scenario.model_validate({"subject": {"cpus": "pinned"}})
    cpus = HostCpus(
        online=tuple(range(8)),
        nodes={cpu: cpu // 4 for cpu in range(8)},
        memory={0: 8 << 30, 1: 1 << 30},
    )
    assert place(pinned, cpus, 2, True, memory=1 << 30).subject == (6, 7)
    assert place(pinned, cpus, 2, True, memory=4 << 30).subject == (2, 3)
    far = place(pinned, cpus, 2, True, memory=16 << 30)
    assert "too little memory" in " ".join(far.notes)


def test_machines_of_a_hybrid_computer_keep_to_one_kind_and_the_plan_says_so() -> None:
    cpus = snapshot("20em64t-hybrid-1p6c2t+2ca4co1t")
    fast = arranged(cpus, CpuChoice())
    assert fast.machines == tuple(range(12))
    slow = arranged(cpus, CpuChoice(cores="efficiency"))
    assert slow.machines == tuple(range(12, 20))
    assert slow.within == tuple(range(12, 20))
    many = arranged(snapshot("nvidia-dgx-gb10"), CpuChoice(), wanted=8)
    assert len(many.machines) == 10
    notes = " ".join(shipped_plan("realtime", cpus).notes)
    assert "efficiency cores: CPUs 12-19" in notes
    assert "machines get performance cores" in notes
    sibling = Scenario.model_validate(
        {"subject": {"cpus": "pinned"}, "neighbours": [{"load": "x", "cpus": "sibling"}]}
    )
    placed = place(sibling, fast, 1, True)
    assert placed.neighbours[0].cpus == (10,) and placed.subject == (11,)


class Counted(dict[int, tuple[int, ...]]):
    """Siblings that count how often they are looked up."""

    looked = 0

    def get(self, key: int, default: object = None) -> object:  # type: ignore[override]
        self.looked += 1
        return super().get(key, default)


def test_placing_looks_at_each_cpu_a_few_times_however_many_vcpus_there_are() -> None:
    every = range(1792)
    siblings = Counted({cpu: (cpu % 896, cpu % 896 + 896) for cpu in every})
    nodes = {cpu: cpu % 896 // 112 for cpu in every}
    cpus = HostCpus(online=tuple(every), siblings=siblings, nodes=nodes)
    pinned = Scenario.model_validate({"subject": {"cpus": "pinned"}})
    placed = place(pinned, cpus, 512, True)
    assert len(placed.subject) == 512
    assert len({cpus.core(cpu) for cpu in placed.subject}) == 512
    assert siblings.looked <= 2 * len(every)
