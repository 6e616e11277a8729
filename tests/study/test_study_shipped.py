"""Studies that come with Tare are found by name from anywhere; a path is still a path."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from run.run_driving import tare
from study.shipped_studies import shipped
from tare.errors import InputError
from tare.study.reading.shipped import find_study, shipped_studies, title_of
from tare.units import format_size

FOLDER = Path(__file__).parents[2] / "studies"


def test_every_study_of_the_checkout_is_in_the_package() -> None:
    assert {name: path.read_bytes() for name, path in shipped_studies().items()} == {
        path.stem: path.read_bytes() for path in FOLDER.glob("*.yaml")
    }


@pytest.mark.parametrize("name", shipped_studies())
def test_each_says_what_it_asks(name: str) -> None:
    assert title_of(shipped_studies()[name]) not in ("", name)


def test_a_name_is_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_study(Path("quick")).read_bytes() == (FOLDER / "quick.yaml").read_bytes()
    # A run's folder, or any other, is not what is meant.
    (tmp_path / "quick").mkdir()
    assert find_study(Path("quick")) == shipped_studies()["quick"]


def test_a_file_of_that_name_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quick").write_text("study: mine\n")
    assert find_study(Path("quick")) == Path("quick")


@pytest.mark.parametrize("path", ["quick.yaml", "sub/quick", "./x/../quick.yml", "/nowhere/quick"])
def test_a_path_is_left_as_it_is(path: str) -> None:
    assert find_study(Path(path)) == Path(path)


def test_an_unknown_study_name_lists_existing_ones() -> None:
    with pytest.raises(InputError, match=r"quik: no study of this name") as caught:
        find_study(Path("quik"))
    assert "did you mean quick?" in caught.value.hint and "realtime-short" in caught.value.hint


def test_the_command_lists_and_prints_them() -> None:
    listed = dict(line.split("\t") for line in tare("studies").stdout.splitlines())
    assert listed == {name: title_of(path) for name, path in shipped_studies().items()}
    assert tare("studies", "knobs").stdout == (FOLDER / "knobs.yaml").read_text()
    result = tare("studies", "nobs")
    assert (result.returncode, result.stdout) == (2, "") and "did you mean knobs?" in result.stderr


def test_a_plan_takes_a_name_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    result = tare("plan", "quick", "--arm", "bare", "--blocks", "2")
    assert result.returncode == 0, result.stderr
    assert "numeric-sort" in result.stdout


NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
SHORT_FORMS = {
    "components": "components-smoke",
    "hypervisors": "hypervisors-short",
    "interference": "interference-smoke",
    "load-balancer": "load-balancer-short",
    "realtime": "realtime-short",
}


@pytest.mark.parametrize("name", SHORT_FORMS)
def test_a_short_form_says_what_it_has_less_of(name: str) -> None:
    whole, short = shipped(name), shipped(SHORT_FORMS[name])
    description = " ".join((short.description or "").lower().split())
    assert short.shape.memory < whole.shape.memory
    assert format_size(short.shape.memory).lower() in description
    if short.blocks.least < whole.blocks.least:
        assert f"{NUMBERS[short.blocks.least]} blocks" in description
    if (fewer := len(short.scenarios)) < (all_of_them := len(whole.scenarios)):
        both = NUMBERS[fewer], NUMBERS[all_of_them]
        assert re.search(r"\b{} of (?:its|the) {} scenarios\b".format(*both), description)


SHAPES = {
    "components": (1, 2 << 30),
    "interference": (1, 2 << 30),
    "knobs": (1, 1 << 30),
    "realtime": (1, 1 << 30),
    "realtime-long": (1, 1 << 30),
}
"""vCPUs and bytes of memory of the sources' machines."""


@pytest.mark.parametrize("name", SHAPES)
def test_machines_are_of_the_sources_shape(name: str) -> None:
    shape = shipped(name).shape
    assert (shape.vcpus, shape.memory) == SHAPES[name]


def test_components_are_measured_with_one_vcpu_and_with_four_as_in_the_source() -> None:
    scenarios = shipped("components").scenarios.values()
    assert {1, 4} <= {scenario.subject.vcpus for scenario in scenarios}


OF_THE_SOURCES = (
    *("components", "interference", "interference-smoke", "knobs"),
    *("realtime", "realtime-long", "realtime-short"),
)


@pytest.mark.parametrize("name", OF_THE_SOURCES)
def test_a_study_of_the_sources_has_every_arm_of_theirs(name: str) -> None:
    arms = shipped(name).model_dump(mode="json")["arms"].values()
    assert {"bare", "oci", "qemu", "xen"} <= {arm["platform"] for arm in arms}
    options = [arm["options"] for arm in arms if arm["platform"] in ("qemu", "xen")]
    kvm = {
        (each["devices"], "enlightenments" in each)
        for each in options
        if each.get("accelerator") == "kvm"
    }
    assert {("paravirtual", False), ("paravirtual", True), ("emulated", False)} <= kvm
    # Slices of those types that contend for a CPU: in components, nothing does.
    slices = {None} if name == "components" else {None, 0.001}
    xen = {
        (each["type"], each.get("scheduling", {}).get("slice"))
        for each in options
        if each.get("scheduler") == "credit"
    }
    assert {(kind, slice_s) for kind in ("pv", "pvh", "hvm") for slice_s in slices} <= xen


@pytest.mark.parametrize("name", ["components", "interference", "knobs", "realtime"])
def test_the_makers_arms_are_there_with_both_kinds_of_devices(name: str) -> None:
    left = shipped(name).left_out
    for maker in ("hyperv", "vsphere"):
        assert {maker, f"{maker}-em"} <= set(left)
