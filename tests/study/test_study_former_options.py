"""Options of Xen that were renamed are accepted for one version, and reported."""

from __future__ import annotations

from typing import Any

import pytest

from tare.platforms.xen.options import XenOptions
from tare.platforms.xen.rtds import Rtds
from tare.run.catalog import build_catalog
from tare.study.model.study import Study
from tare.study.reading.former_options import present_options, with_present_names
from tare.study.reading.load import parse_study, restore_study
from tare.study.reading.yamltext import StudyError

STUDY = """\
study: renamed
baseline: bare
shape: {vcpus: 2}
arms:
  bare: {platform: bare}
  xen: {platform: xen, %s}
  again: {twin-of: xen}
workloads: {tick: {}}
"""


def study_of(options: str) -> Study:
    return parse_study((STUDY % options).encode(), "s.yaml", build_catalog())


def options_of(study: Study, arm: str = "xen") -> XenOptions:
    options = study.arms[arm].options
    assert isinstance(options, XenOptions)
    return options


@pytest.mark.parametrize(
    ("former", "present"),
    [
        ("timeslice: 1ms", "scheduling: {slice: 1ms}"),
        ("quantum: 1ms", "scheduling: {slice: 1ms}"),
        ("weight: 512, cap: 50 %", "scheduling: {weight: 200, cap: 50 %}"),
        ("weight: 256", "scheduling: {weight: 100}"),
        ("weight: 1", "scheduling: {weight: 1}"),
        ("weight: 512, scheduling: {cap: 0.5}", "scheduling: {cap: 0.5, weight: 200}"),
        ("budget: 3ms", "scheduling: {reservation: 0.6}"),
        ("budget: 1ms, period: 20ms", "scheduling: {reservation: 0.1, period: 20ms}"),
        ("period: 500us", "scheduling: {reservation: 0.8, period: 500us}"),
        ("budget: 20ms, period: 20ms", "scheduling: {reservation: 2, period: 20ms}"),
    ],
)
def test_a_former_name_means_the_present_one(former: str, present: str) -> None:
    old, new = study_of(former), study_of(present)
    assert old.arms == new.arms
    assert options_of(old, "again") == options_of(old)
    (notice,) = old.notices
    assert notice.startswith(f"arms.xen: `{former.partition(', scheduling')[0]}` is now written ")
    assert "scheduling: {" in notice
    assert "next version no longer accepts" in notice
    assert new.notices == ()


def test_the_notice_of_a_quantum_names_slice_and_that_of_a_weight_its_scale() -> None:
    assert "`scheduling: {slice: 1ms}`" in study_of("quantum: 1ms").notices[0]
    (notice,) = study_of("weight: 512").notices
    assert "`scheduling: {weight: 200}`, where the default weight is 100, not 256" in notice


def test_rtds_grants_the_same_as_under_the_former_options() -> None:
    chosen = options_of(study_of("budget: 3ms, extra-time: false"))
    assert chosen.granted("subject", 2) == Rtds(10_000, 3_000, False)
    assert options_of(study_of("period: 5ms")).granted("subject", 2) == Rtds(5_000, 2_000, True)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("timeslice: 1ms, quantum: 2ms", "which is set too"),
        ("weight: 256, scheduling: {weight: 100}", "which is set too"),
        ("budget: 1ms, scheduling: {reservation: 0.5}", "which is set too"),
        ("budget: 20ms", "longer than its period"),
        ("budget: 1us", "less than 10 µs"),
        ("budget: soon", "write seconds"),
        ("weight: heavy", "must be a whole number"),
        ("weight: 65535", "at most 10000"),
        ("slice: 1ms", "write it within `scheduling: {slice: …}`"),
    ],
)
def test_former_options_without_a_current_meaning_are_refused(options: str, says: str) -> None:
    with pytest.raises(StudyError, match=says):
        study_of(options)


def test_a_twin_by_a_former_name_is_held_against_its_arm() -> None:
    text = (STUDY % "scheduling: {slice: 1ms}").replace("twin-of: xen", "twin-of: xen, %s")
    same = parse_study((text % "timeslice: 1ms").encode(), "s.yaml", build_catalog())
    assert options_of(same, "again") == options_of(same)
    with pytest.raises(StudyError, match="a twin is identical"):
        parse_study((text % "timeslice: 2ms").encode(), "s.yaml", build_catalog())


def test_a_stored_study_of_the_last_version_is_restored_without_a_notice() -> None:
    new = study_of("scheduler: credit, scheduling: {slice: 1ms, weight: 200}")
    stored: dict[str, Any] = new.model_dump(mode="json")
    former = {"slice": ("timeslice", 0.001), "weight": ("weight", 512)}
    for arm in ("xen", "again"):
        options = stored["arms"][arm]["options"]
        del options["scheduling"]
        options |= dict(former.values())
    restored = restore_study(stored, build_catalog())
    assert restored.arms == new.arms
    assert restored.notices == ()
    # As reports and comparisons read it.
    assert with_present_names(stored)["arms"] == new.model_dump(mode="json")["arms"]
    recorded = present_options(stored, "xen", "xen", stored["arms"]["xen"]["options"])
    assert recorded == new.model_dump(mode="json")["arms"]["xen"]["options"]
    assert with_present_names(new.model_dump(mode="json")) == new.model_dump(mode="json")


def test_other_platforms_keep_their_own_words() -> None:
    plain = {"arms": {"x": {"platform": "mine", "options": {"weight": 3}}, "y": None}}
    assert with_present_names(plain) == plain
    assert with_present_names({"arms": None}) == {"arms": None}


def test_former_method_to_stop_is_accepted_and_reported() -> None:
    text = (STUDY % "scheduling: {cap: 0.5}") + "blocks: {method: anytime}\n"
    study = parse_study(text.encode(), "s.yaml", build_catalog())
    assert study.blocks.method == "sequential" and study.blocks.position
    (notice,) = study.notices
    assert notice.startswith("blocks.method: `anytime` is now `sequential`")
    stored = {"blocks": {"method": "anytime", "most": 20}}
    assert with_present_names(stored)["blocks"] == {"method": "sequential", "most": 20}
