"""Every arm of every shipped study, planned on a host that lacks nothing its platforms state."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from study.test_study_hypervisors import named
from tare.platforms.contract import ANY_BOOT, Platform
from tare.registry import installed
from tare.run.catalog import build_catalog
from tare.run.hosts.assumed import AssumedHost, best_case
from tare.run.lifecycle.setup import AssumedGrounds
from tare.run.preflight.checking import facts_of, plan_study
from tare.study.model.study import Study
from tare.study.planning.host_cpus import HostCpus
from tare.study.planning.plan import Plan
from tare.study.reading.load import load_study
from tare.study.reading.shipped import shipped_studies

CPUS = HostCpus(
    tuple(range(16)),
    siblings={cpu: (cpu % 8, cpu % 8 + 8) for cpu in range(16)},
    nodes={cpu: cpu % 8 // 4 for cpu in range(16)},
)
"""Two sockets of four cores with two threads each."""


@cache
def study_of(name: str) -> Study:
    catalog = build_catalog()
    return load_study(shipped_studies()[name], catalog, hosts=named(Path("/nowhere")))


def planned(study: Study, cpus: HostCpus = CPUS) -> Plan:
    parts = installed()

    def boot_of(platform: Platform[Any], options: Any, release: object) -> str:
        return ANY_BOOT

    hosts = {name: AssumedHost(name, parts.platforms, cpus, boot_of) for name in study.computers}
    grounds = AssumedGrounds(hosts, parts.workloads)
    verdicts = {
        arm: replace(best_case(hosts[study.host_of(arm)], study, arm), emulated=False)
        for arm in study.arms
    }
    return plan_study(grounds, study, 1, facts_of(grounds, study, verdicts))


@pytest.mark.parametrize("name", sorted(shipped_studies()))
def test_every_arm_of_a_shipped_study_has_cells_where_its_host_lacks_nothing(name: str) -> None:
    study = study_of(name)
    assert not {arm: why for arm, why in study.left_out.items() if "hypervisors" in why}
    plan = planned(study)
    without = {
        arm: sorted({skip.reason for skip in plan.skipped if skip.arm == arm})
        for arm in study.arms
        if not any(batch.cells for batch in plan.batches if batch.arm == arm)
    }
    assert not without


@pytest.mark.parametrize("name", ["components", "knobs", "quick"])
def test_scenarios_that_bind_run_unpinned_where_a_platform_cannot_bind(name: str) -> None:
    study = study_of(name)
    plan = planned(study)
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
    plan = planned(study, HostCpus((0,)))
    ran = {(batch.arm, batch.scenario) for batch in plan.batches}
    for arm in ("hyperv", "hyperv-weight", "hyperv-half", "hyperv-reserved"):
        assert {(arm, "alone"), (arm, "contended")} <= ran


@pytest.mark.parametrize(("name", "kind"), [("load-balancer", "proxy"), ("mapreduce", "analytics")])
def test_the_plan_says_which_toolbox_a_live_image_must_include(name: str, kind: str) -> None:
    (note,) = (each for each in planned(study_of(name)).notes if "tare image live" in each)
    assert note.endswith(f"must include the toolbox `{kind}`: tare image live --toolbox {kind}")
    assert "ovirt-em" in note and "proxmox" in note and "incus" in note and "libvirt" not in note
