"""The CPUs of the host that a plan leaves to a machine's clients and servers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from study.study_catalog import ABLE, KINDS, FixedKind, Switch
from study.test_study_plan import small
from tare.study.planning.host_cpus import HostCpus
from tare.study.planning.plan import HostFacts, make_plan


@pytest.mark.parametrize(
    ("cpus", "subject", "machines", "write"),
    [
        (2, "cpus: pinned, vcpus: 2", "", "scenarios.s.subject.vcpus=1"),
        (2, "cpus: pinned", "", None),
        (2, "cpus: any, vcpus: 2", "", None),
        (2, "cpus: pinned, vcpus: 2", "machines: {peer: {}}", None),
        (1, "cpus: pinned", "", ""),
    ],
)
def test_machine_that_leaves_no_cpu_to_others_is_noted_with_a_remedy(
    cpus: int, subject: str, machines: str, write: str | None
) -> None:
    study = small(
        f"study: x\nbaseline: b\narms:\n  b: {{platform: bare}}\nscenarios:\n"
        f"  s:\n    subject: {{{subject}}}\n    {machines}\nworkloads:\n  switch: {{}}\n"
    )
    kinds = {**KINDS, "switch": FixedKind(Switch, frozenset({"peer"}))}
    hosts = {"": HostFacts(HostCpus(tuple(range(cpus))))}
    notes = make_plan(study, 1, {"b": ABLE}, hosts, kinds).notes
    listed = [note for note in notes if "peer of switch share all CPUs with the subject" in note]
    assert len(listed) == (write is not None)
    assert all(
        note.endswith(f": write `--set {write}`" if write else "bottleneck") for note in listed
    )


@pytest.mark.parametrize(("cpus", "has"), [(1, 1), (2, 1), (3, 1), (4, 2), (5, 3), (9, 3)])
def test_spare_leaves_two_cpus_to_others_and_one_to_the_machine(cpus: int, has: int) -> None:
    study = small(
        "study: x\nbaseline: b\nshape: {vcpus: 3}\narms:\n  b: {platform: bare}\n"
        "scenarios:\n  s:\n    subject: {cpus: pinned, vcpus: spare}\nworkloads:\n  tick: {}\n"
    )
    hosts = {"": HostFacts(HostCpus(tuple(range(cpus))))}
    able = replace(ABLE, max_vcpus=8)
    plan = make_plan(study, 1, {"b": able}, hosts, KINDS)
    (batch,) = plan.batches
    assert (batch.vcpus, len(batch.placement.subject)) == (has, has)
    notes = [note for note in plan.notes if f"{has} of its shape's 3 vCPUs" in note]
    assert len(notes) == (has < 3)
    assert all(f"the host has {cpus} CPUs" in note and "needs 5" in note for note in notes)
