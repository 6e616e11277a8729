"""A resumed run is planned as the unbroken one was, wherever the events end."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from study.study_catalog import KINDS
from study.test_study_plan import TWO_CPUS, small
from tare.errors import InputError
from tare.events import (
    BlockFinished,
    BlockStarted,
    CellFinished,
    CellStarted,
    Event,
    Fold,
    ImageReady,
    Planned,
    PlatformChecked,
    Record,
    RunStarted,
    Skipped,
    fold_records,
    read_fold,
)
from tare.platforms.contract import Capabilities, Verdict
from tare.run.catalog import build_catalog
from tare.run.lifecycle.cell_counts import unfinished
from tare.run.preflight.arm_facts import recorded, require_still_usable, restored_facts
from tare.study.model.study import Study
from tare.study.planning.cells import Batch, Cell
from tare.study.planning.plan import ArmFacts, HostFacts, Plan, make_plan
from tare.study.reading.load import restore_study
from tare.workloads import WORKLOADS

RECORDED = Path(__file__).parent.parent / "fixtures" / "runs"
SEED = 7
BLOCKS = 2
STUDY = """\
study: x
baseline: bare
blocks: {least: 2, most: 2}
arms:
  bare: {platform: bare}
  one: {platform: qemu}
  two: {platform: qemu, devices: emulated}
scenarios:
  alone: {}
  shared: {subject: {cpus: pinned}, neighbours: [{load: cpu-load, cpus: same}]}
