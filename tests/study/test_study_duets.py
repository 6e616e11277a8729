"""Two arms at once: requirements on the study, placement and refusals."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from study.study_catalog import ABLE, KINDS
from study.study_pairs import plan_of, study_of, two_arms
from tare.errors import InputError
from tare.study.planning.cells import cell_label
from tare.study.planning.host_cpus import HostCpus

DUET = two_arms("duet")


@given(st.integers(0, 2**63 - 1), st.integers(0, 20))
def test_arms_exchange_their_cores_evenly_and_measure_alike(seed: int, pair: int) -> None:
    plan = plan_of(study_of(DUET), seed=seed)
    cores: Counter[tuple[str, tuple[int, ...]]] = Counter()
    for number in (2 * pair + 1, 2 * pair + 2):
        first, second = plan.block(number)
        assert {first.arm, second.arm} == {"bare", "kvm"}
        assert set(first.placement.subject) & set(second.placement.subject) == set()
        labels = [[cell_label(cell.id) for cell in batch.cells] for batch in (first, second)]
        assert labels[0] == labels[1]
        assert len(labels[0]) == 6
        cores.update((batch.arm, batch.placement.subject) for batch in (first, second))
    assert cores == {("bare", (0,)): 1, ("bare", (1,)): 1, ("kvm", (0,)): 1, ("kvm", (1,)): 1}


def test_duet_is_noted_in_the_plan_and_takes_as_long_as_its_longer_arm() -> None:
    plan = plan_of(study_of(DUET), kvm=replace(ABLE, boot_s=5.0))
    assert any("on CPU 0 and CPU 1, which they swap" in note for note in plan.notes)
    assert plan.block_s == 5.0 + 6 * 2.0


@pytest.mark.parametrize(
    ("cpus", "message"),
    [
        (HostCpus(online=(3,)), "needs 2 cores, one for each arm; this host has 1"),
        (
            HostCpus(online=(0, 1), siblings={0: (0, 1), 1: (0, 1)}),
            "needs 2 cores, one for each arm; this host has 1",
        ),
        (HostCpus(online=(0, 1), nodes={0: 0, 1: 1}), "on one NUMA node"),
    ],
)
def test_too_few_cores_are_refused_with_the_reason(cpus: HostCpus, message: str) -> None:
    with pytest.raises(InputError, match=message):
        plan_of(study_of(DUET), cpus)


def test_cells_without_a_partner_are_left_out_with_the_reason() -> None:
    with pytest.raises(InputError, match="only bare can run here"):
        plan_of(study_of(DUET), kvm=replace(ABLE, usable=False, reason="no KVM"))
    both = DUET + "  switch: {}\n"
    plan = plan_of(study_of(both), kvm=replace(ABLE, lacks={"switch": "no threads"}))
    skipped = {(skip.arm, skip.workload, skip.reason) for skip in plan.skipped}
    assert ("bare", "switch", "a duet measures only what both of its arms can run") in skipped
    assert all(cell.workload == "tick" for batch in plan.block(1) for cell in batch.cells)


def test_real_time_threads_leave_the_host_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KINDS["tick"], "realtime", True)
    with pytest.raises(InputError, match="would leave the host no CPU"):
        plan_of(study_of(DUET))
    placed = plan_of(study_of(DUET), HostCpus(online=(0, 1, 2))).block(1)
    assert {batch.placement.subject for batch in placed} == {(1,), (2,)}


@pytest.mark.parametrize("need", ["disk", "network"])
def test_duets_that_need_a_single_resource_twice_are_refused(
    need: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KINDS["tick"], "needs", frozenset({need}))
    with pytest.raises(InputError, match="one disk or network"):
        plan_of(study_of(DUET))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("  kvm:", "  bare-again: {twin-of: bare}\n  kvm:"), r"s\.yaml:3:.*study has 3: remove"),
        (("cpus: pinned", "cpus: any"), r"s\.yaml:8:.*need CPUs of their own"),
        (
            (
                "{subject: {cpus: pinned}}",
                "{subject: {cpus: pinned}, neighbours: [{load: cpu-load}]}",
            ),
            "other’s neighbour; remove other machines",
        ),
        (("accelerator: kvm}", "accelerator: kvm, host-trace: true}"), "side is not recorded"),
        (("scenarios:\n  pinned: {subject: {cpus: pinned}}\n", ""), "a duet needs a scenario"),
    ],
)
def test_studies_that_cannot_be_duets_are_refused(change: tuple[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        study_of(DUET.replace(*change))
