"""A matrix makes arms of settings' values; its mistakes are reported where they are written."""

from __future__ import annotations

import pytest

from study.study_catalog import CATALOG
from tare.study.model.study import Study
from tare.study.reading.changes import Changes
from tare.study.reading.load import parse_study, restore_study
from tare.study.reading.yamltext import StudyError

HEAD = """\
study: small
baseline: bare
arms:
  bare: {platform: bare}
  vm: {platform: qemu, shape: {vcpus: 1, memory: 64MiB}}
matrix:
  m:
    arm: vm
"""
TAIL = "workloads: {switch: {}}\n"


def parse(matrix: str, changes: Changes | None = None) -> Study:
    content = (HEAD + matrix + TAIL).encode()
    return parse_study(content, "s.yaml", CATALOG, changes or Changes())


def problem(matrix: str) -> str:
    with pytest.raises(StudyError) as caught:
        parse(matrix)
    assert len(caught.value.problems) == 1, caught.value.message
    return str(caught.value.problems[0].show("s.yaml"))


def own(study: Study) -> list[str]:
    """Return the arms without the baselines that Tare adds for other shapes."""
    return [arm for arm in study.arms if "@" not in arm]


ALONE = """\
    settings:
      devices: [paravirtual, emulated]
      shape.vcpus: [1, 2]
      processor: {default: {}, host: {cpu-model: host, accelerator: kvm}}
"""


def test_one_at_a_time_makes_an_arm_of_each_further_value() -> None:
    study = parse(ALONE)
    assert own(study)[2:] == ["vm.devices-emulated", "vm.vcpus-2", "vm.processor-host"]
    assert study.arms["vm.vcpus-2"].shape is not None
    assert study.arms["vm.vcpus-2"].shape.vcpus == 2
    assert study.arms["vm.vcpus-2"].shape.memory == 64 << 20
    assert study.arms["vm.processor-host"].value_of("accelerator") == "kvm"
    assert study.arms["vm.devices-emulated"].value_of("cpu_model") == "max"
    runs = {run.arm: run.levels for run in study.designs["m"].runs}
    assert runs == {
        "vm": (0, 0, 0),
        "vm.devices-emulated": (1, 0, 0),
        "vm.vcpus-2": (0, 1, 0),
        "vm.processor-host": (0, 0, 1),
    }


def test_full_makes_every_combination() -> None:
    study = parse("    design: full\n" + ALONE)
    assert len(study.designs["m"].runs) == 8
    assert len(own(study)) == 2 + 7
    last = study.arms[study.designs["m"].runs[-1].arm]
    assert (last.value_of("devices"), last.value_of("cpu_model")) == ("emulated", "host")


FOUR = """\
    design: fractional
    settings:
      devices: [paravirtual, emulated]
      shape.vcpus: [1, 2, 4]
      cpu-model: [max, host]
      accelerator: [tcg, kvm]
"""


def test_a_fraction_shows_its_runs_generators_and_aliases() -> None:
    study = parse(FOUR)
    design = study.designs["m"]
    assert [run.alone for run in design.runs].count(False) == 8
    alone = [run for run in design.runs if run.alone]
    assert [(run.arm, run.levels) for run in alone] == [("vm.vcpus-4", (0, 2, 0, 0))]
    lines = "\n".join(design.lines("m"))
    assert "8 of 16 combinations of 4 settings of vm (resolution IV), and 1 further values" in lines
    assert "generator: accelerator = devices x shape.vcpus x cpu-model" in lines
    assert "aliased: devices x shape.vcpus = cpu-model x accelerator" in lines


def test_a_named_interaction_enlarges_the_fraction_until_it_is_separate() -> None:
    study = parse(
        FOUR.replace("settings:", "interactions: [[devices, accelerator]]\n    settings:")
    )
    design = study.designs["m"]
    assert [run.alone for run in design.runs].count(False) == 16
    assert "separate by request: devices x accelerator" in "\n".join(design.lines("m"))


