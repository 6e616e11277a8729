"""The shipped studies of neighbours: they have the cells of hwang2013, and take the stated time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tare.registry import installed
from tare.run.catalog import build_catalog
from tare.run.preflight.checking import EMULATED_SLOWDOWN
from tare.study.model.study import Study
from tare.study.planning.host_cpus import HostCpus
from tare.study.planning.plan import ArmFacts, HostFacts, Plan, make_plan
from tare.study.reading.load import load_study
from tare.workloads import WORKLOADS

STUDIES = Path(__file__).parents[2] / "studies"
NAMES = ("interference", "interference-smoke")
LOADS = {"cpu": "cpu-load", "memory": "memory-load", "disk": "disk-load", "network": "net-load"}
MINUTE, HOUR = 60.0, 3600.0


def boot_s(study: Study, arm: str) -> float:
    wanted = study.arms[arm]
    return installed().platforms[wanted.platform].stated(wanted.options).boot_s


def study(name: str) -> Study:
    return load_study(STUDIES / f"{name}.yaml", build_catalog())


def plan(chosen: Study, **lacking: str) -> Plan:
    facts = {
        arm: ArmFacts(
            usable=not arm.startswith(("kvm", "xen", "libvirt", "firecracker", "cloud")),
            max_vcpus=4,
            pinning=True,
            boot_s=boot_s(chosen, arm),
            slowdown=EMULATED_SLOWDOWN if chosen.arms[arm].platform == "qemu" else 1.0,
        )
        for arm in chosen.arms
    }
    if lacking:
        facts["oci"] = replace(facts["oci"], loads_lack=lacking)
    return make_plan(chosen, 1, facts, {"": HostFacts(HostCpus((0, 1)))}, WORKLOADS)


@pytest.mark.parametrize(
    ("name", "limit_s"), [("interference", 6 * HOUR), ("interference-smoke", 15 * MINUTE)]
)
def test_a_study_takes_no_longer_than_promised(name: str, limit_s: float) -> None:
    assert plan(study(name)).most_s < limit_s


@pytest.mark.parametrize("name", NAMES)
def test_three_neighbours_of_half_the_memory_carry_each_load(name: str) -> None:
    chosen = study(name)
    for scenario, load in LOADS.items():
        (neighbours,) = chosen.scenarios[scenario].neighbours
        assert (neighbours.load, neighbours.count) == (load, 3)
    for scenario in (*LOADS, "phases"):
        (neighbours,) = chosen.scenarios[scenario].neighbours
        assert neighbours.memory == chosen.shape.memory // 2
    assert not chosen.scenarios["alone"].neighbours


@pytest.mark.parametrize("name", NAMES)
def test_web_load_outlasts_all_phases_and_the_gaps_around_them(name: str) -> None:
    chosen = study(name)
    parameters = chosen.scenarios["phases"].neighbours[0].parameters
    assert set(parameters["phases"]) == set(LOADS.values())
    count, length, gap = len(parameters["phases"]), parameters["phase"], parameters["gap"]
    web_load = chosen.workloads["web-course"].points[0]
    ends = web_load["warmup"] + web_load["duration"]
    assert gap > web_load["warmup"]
    assert ends >= count * (length + gap) + gap


@pytest.mark.parametrize("name", NAMES)
def test_every_subject_is_measured_alone_and_with_every_load(name: str) -> None:
    planned = plan(study(name))
    for arm in planned.arms:
        found = {
            batch.scenario: {cell.workload for cell in batch.cells}
            for batch in planned.batches
            if batch.arm == arm
        }
        works = {"http-load", "wakeup", "numeric-sort", "memory-bandwidth", "fio"}
        # Loads are subjects too, except the network's, which is measured by its neighbours.
        matrix = works | {"cpu-load", "memory-load", "disk-load"}
        assert found == {
            **dict.fromkeys(("alone", *LOADS), matrix),
            "network-one": {"wakeup"},
            "phases": {"web-course"},
        }


def test_arm_without_networks_is_measured_with_the_other_loads() -> None:
    without = dict.fromkeys(("network", "network-one", "phases"), "no network")
    planned = plan(study("interference"), **without)
    found = {batch.scenario for batch in planned.batches if batch.arm == "oci"}
    assert found == {"alone", "cpu", "memory", "disk"}
    assert {(skip.scenario, skip.reason) for skip in planned.skipped if skip.arm == "oci"} == {
        ("network", "no network"),
        ("network-one", "no network"),
        ("phases", "no network"),
    }
