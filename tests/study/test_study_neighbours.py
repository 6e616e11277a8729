"""Neighbours with a memory of their own, and loads that an arm cannot carry."""

from __future__ import annotations

from dataclasses import replace

import pytest

from study.study_catalog import ABLE, CATALOG, GOOD, KINDS
from tare.study.model.study import Study
from tare.study.planning.host_cpus import HostCpus
from tare.study.planning.plan import ArmFacts, HostFacts, Plan, make_plan
from tare.study.reading.load import parse_study, restore_study
from tare.study.reading.yamltext import StudyError

LINE = "{load: cpu-load, count: 2, cpus: same, parameters: {block-size: 1MiB}}"


def with_memory(written: str) -> Study:
    assert LINE in GOOD
    text = GOOD.replace(LINE, LINE[:-1] + f", memory: {written}}}")
    return parse_study(text.encode(), "s.yaml", CATALOG)


def plan_of(study: Study, facts: ArmFacts = ABLE) -> Plan:
    every = dict.fromkeys(study.arms, facts)
    return make_plan(study, 1, every, {"": HostFacts(HostCpus(online=(0, 1)))}, KINDS)


def memory_of(plan: Plan) -> set[int | None]:
    crowded = [batch for batch in plan.batches if batch.scenario == "crowded"]
    assert crowded
    return {each.memory for batch in crowded for each in batch.placement.neighbours}


def test_neighbours_have_the_memory_they_are_given_and_else_the_shapes() -> None:
    given = with_memory("64MiB")
    assert memory_of(plan_of(given)) == {64 << 20}
    assert restore_study(given.model_dump(mode="json"), CATALOG) == given
    assert memory_of(plan_of(parse_study(GOOD.encode(), "s.yaml", CATALOG))) == {None}


@pytest.mark.parametrize(
    ("written", "expected"),
    [("1MiB", "too little memory for any machine"), ("lots", "lots"), ("-1", "cannot be negative")],
)
def test_invalid_memory_is_reported_by_line_and_key(written: str, expected: str) -> None:
    with pytest.raises(StudyError) as caught:
        with_memory(written)
    line = 1 + next(n for n, text in enumerate(GOOD.splitlines()) if LINE in text)
    assert f"s.yaml:{line}:" in caught.value.message
    assert "memory" in caught.value.message and expected in caught.value.message


def test_a_platform_that_needs_more_skips_the_scenario_with_the_reason() -> None:
    plan = plan_of(with_memory("64MiB"), replace(ABLE, min_memory=128 << 20))
    assert not [batch for batch in plan.batches if batch.scenario == "crowded"]
    reasons = {skip.reason for skip in plan.skipped if skip.scenario == "crowded"}
    assert len(reasons) == 1 and "other machines with 64 MiB" in reasons.pop()


def test_neighbours_that_have_just_what_a_platform_needs_run() -> None:
    plan = plan_of(with_memory("64MiB"), replace(ABLE, min_memory=64 << 20))
    assert not plan.skipped


def test_a_load_that_an_arm_cannot_carry_skips_the_scenario_with_the_reason() -> None:
    lacking = replace(ABLE, loads_lack={"crowded": "its neighbours load a network"})
    plan = plan_of(parse_study(GOOD.encode(), "s.yaml", CATALOG), lacking)
    assert {batch.scenario for batch in plan.batches} == {"alone", "pinned"}
    assert {(skip.scenario, skip.reason) for skip in plan.skipped} == {
        ("crowded", "its neighbours load a network")
    }