def test_matrices_share_equal_arms() -> None:
    second = "  n: {arm: vm, settings: {devices: [paravirtual, emulated]}}\n"
    study = parse(ALONE + second)
    assert [run.arm for run in study.designs["n"].runs] == ["vm", "vm.devices-emulated"]
    assert len(own(study)) == 5


def test_a_stored_study_keeps_its_arms_and_designs() -> None:
    study = parse(FOUR)
    restored = restore_study(study.model_dump(mode="json"), CATALOG)
    assert restored.arms == study.arms
    assert restored.designs == study.designs


def test_options_keep_a_matrix_by_its_name() -> None:
    assert list(parse(ALONE, Changes(arms=("vm",))).arms) == ["bare", "vm"]
    kept = parse(ALONE, Changes(arms=("m",)))
    assert list(kept.arms) == list(parse(ALONE).arms)
    larger = parse(ALONE, Changes(values=("arms.vm.accelerator=kvm",)))
    assert larger.arms["vm.devices-emulated"].value_of("accelerator") == "kvm"


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (
            "    settings: {devices: [paravirtual, emulatd]}\n",
            "s.yaml:9:39: matrix.m.settings.devices[1]: must be 'paravirtual' or 'emulated', not "
            "\"emulatd\"; did you mean 'emulated'?",
        ),
        (
            "    settings: {device: [paravirtual, emulated]}\n",
            "s.yaml:9:16: matrix.m.settings.device: unknown key; did you mean 'devices'?",
        ),
        (
            "    settings: {devices: [emulated, paravirtual]}\n",
            "s.yaml:9:26: matrix.m.settings.devices[0]: the first value must be the arm's own: vm "
            "has paravirtual, not emulated",
        ),
        (
            "    settings: {devices: [paravirtual, paravirtual]}\n",
            "s.yaml:9:39: matrix.m.settings.devices[1]: does not change vm; remove it",
        ),
        (
            "    settings: {devices: [paravirtual]}\n",
            "s.yaml:9:25: matrix.m.settings.devices: needs 2 to 12 values, the arm's own first; "
            "the number here is 1",
        ),
        (
            "    settings: {x: {default: {}, y: {cpu-modl: host}}}\n",
            "s.yaml:9:37: matrix.m.settings.x.y.cpu-modl: unknown key; did you mean 'cpu-model'?",
        ),
        (
            "    resolution: 5\n    settings: {devices: [paravirtual, emulated]}\n",
            "s.yaml:9:5: matrix.m.resolution: needs `design: fractional`",
        ),
        (
            "    design: fractional\n    interactions: [[devices, cpu]]\n"
            "    settings: {devices: [paravirtual, emulated], cpu-model: [max, host]}\n",
            "s.yaml:10:20: matrix.m.interactions[0]: there is no setting 'cpu'; known: cpu-model, "
            "devices",
        ),
        (
            "    design: full\n    settings: {cpu-model: [max, a, b, c, d, e, f, g, h, i, j, k], "
            "shape.vcpus: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]}\n",
            "s.yaml:7:3: matrix.m: 144 combinations; at most 128 are allowed: use `design: "
            "fractional`, or fewer values",
        ),
    ],
)
def test_mistakes_are_reported_once_where_they_are_written(matrix: str, message: str) -> None:
    assert problem(matrix) == message


def test_a_matrix_of_a_missing_arm_or_twin_is_reported() -> None:
    text = HEAD.replace("arm: vm", "arm: v") + ALONE + TAIL
    with pytest.raises(StudyError, match=r"s\.yaml:8:10: matrix\.m\.arm: there is no arm 'v'"):
        parse_study(text.encode(), "s.yaml", CATALOG)
    twin = HEAD.replace("matrix:", "  vm-again: {twin-of: vm}\nmatrix:")
    text = twin.replace("arm: vm\n", "arm: vm-again\n") + ALONE + TAIL
    with pytest.raises(StudyError, match="is a twin; name the arm that it repeats, vm"):
        parse_study(text.encode(), "s.yaml", CATALOG)