workloads:
"""
ABILITIES = st.builds(
    ArmFacts,
    usable=st.booleans(),
    reason=st.sampled_from(["", "no"]),
    max_vcpus=st.integers(1, 2),
    min_memory=st.sampled_from([0, 1 << 20, 1 << 40]),
    pinning=st.booleans(),
    devices=st.frozensets(st.sampled_from(["paravirtual", "emulated"])),
    neighbours=st.booleans(),
    emulated=st.booleans(),
    boot_s=st.sampled_from([0.0, 0.1, 2.5]),
    slowdown=st.sampled_from([1.0, 2.0]),
    lacks=st.dictionaries(st.sampled_from(["tick", "switch"]), st.just("lacks it"), max_size=1),
    loads_lack=st.dictionaries(st.just("shared"), st.just("no disk"), max_size=1),
    knobs=st.frozensets(st.sampled_from(["shares", "quantum"])),
    missing_knobs=st.dictionaries(st.just("shares"), st.just("not here"), max_size=1),
    boot=st.sampled_from(["", "xen", "kvm"]),
)


@st.composite
def studies(draw: st.DrawFn) -> Study:
    repeats = st.integers(1, 2)
    return small(
        f"{STUDY}"
        f"  tick: {{samples: {draw(st.sampled_from(['1', '[1, 2]']))}, repeats: {draw(repeats)}}}\n"
        f"  switch: {{threads: 2, repeats: {draw(repeats)}}}\n"
    )


@st.composite
def facts_now(draw: st.DrawFn) -> dict[str, ArmFacts]:
    return {name: draw(ABILITIES) for name in ("bare", "one", "two")}


def plan_of(study: Study, facts: dict[str, ArmFacts]) -> Plan | None:
    try:
        return make_plan(study, SEED, facts, {"": HostFacts(TWO_CPUS, 3.0)}, KINDS)
    except InputError:
        return None  # The baseline cannot run, so there is no run to resume.


def beginning(study: Study, facts: dict[str, ArmFacts], plan: Plan) -> Iterator[Event]:
    yield RunStarted(
        run="r1", study=study.model_dump(mode="json"), study_path="", study_sha256="", seed=SEED,
        host={}, versions={},
    )  # fmt: skip
    for name, arm in study.arms.items():
        able = facts[name]
        yield PlatformChecked(
            arm=name,
            platform=arm.platform,
            options={},
            usable=able.usable,
            reason=able.reason,
            emulated=able.emulated,
            capabilities={
                "max_vcpus": able.max_vcpus,
                "min_memory": able.min_memory,
                "pinning": able.pinning,
                "knobs": sorted(able.knobs),
                "missing_knobs": able.missing_knobs,
            },
            facts=recorded(able),
        )
    for skip in plan.skipped:
        yield Skipped(
            arm=skip.arm, scenario=skip.scenario, workload=skip.workload, reason=skip.reason
        )
    for name in plan.arms:
        yield ImageReady(arm=name, kernel="", digest="0", cached=True, took_s=0.0)
    yield Planned(blocks_most=BLOCKS, cells_per_block=1, expected_block_s=1.0)


def measured_block(plan: Plan, block: int) -> Iterator[Event]:
    yield BlockStarted(block=block, order=())
    for batch in plan.block(block):
        for cell in batch.cells:
            yield CellStarted(
                cell=cell.id, block=block, arm=cell.arm, scenario=cell.scenario,
                workload=cell.workload, parameters=dict(cell.parameters),
            )  # fmt: skip
            yield CellFinished(cell=cell.id, status="ok")


def run_study(plan: Plan) -> Iterator[Event]:
    for block in range(1, BLOCKS + 1):
        yield from measured_block(plan, block)
        yield BlockFinished(block=block)


def left(plan: Plan, fold: Fold) -> list[tuple[Batch, list[Cell]]]:
    return [each for block in (1, BLOCKS) for each in unfinished(plan, block, fold.finished)]


def as_read(number: int, event: Event) -> Record:
    record = Record(seq=number, time=float(number), event=event)
    return Record.model_validate_json(record.model_dump_json())


@given(studies(), facts_now(), facts_now(), st.data())
def test_resume_plans_what_an_unbroken_run_would(
    study: Study, then: dict[str, ArmFacts], now: dict[str, ArmFacts], data: st.DataObject
) -> None:
    plan = plan_of(study, then)
    if plan is None:
        return
    events = [*beginning(study, then, plan), *run_study(plan)]
    cut = data.draw(st.integers(1, len(events)))
    fold = fold_records(as_read(number, event) for number, event in enumerate(events[:cut]))
    # What was not yet checked is found today as it would have been found then.
    today = {name: now[name] if name in fold.platforms else then[name] for name in then}
    again = plan_of(study, restored_facts(fold.platforms, today))
    assert again == plan
    done = {event.cell for event in events[:cut] if isinstance(event, CellFinished)}
    assert left(again, fold) == [
        (batch, [cell for cell in batch.cells if cell.id not in done])
        for block in (1, BLOCKS)
        for batch in plan.block(block)
    ]


@given(ABILITIES)
def test_facts_are_restored_whole(facts: ArmFacts) -> None:
    event = PlatformChecked(
        arm="a", platform="bare", options={}, usable=True, facts=recorded(facts)
    )
    read = PlatformChecked.model_validate_json(event.model_dump_json())
    assert restored_facts({"a": read}, {"a": ArmFacts(usable=False)}) == {"a": facts}


@pytest.mark.parametrize("then", [True, False])
@pytest.mark.parametrize("now", [True, False])
@pytest.mark.parametrize("hint", ["apt-get install runc", ""])
def test_only_an_arm_that_could_run_and_cannot_now_stops_a_resume(
    then: bool, now: bool, hint: str
) -> None:
    event = PlatformChecked(arm="a", platform="oci", options={}, usable=then)
    today = Verdict(
        now, "there is no runc", hint, False, {}, Capabilities(True, 2, 1 << 24, frozenset())
    )
    if now or not then:
        require_still_usable({"a": event}, {"a": today})
        return
    with pytest.raises(InputError, match=r"a was usable .* not now: there is no runc") as refused:
        require_still_usable({"a": event}, {"a": today})
    assert refused.value.hint == (hint or "make it usable again, or start a new run")


def test_a_run_of_old_is_restored_by_what_its_events_hold() -> None:
    able = {"max_vcpus": 4, "min_memory": 8, "pinning": True, "devices": ["emulated"],
            "neighbours": False, "knobs": ["shares"]}  # fmt: skip
    event = PlatformChecked(
        arm="a", platform="qemu", options={}, usable=True, emulated=True, capabilities=able
    )
    today = ArmFacts(usable=True, lacks={"fio": "no disk"}, boot_s=2.5)
    assert restored_facts({"a": event}, {"a": today}) == {
        "a": ArmFacts(
            usable=True, max_vcpus=4, min_memory=8, pinning=True, devices=frozenset({"emulated"}),
            neighbours=False, emulated=True, knobs=frozenset({"shares"}),
            lacks={"fio": "no disk"}, boot_s=2.5,
        )
    }  # fmt: skip


def test_a_recorded_run_of_old_is_planned_as_it_was(tmp_path: Path) -> None:
    with tarfile.open(RECORDED / "tiny.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    fold = read_fold(tmp_path / "tiny" / "events.jsonl")
    assert fold.started is not None
    study = restore_study(fold.started.study, build_catalog())
    today = {name: ArmFacts(usable=True, max_vcpus=1) for name in study.arms}
    facts = restored_facts(fold.platforms, today)
    plan = make_plan(study, fold.started.seed, facts, {"": HostFacts(TWO_CPUS)}, WORKLOADS)
    planned = {cell.id for block in (1, 2) for batch in plan.block(block) for cell in batch.cells}
    assert planned == set(fold.finished)
