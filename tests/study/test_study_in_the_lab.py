"""The unchanged studies of the sources in the lab: their plans, and their memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from study.shipped_studies import FOLDER, assumed
from tare.errors import InputError
from tare.platforms.bare import BareOptions
from tare.run.catalog import build_catalog
from tare.run.hosts.lab import LAB_BOOT_S, lab_cpus
from tare.run.hosts.lab_bare import LabBare
from tare.study.model.scenario import Scenario
from tare.study.model.study import Study
from tare.study.planning.plan import HostFacts, Plan, make_plan
from tare.study.reading.changes import Changes
from tare.study.reading.load import load_study
from tare.workloads import WORKLOADS

STUDIES = ("realtime", "components", "interference", "knobs")
HYPERVISORS = ("kvm", "xen-pv", "xen-pvh", "xen-hvm")
SYSTEM = 1 << 30
"""The least memory that is left for the lab's own system, in bytes."""


def in_the_lab(name: str, *values: str) -> Study:
    changes = Changes(host="lab", values=values)
    return load_study(FOLDER / f"{name}.yaml", build_catalog(), changes)


def plan(study: Study) -> Plan:
    cpus = lab_cpus(study.lab)
    facts = {arm: assumed(study, arm, len(cpus.online)) for arm in study.arms}
    bare = LabBare(study.lab).stated(BareOptions()).capabilities
    for arm, each in study.arms.items():
        if each.platform == "bare":
            facts[arm] = replace(facts[arm], knobs=bare.knobs, missing_knobs=bare.missing_knobs)
    return make_plan(study, 1, facts, {"": HostFacts(cpus, LAB_BOOT_S)}, WORKLOADS)


def memory_of(study: Study, scenario: Scenario, free: int) -> int:
    """Return the memory of a scenario's machines together, in bytes."""
    own = study.shape.memory
    counts = [free if each.count == "fill" else each.count for each in scenario.neighbours]
    memories = [each.memory or own for each in scenario.neighbours]
    return own + sum(count * size for count, size in zip(counts, memories, strict=True))


def test_the_hosts_kernel_of_an_arm_in_the_lab_is_the_labs() -> None:
    """It is never that of this computer, which emulates the lab."""
    study = in_the_lab("components", "kernel=host")
    assert {study.kernel_of(arm) for arm in study.arms} == {"generic"}
    other = in_the_lab("components", "kernel=cloud")
    assert {other.kernel_of(arm) for arm in other.arms} == {"cloud"}
    here = load_study(FOLDER / "components.yaml", build_catalog(), Changes(values=("kernel=host",)))
    assert {here.kernel_of(arm) for arm in here.arms if not here.in_lab(arm)} == {"host"}


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_is_planned_whole_for_kvm_and_xen_in_the_large_lab(name: str) -> None:
    study = in_the_lab(name, "lab=large")
    assert study.host.kind == "lab" and study.lab.cpus == 4
    planned = plan(study)
    lacking = [skip for skip in planned.skipped if skip.arm in HYPERVISORS]
    assert lacking == []
    cells = {(cell.arm, cell.scenario) for batch in planned.batches for cell in batch.cells}
    # The baseline's cells are all that is to be measured.
    wanted = {scenario for arm, scenario in cells if arm == study.baseline}
    assert wanted == set(study.scenarios)
    for arm in HYPERVISORS:
        assert {scenario for each, scenario in cells if each == arm} == wanted
    machines = {memory_of(study, each, 3) for each in study.scenarios.values()}
    assert max(machines) + SYSTEM <= study.lab.memory


def test_the_bare_machine_of_the_lab_has_the_ordinary_policy_and_no_other_knob() -> None:
    planned = plan(in_the_lab("knobs"))
    assert "bare" in planned.arms
    with pytest.raises(InputError, match=r"'bare' cannot run here: wants the .* nice"):
        plan(in_the_lab("knobs", "arms.bare.scheduling={nice: -5}"))


def test_three_neighbours_of_the_interference_study_have_no_room_in_the_usual_lab() -> None:
    study = in_the_lab("interference")
    tight = {
        name
        for name, scenario in study.scenarios.items()
        if memory_of(study, scenario, 3) + SYSTEM > study.lab.memory
    }
    assert tight == set(study.scenarios) - {"alone", "network-one"}
