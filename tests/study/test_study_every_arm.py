"""Every arm of every shipped study, planned on a host that lacks nothing its platforms state."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tare.run.catalog import build_catalog
from tare.run.study_cells import RUNS, SHOWN, best_plan, cells_by_platform, named_hypervisors
from tare.study.model.study import Study
from tare.study.planning.host_cpus import HostCpus
from tare.study.reading.load import load_study
from tare.study.reading.shipped import shipped_studies


@cache
def study_of(name: str) -> Study:
    catalog = build_catalog()
    return load_study(shipped_studies()[name], catalog, hosts=named_hypervisors(Path("/nowhere")))


@pytest.mark.parametrize("name", sorted(shipped_studies()))
def test_every_arm_of_a_shipped_study_has_cells_where_its_host_lacks_nothing(name: str) -> None:
    study = study_of(name)
    assert not {arm: why for arm, why in study.left_out.items() if "hypervisors" in why}
    plan = best_plan(study)
    without = {
        arm: sorted({skip.reason for skip in plan.skipped if skip.arm == arm})
        for arm in study.arms
        if not any(batch.cells for batch in plan.batches if batch.arm == arm)
    }
    assert not without


@pytest.mark.parametrize("name", ["components", "knobs", "quick"])
def test_scenarios_that_bind_run_unpinned_where_a_platform_cannot_bind(name: str) -> None:
    study = study_of(name)
    plan = best_plan(study)
    hyperv = [batch for batch in plan.batches if study.arms[batch.arm].platform == "hyperv"]
    free = {batch.scenario for batch in hyperv if batch.placement.unpinned}
    assert free == {name for name, scenario in study.scenarios.items() if scenario.unpinned}
    assert all(not batch.placement.subject for batch in hyperv)
    for scenario in free:
        (note,) = (each for each in plan.notes if f"{scenario}: " in each and "unpinned" in each)
        assert "hyperv" in note and "cannot bind vCPUs" in note
    bound = [b for b in plan.batches if b.arm == "bare" and b.scenario in free]
    assert bound and all(batch.placement.subject for batch in bound)


def test_on_a_host_with_one_cpu_hyper_v_shows_weight_and_reservation() -> None:
    study = study_of("knobs")
    plan = best_plan(study, HostCpus((0,)))
    ran = {(batch.arm, batch.scenario) for batch in plan.batches}
    for arm in ("hyperv", "hyperv-weight", "hyperv-half", "hyperv-reserved"):
        assert {(arm, "alone"), (arm, "contended")} <= ran


@pytest.mark.parametrize(("name", "kind"), [("load-balancer", "proxy"), ("mapreduce", "analytics")])
def test_the_plan_says_which_toolbox_a_live_image_must_include(name: str, kind: str) -> None:
    (note,) = (each for each in best_plan(study_of(name)).notes if "tare image live" in each)
    assert note.endswith(f"must include the toolbox `{kind}`: tare image live --toolbox {kind}")
    assert "ovirt-em" in note and "proxmox" in note and "incus" in note and "libvirt" not in note


@pytest.mark.parametrize("name", SHOWN)
def test_every_hypervisor_runs_each_study_of_the_papers_in_full(name: str) -> None:
    found = cells_by_platform(study_of(name))
    assert {"hyperv", "vsphere", "xenserver", "ovirt", "proxmox", "incus", "libvirt"} <= set(found)
    partly = {platform for platform, cells in found.items() if cells.word != RUNS}
    skipped = {each for name in partly for of in found[name].skipped.values() for each in of}
    # Hyper-V's legacy card has no bandwidth management. Containers are not hypervisors: gVisor and
    # Kata give no disk that is not cached by the host, and gVisor no network.
    if name == "load-balancer":
        assert skipped == {("hyperv-em", "linked")}
    else:
        assert {arm for arm, _ in skipped} == (
            {"gvisor", "kata"} if name == "components" else set()
        )
        assert ("kata", "net-stream") not in skipped
