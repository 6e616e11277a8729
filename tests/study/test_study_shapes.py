"""An arm and its baseline have one shape: a baseline for each shape, or a note about the
difference."""

from __future__ import annotations

from dataclasses import replace

import pytest

from study.study_catalog import ABLE, CATALOG, KINDS
from tare.study.model.study import Study
from tare.study.planning.baselines import give_own_shape, part_on
from tare.study.planning.host_cpus import HostCpus
from tare.study.planning.plan import HostFacts, Plan, make_plan
from tare.study.reading.load import parse_study, restore_study

LARGE = "shape: {vcpus: 4, memory: 8GiB}"


def parsed(arms: str, more: str = "") -> Study:
    text = f"""
study: x
baseline: bare
{more}
arms:
  bare: {{platform: bare}}
  bare-again: {{twin-of: bare}}
{arms}
workloads: {{tick: }}
"""
    return parse_study(text.encode(), "s.yaml", CATALOG)


def plan_of(study: Study, without: str = "") -> Plan:
    facts = {
        arm: replace(ABLE, usable=arm != without, reason="this host has 2 CPUs", max_vcpus=8)
        for arm in study.arms
    }
    return make_plan(study, 1, facts, {"": HostFacts(HostCpus(online=tuple(range(8))))}, KINDS)


def sizes(study: Study) -> dict[str, tuple[int, int]]:
    shapes = {arm: study.shape_of(arm) for arm in study.arms}
    return {arm: (shape.vcpus, shape.memory >> 20) for arm, shape in shapes.items()}


def test_arms_of_the_studys_shape_change_nothing() -> None:
    study = parsed("  vm: {platform: qemu}")
    assert set(study.arms) == {"bare", "bare-again", "vm"} and study.own_baselines == {}
    assert {arm.shape for arm in study.arms.values()} == {None}


def test_the_baseline_and_its_twin_take_the_shape_of_the_only_arm() -> None:
    study = parsed(f"  vm: {{platform: qemu, {LARGE}}}")
    assert sizes(study) == dict.fromkeys(("bare", "bare-again", "vm"), (4, 8192))
    assert study.own_baselines == {} and plan_of(study).notes == ()
    assert study.aa == ("bare", "bare-again")


def test_each_further_shape_has_one_baseline_however_many_arms_there_are() -> None:
    study = parsed(
        f"""  small: {{platform: qemu}}
  one: {{platform: qemu, {LARGE}}}
  two: {{platform: qemu, devices: emulated, {LARGE}}}
  disk: {{platform: qemu, shape: {{disk: 1GiB}}}}"""
    )
    added = {name: sizes(study)[name] for name in study.arms if "@" in name}
    assert added == {"bare@4-vcpus-8GiB": (4, 8192), "bare@1-vcpu-256MiB-disk-1GiB": (1, 256)}
    assert study.own_baselines["one"] == study.own_baselines["two"] == "bare@4-vcpus-8GiB"
    assert study.own_baselines["disk"] == "bare@1-vcpu-256MiB-disk-1GiB"
    assert "small" not in study.own_baselines and "bare" not in study.own_baselines


def test_arms_of_several_shapes_of_which_none_is_the_studys() -> None:
    study = parsed(
        f"  one: {{platform: qemu, {LARGE}}}\n  two: {{platform: qemu, shape: {{vcpus: 2}}}}"
    )
    assert sizes(study)["bare"] == (4, 8192)
    assert study.own_baselines == {
        "two": "bare@2-vcpus-256MiB", "bare@2-vcpus-256MiB": "bare@2-vcpus-256MiB"
    }  # fmt: skip


def test_a_baseline_with_a_shape_of_its_own_keeps_it() -> None:
    text = f"""
study: x
baseline: bare
arms: {{bare: {{platform: bare, shape: {{vcpus: 2}}}}, vm: {{platform: qemu, {LARGE}}}}}
workloads: {{tick: }}
"""
    study = parse_study(text.encode(), "s.yaml", CATALOG)
    assert sizes(study)["bare"] == (2, 256)
    assert study.own_baselines["vm"] == "bare@4-vcpus-8GiB"


def test_a_bare_machine_of_that_shape_in_the_study_is_the_baseline() -> None:
    study = parsed(
        f"  small: {{platform: qemu}}\n  big: {{platform: bare, {LARGE}}}\n"
        f"  vm: {{platform: qemu, {LARGE}}}"
    )
    assert study.own_baselines == {"big": "big", "vm": "big"}


def test_hosts_and_shapes_have_a_baseline_each() -> None:
    study = parsed(
        f"""  near: {{platform: qemu, on: a}}
  far: {{platform: qemu, on: b}}
  large: {{platform: qemu, on: b, {LARGE}}}""",
        "hosts: {a: local, b: {ssh: b.example}}",
    )
    own = study.own_baselines
    assert study.host_of(own["far"]) == study.host_of(own["large"]) == "b"
    for arm in ("far", "large"):
        assert study.shape_of(own[arm]) == study.shape_of(arm)
    assert own["far"] == "bare@b" and own["large"] == "bare@b@4-vcpus-8GiB"
    assert study.arms["bare-again@b"].twin_of == "bare@b"
    assert part_on(study, "a").baseline == "bare" and part_on(study, "b").baseline == "bare@b"
    assert part_on(study, "b").own_baselines["large"] == "bare@b@4-vcpus-8GiB"


@pytest.mark.parametrize("small", ["", "  small: {platform: qemu}\n"])
def test_a_stored_study_comes_back_with_the_same_baselines(small: str) -> None:
    study = parsed(f"{small}  vm: {{platform: qemu, {LARGE}}}")
    stored = study.model_dump(mode="json")
    assert restore_study(stored, CATALOG).model_dump(mode="json") == stored


def test_a_run_of_before_keeps_the_shapes_that_it_was_measured_with() -> None:
    stored = parsed("  vm: {platform: qemu}").model_dump(mode="json")
    stored["arms"]["vm"]["shape"] = {"vcpus": 4, "memory": 8 << 30, "disk": 0}
    study = restore_study(stored, CATALOG)
    assert set(study.arms) == {"bare", "bare-again", "vm"}
    assert sizes(study)["bare"] == (1, 256)
    assert plan_of(study).notes[0] == (
        "vm has 4 vCPUs and 8 GiB of memory, its baseline bare 1 vCPU and 256 MiB of memory: the "
        "effects of the platform and of the machine's size cannot be separated"
    )


def test_impossible_baseline_is_reported_first() -> None:
    study = parsed(f"  small: {{platform: qemu}}\n  vm: {{platform: qemu, {LARGE}}}")
    plan = plan_of(study, without="bare@4-vcpus-8GiB")
    assert plan.notes[0].startswith("vm has 4 vCPUs and 8 GiB of memory, its baseline bare 1 vCPU")
    assert plan_of(study).notes == ()


def test_a_baseline_that_took_an_impossible_shape_gets_the_studys_own_again() -> None:
    study = parsed(f"  vm: {{platform: qemu, {LARGE}}}")
    own = give_own_shape(study)
    small = study.shape.vcpus, study.shape.memory >> 20
    assert sizes(own) == {"bare": small, "bare-again": small, "vm": (4, 8192)}
    assert give_own_shape(own) is own


def test_a_baseline_of_a_shape_that_the_file_gives_it_keeps_it() -> None:
    text = f"""
study: x
baseline: bare
arms:
  bare: {{platform: bare, {LARGE}}}
  vm: {{platform: qemu, {LARGE}}}
workloads: {{tick: }}
"""
    study = parse_study(text.encode(), "s.yaml", CATALOG)
    assert give_own_shape(study) is study
