"""A command line's changes of a study: checked and reported like the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from study.study_catalog import CATALOG, GOOD
from tare.study.model.study import Study
from tare.study.reading.changes import Changes, change, path_of
from tare.study.reading.hosts_file import KnownHosts
from tare.study.reading.load import parse_study, restore_study
from tare.study.reading.yamltext import StudyError

HOSTS = KnownHosts(Path("/home/me/hosts.yaml"), {"xen1": {"ssh": "x.example", "known-hosts": "k"}})


def changed(text: str = GOOD, **changes: Any) -> Study:
    return parse_study(text.encode(), "s.yaml", CATALOG, Changes(**changes), HOSTS)


def refused(text: str = GOOD, **changes: Any) -> str:
    with pytest.raises(StudyError) as caught:
        changed(text, **changes)
    message: str = caught.value.message
    return message


def test_values_are_set_as_yaml_wherever_the_study_has_them() -> None:
    study = changed(
        values=(
            "shape.memory=1GiB",
            "workloads.tick.samples=[5, 6]",
            "arms.qemu-em.cpu-model=EPYC",
            "scenarios.crowded.neighbours[0].count=3",
            "arms.new={platform: qemu, accelerator: kvm}",
            "workloads.memory-bandwidth.array=2MiB",
            "kernel=",
        )
    )
    assert study.shape.memory == 1 << 30
    assert [point["samples"] for point in study.workloads["tick"].points] == [5, 6]
    assert study.arms["qemu-em"].options.model_dump()["cpu_model"] == "EPYC"
    assert study.scenarios["crowded"].neighbours[0].count == 3
    assert study.arms["new"].options.model_dump()["accelerator"] == "kvm"
    assert study.workloads["memory-bandwidth"].points[0]["array"] == 2 << 20
    assert study.kernel is None


def test_a_twin_follows_what_is_set_for_the_arm_that_it_repeats() -> None:
    text = GOOD + "\n"
    study = changed(
        text.replace("  qemu-em:", "  qemu-again: {twin-of: qemu-pv}\n  qemu-em:"),
        values=("arms.qemu-pv.cpu-model=EPYC",),
    )
    assert study.arms["qemu-again"].options == study.arms["qemu-pv"].options


def test_arms_are_kept_with_the_baseline_and_with_what_they_repeat() -> None:
    assert list(changed(arms=("qemu-em",)).arms) == ["bare", "qemu-em"]
    moved = changed(GOOD.replace("baseline: bare", "baseline: qemu-pv"), arms=("bare-again",))
    assert list(moved.arms) == ["bare", "bare-again", "qemu-pv"]


def test_workloads_and_scenarios_are_kept_and_what_needs_another_scenario_is_left_out() -> None:
    study = changed(scenarios=("pinned", "crowded"))
    assert list(study.scenarios) == ["pinned", "crowded"]
    assert list(study.workloads) == ["tick", "again", "memory-bandwidth"]
    only = changed(scenarios=("alone",), workloads=("switch", "tick"))
    assert list(only.workloads) == ["tick", "switch"]
    assert only.workloads["switch"].scenarios == ("alone",)


def test_a_number_of_blocks_is_both_the_least_and_the_most() -> None:
    blocks = changed(blocks=3).blocks
    assert (blocks.least, blocks.most) == (3, 3)


@pytest.mark.parametrize(
    ("word", "cpus", "deterministic"), [("deterministic", 1, True), ("large", 4, False)]
)
def test_a_key_of_a_lab_is_set_where_the_study_says_a_word_for_it(
    word: str, cpus: int, deterministic: bool
) -> None:
    lab = changed(f"host: lab\nlab: {word}\n{GOOD}", values=("lab.memory=6GiB",)).lab
    assert (lab.cpus, lab.deterministic, lab.memory) == (cpus, deterministic, 6 << 30)


def test_a_host_is_named_for_all_arms() -> None:
    study = changed(host="xen1")
    assert (study.host.ssh, study.host.known_hosts) == ("x.example", "k")
    assert changed(host="lab").host.kind == "lab"
    several = GOOD.replace("{platform: bare}", "{platform: bare, on: xen1}")
    assert set(changed(several).computers) == {"xen1", "local"}
    assert changed(several, host="local").computers == {"": changed().host}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"values": ("shape.memoy=1GiB",)},
            "--set shape.memoy=1GiB: shape.memoy: unknown key; did",
        ),
        ({"values": ("shape.memory=huge",)}, "--set shape.memory=huge: shape.memory: "),
        (
            {"values": ("blocks.least=40", "blocks.most=3")},
            "--set blocks.most=3: blocks: least (40)",
        ),
        (
            {"values": ("arms.qemu.devices=x",)},
            "arms.qemu: there is no arm 'qemu'; did you mean 'qemu-",
        ),
        ({"values": ("arms.qemu-pv.devices=x",)}, "arms.qemu-pv.devices: must be 'paravirtual'"),
        ({"values": ("study.x=1",)}, 'study.x: study is "small", which has no keys'),
        (
            {"values": ("scenarios.crowded.neighbours[7].count=1",)},
            "is a list of 1, and its first index is [0]",
        ),
        ({"values": ("scenarios.crowded[7]=1",)}, "scenarios.crowded is not a list"),
        ({"values": ("shape.memory",)}, "--set shape.memory: write KEY=VALUE"),
        ({"values": ("shape.=1",)}, "--set shape.=1: write KEY=VALUE"),
        ({"values": ("[x]=1",)}, "write KEY=VALUE"),
        ({"values": ("shape={memory: 1GiB, memory: 2GiB}",)}, "shape.memory: written twice"),
        ({"values": ("shape={memory: ",)}, "--set shape={memory: : shape: not YAML"),
        ({"arms": ("kvm",)}, "--arm kvm: there is no arm 'kvm'; known: bare, bare-again, qemu-em"),
        (
            {"workloads": ("tik",)},
            "--workload tik: there is no workload 'tik'; did you mean 'tick'?",
        ),
        ({"scenarios": ("alon",)}, "--scenario alon: there is no scenario 'alon'"),
        (
            {"scenarios": ("pinned",), "workloads": ("switch",)},
            "--scenario pinned: switch is measured in alone only",
        ),
        ({"blocks": 0}, "--blocks 0: blocks.least: must be at least 1, not 0"),
        ({"host": "xen2"}, "--host xen2: host: there is no host 'xen2'; did you mean 'xen1'?"),
        ({"host": "xen2"}, "To add one, write `xen2: {ssh: ADDRESS}` in /home/me/hosts.yaml"),
    ],
)
def test_fault_is_reported_with_its_option(changes: dict[str, Any], message: str) -> None:
    assert message in refused(**changes)


def test_fault_of_the_file_is_reported_with_its_line() -> None:
    message = refused(GOOD.replace("samples: 200", "samples: 0"), values=("shape.memoy=1",))
    assert "s.yaml:20:19: workloads.tick.samples: must be at least 1" in message
    assert "--set shape.memoy=1: shape.memoy: unknown key" in message


def test_a_mistake_in_the_file_is_not_attributed_to_an_option() -> None:
    text = GOOD + "blocks: {least: 50, most: 40}\n"
    message = refused(text, values=("blocks.precision=0.1",))
    assert message.startswith("s.yaml:24:9: blocks: least (50) is more than most (40)")


def test_a_changed_study_is_stored_as_it_was_carried_out() -> None:
    study = changed(arms=("qemu-em",), blocks=3, values=("shape.memory=1GiB",))
    stored = study.model_dump(mode="json")
    assert restore_study(stored, CATALOG).model_dump(mode="json") == stored


def test_options_are_reported_as_typed() -> None:
    changes = Changes(host="x", arms=("a", "b"), blocks=3, values=("shape={memory: 1GiB}",))
    assert changes.words == (
        "--host x",
        "--set 'shape={memory: 1GiB}'",
        "--arm a,b",
        "--blocks 3",
    )


def test_the_file_is_left_as_it_was() -> None:
    data = {"arms": {"a": {"platform": "bare"}}, "baseline": "a"}
    change(data, Changes(arms=("b",), values=("arms.a.platform=qemu",)))
    assert data == {"arms": {"a": {"platform": "bare"}}, "baseline": "a"}


def test_a_name_with_dots_in_it_is_known_by_the_study() -> None:
    data: dict[str, Any] = {"arms": {"xen-4.17": {"shape": {}}, "xen-4": {}}}
    assert path_of("arms.xen-4.17.shape.memory", data) == ("arms", "xen-4.17", "shape", "memory")
    assert path_of("arms.xen-4.18", data) == ("arms", "xen-4", "18")


@given(st.text(max_size=30), st.text(max_size=30))
def test_nothing_that_can_be_typed_ends_in_a_traceback(key: str, value: str) -> None:
    try:
        changed(values=(f"{key}={value}",))
    except StudyError as error:
        assert error.problems


def test_a_plan_with_only_the_baseline_says_that_nothing_is_compared() -> None:
    alone = changed(arms=("bare",))
    assert list(alone.arms) == ["bare"]
    assert alone.warnings[0].startswith("the baseline is the only arm")
    assert not any("A/A" in warning for warning in alone.warnings)
