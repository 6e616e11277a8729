from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from study.study_catalog import ABLE, CATALOG, GOOD, KINDS, FixedKind
from tare.errors import InputError
from tare.study.model.notes import ONE_KERNEL, one_kernel_note
from tare.study.model.study import Study
from tare.study.planning.cells import cell_id
from tare.study.planning.host_cpus import HostCpus
from tare.study.planning.plan import ArmFacts, HostFacts, Plan, make_plan
from tare.study.reading.load import parse_study

TWO_CPUS = HostCpus(online=(0, 1))


def small(text: str = GOOD) -> Study:
    return parse_study(text.encode(), "s.yaml", CATALOG)


def plan_of(study: Study, seed: int = 1, **facts: ArmFacts) -> Plan:
    every = {arm: facts.get(arm.replace("-", "_"), ABLE) for arm in study.arms}
    return make_plan(study, seed, every, {"": HostFacts(TWO_CPUS)}, KINDS)


def test_all_arms_boot_one_kernel_where_one_cannot_boot_the_real_time_one() -> None:
    study = small()
    plan = plan_of(study, qemu_pv=replace(ABLE, plain_kernel=True))
    assert {plan.kernel_of(arm) for arm in plan.arms} == {"generic"}
    assert [note for note in plan.notes if note.startswith(ONE_KERNEL)] == [
        f"{ONE_KERNEL}, not the real-time one, which qemu-pv may not survive; so all run "
        "the same one"
    ]


def test_all_arms_boot_the_kernel_of_the_live_image_where_one_boots_that() -> None:
    study = small()
    live = replace(ABLE, plain_kernel=True, boots_image=False)
    plan = plan_of(study, qemu_pv=live)
    assert {plan.kernel_of(arm) for arm in plan.arms} == {"generic"}
    assert (plan.plain, plan.live) == (("qemu-pv",), ("qemu-pv",))
    (note,) = (note for note in plan.notes if note.startswith(ONE_KERNEL))
    assert note == (
        f"{ONE_KERNEL}, not the real-time one, which the live image of qemu-pv does not have; so "
        "all run the same one; make that image with `tare image live --kernel rt`, and write "
        "`kernel: rt`"
    )


REALTIME = {**KINDS, "tick": FixedKind(KINDS["tick"].parameters)}
REALTIME["tick"].realtime = True


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("", 4.0),
        ("noise: {duration: 5s}\n", 10.0),
        ("noise: {duration: 0}\n", 0.0),
        ("host: lab\nlab: deterministic\n", 0.0),
        ("host: lab\n", 4.0),
    ],
)
def test_a_real_time_study_is_planned_with_the_time_for_the_noise(
    text: str, seconds: float
) -> None:
    study = small(GOOD + text)
    able = dict.fromkeys(study.arms, ABLE)
    hosts = {study.host_of(arm): HostFacts(TWO_CPUS) for arm in study.arms}
    quiet, noisy = (make_plan(study, 1, able, hosts, kinds) for kinds in (KINDS, REALTIME))
    assert (quiet.noise_s, noisy.noise_s) == (0.0, seconds)
    assert noisy.least_s == quiet.least_s + seconds
    assert noisy.most_s == quiet.most_s + seconds


def test_where_no_arm_boots_an_image_no_kernel_is_chosen() -> None:
    live = replace(ABLE, plain_kernel=True, boots_image=False)
    study = small()
    arms = {arm: replace(ABLE, boots_image=False) for arm in study.arms} | {"qemu-pv": live}
    plan = make_plan(study, 1, arms, {"": HostFacts(TWO_CPUS)}, KINDS)
    assert {plan.kernel_of(arm) for arm in plan.arms} == {None}
    assert not any(note.startswith(ONE_KERNEL) for note in plan.notes)


def test_both_reasons_for_the_general_kernel_are_noted() -> None:
    assert one_kernel_note(["xen-pv"], ["hyperv", "ovirt"]).endswith(
        "which xen-pv may not survive and which the live image of hyperv, ovirt does not have; so "
        "all run the same one"
    )


def test_an_arm_that_does_not_run_decides_no_kernel() -> None:
    lacking = replace(ABLE, usable=False, reason="no", plain_kernel=True)
    plan = plan_of(small(), qemu_pv=lacking)
    assert {plan.kernel_of(arm) for arm in plan.arms} == {None}
    assert not any(note.startswith(ONE_KERNEL) for note in plan.notes)


@st.composite
def studies(draw: st.DrawFn) -> Study:
    others = draw(st.lists(st.sampled_from(["a", "b", "c.d", "e_f"]), unique=True, max_size=3))
    arms = "".join(f"  {name}: {{platform: qemu}}\n" for name in others)
    scenarios = draw(st.lists(st.sampled_from(["s1", "s2", "s3"]), unique=True, min_size=1))
    placed = "".join(
        f"  {name}: {{subject: {{cpus: {draw(st.sampled_from(['any', 'pinned']))}}}}}\n"
        for name in scenarios
    )
    labels = draw(st.lists(st.sampled_from(["w1", "w2", "tick"]), unique=True, min_size=1))
    workloads = ""
    for label in labels:
        samples = draw(st.lists(st.integers(1, 99), unique=True, min_size=1, max_size=3))
        busy = draw(st.sampled_from(["68us", "[1, 2.5]", "[1ms, 2ms]"]))
        only = draw(st.lists(st.sampled_from(scenarios), unique=True, min_size=1))
        workloads += (
            f"  {label}: {{workload: tick, samples: {samples}, busy: {busy}, "
            f"repeats: {draw(st.integers(1, 3))}, scenarios: {only}}}\n"
        )
    return small(
        f"study: x\nbaseline: base\narms:\n  base: {{platform: bare}}\n{arms}"
        f"scenarios:\n{placed}workloads:\n{workloads}"
    )


def wanted_cells(study: Study) -> set[tuple[str, str, str, str, int]]:
    return {
        (arm, scenario, label, str(sorted(point.items())), repeat)
        for arm in study.arms
        for scenario in study.scenarios
        for label, spec in study.workloads.items()
        if spec.scenarios is None or scenario in spec.scenarios
        for point in spec.points
        for repeat in range(1, spec.repeats + 1)
    }


@given(studies(), st.integers(0, 2**63 - 1), st.integers(1, 999))
def test_each_block_holds_every_arm_and_scenario_once_with_all_its_cells(
    study: Study, seed: int, number: int
) -> None:
    batches = plan_of(study, seed).block(number)
    pairs = [(batch.arm, batch.scenario) for batch in batches]
    assert len(pairs) == len(set(pairs))
    cells = [
        (cell.arm, cell.scenario, cell.workload, str(sorted(cell.parameters.items())), cell.repeat)
        for batch in batches
        for cell in batch.cells
    ]
    assert len(cells) == len(set(cells))
    assert set(cells) == wanted_cells(study)
    for batch in batches:
        assert batch.cells
        assert all(
            (cell.block, cell.arm, cell.scenario) == (number, batch.arm, batch.scenario)
            for cell in batch.cells
        )


def test_long_values_differ_in_a_short_cell_identity() -> None:
    metrics = {f"m{number}": {"regex": "x" * 500} for number in range(50)}
    one, other = ({"metrics": metrics}, {"metrics": {**metrics, "m0": {"regex": "y"}}})
    identities = [cell_id(1, "bare", "alone", "mine", point) for point in (one, other)]
    assert len(set(identities)) == 2
    assert max(map(len, identities)) < 60


@given(studies())
def test_every_cell_identity_is_unique_in_the_run(study: Study) -> None:
    plan = plan_of(study)
    identities = [c.id for k in range(1, 12) for batch in plan.block(k) for c in batch.cells]
    assert len(identities) == len(set(identities))


@given(studies(), st.integers(0, 2**63 - 1))
def test_the_same_seed_gives_the_same_order(study: Study, seed: int) -> None:
    one, two = plan_of(study, seed), plan_of(study, seed)
    assert [one.block(k) for k in (3, 1, 2)] == [two.block(k) for k in (3, 1, 2)]


@given(studies(), st.data())
def test_skipped_and_planned_cells_are_together_all_cells(
    study: Study, data: st.DataObject
) -> None:
    facts = {
        arm: ArmFacts(
            usable=arm == "base" or data.draw(st.booleans()),
            max_vcpus=1,
            pinning=arm == "base" or data.draw(st.booleans()),
            lacks={"tick": "no"} if arm != "base" and data.draw(st.booleans()) else {},
        )
        for arm in study.arms
    }
    plan = make_plan(study, 1, facts, {"": HostFacts(TWO_CPUS)}, KINDS)
    planned = {
        (c.arm, c.scenario, c.workload, str(sorted(c.parameters.items())), c.repeat)
        for batch in plan.block(1)
        for c in batch.cells
    }
    skipped = {
        cell
        for cell in wanted_cells(study)
        for skip in plan.skipped
        if skip.arm == cell[0]
        and skip.scenario in (None, cell[1])
        and skip.workload in (None, cell[2])
    }
    assert planned | skipped == wanted_cells(study)
    assert not planned & skipped
    assert all(skip.reason for skip in plan.skipped)


def test_blocks_differ_in_order_and_interleave_the_arms() -> None:
    plan = plan_of(small())
    orders = {tuple((v.arm, v.scenario) for v in plan.block(k)) for k in range(1, 20)}
    assert len(orders) > 15
    firsts = {order[0][0] for order in orders}
    assert firsts == set(small().arms)
    inner = {
        tuple(c.workload for c in batch.cells)
        for k in range(1, 20)
        for batch in plan.block(k)
        if (batch.arm, batch.scenario) == ("bare", "alone")
    }
    assert len(inner) > 15


def test_each_arm_has_each_place_equally_often_within_a_scenario() -> None:
    plan = plan_of(small(), 9)
    arms = len(plan.arms)
    for scenario in ("alone", "crowded"):
        orders = [
            [v.arm for v in plan.block(k) if v.scenario == scenario] for k in range(1, arms + 1)
        ]
        for column in zip(*orders, strict=True):
            assert sorted(column) == sorted(plan.arms)


def test_the_order_does_not_depend_on_the_process() -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        "from study.test_study_plan import plan_of, small;"
        "print([c.id for v in plan_of(small(), 7).block(3) for c in v.cells])"
    )
    folder = str(Path(__file__).parents[1])
    runs = {
        subprocess.run(
            [sys.executable, "-c", script, folder],
            env={"PYTHONHASHSEED": seed, "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert runs == {str([c.id for v in plan_of(small(), 7).block(3) for c in v.cells]) + "\n"}


def test_a_seed_keeps_its_order_across_versions() -> None:
    batches = plan_of(small(ONE_SHAPE), 42).block(1)
    assert [f"{v.arm}/{v.scenario}" for v in batches][:3] == FIRST_OF_SEED_42


ONE_SHAPE = GOOD.replace("    shape: {memory: 512MiB}\n", "")
"""The same without the arm's own shape, which has a baseline of that shape added."""
FIRST_OF_SEED_42 = ["bare-again/alone", "bare/alone", "qemu-pv/alone"]


def test_identities_hold_only_what_the_study_sets() -> None:
    assert cell_id(3, "qemu-pv", "pinned", "tick", {"samples": 20000}) == (
        "b003/qemu-pv/pinned/tick[samples=20000]"
    )
    assert cell_id(12, "a", "s", "w", {}, 2) == "b012/a/s/w#2"
    assert cell_id(1, "a", "s", "w", {"z": 2.0, "b": True, "c": "a/b", "d": "tcg"}) == (
        'b001/a/s/w[b=true,c="a/b",d=tcg,z=2]'
    )
    assert cell_id(1, "a", "s", "w", {"x": "true"}) != cell_id(1, "a", "s", "w", {"x": True})


@pytest.mark.parametrize(
    ("facts", "scenario", "reason"),
    [
        (replace(ABLE, usable=False, reason="no /dev/kvm"), None, "no /dev/kvm"),
        (replace(ABLE, max_vcpus=0), None, "wants 1 vCPUs; this platform allows at most 0 here"),
        (
            replace(ABLE, min_memory=1 << 30),
            None,
            "wants 256 MiB of memory; this platform needs at least 1 GiB",
        ),
        (
            replace(ABLE, devices=frozenset({"emulated"})),
            None,
            "wants paravirtual devices; this platform offers emulated",
        ),
        (replace(ABLE, neighbours=False), "crowded", "needs other machines, which this platform"),
        (replace(ABLE, pinning=False), "pinned", "needs vCPUs bound to host CPUs"),
    ],
)
def test_scenarios_that_an_arm_lacks_are_skipped_with_the_reason(
    facts: ArmFacts, scenario: str | None, reason: str
) -> None:
    plan = plan_of(small(), qemu_pv=facts)
    skip = next(s for s in plan.skipped if s.scenario == scenario)
    assert (skip.arm, skip.workload) == ("qemu-pv", None)
    assert reason in skip.reason
    assert ("qemu-pv" in plan.arms) == (scenario is not None)
    assert not any((v.arm, v.scenario) == ("qemu-pv", scenario) for v in plan.batches)


def test_an_arm_that_has_just_what_it_needs_runs() -> None:
    exact = replace(ABLE, min_memory=256 << 20, max_vcpus=1)
    assert not plan_of(small(), qemu_pv=exact).skipped


def test_kernel_that_nothing_boots_is_noted() -> None:
    study = small()
    named = study.arms["qemu-pv"].model_copy(update={"kernel": "cloud"})
    study = study.model_copy(update={"arms": {**study.arms, "qemu-pv": named}})
    assert not plan_of(study).skipped
    (skip,) = plan_of(study, qemu_pv=replace(ABLE, boots_image=False)).skipped
    assert skip.arm == "qemu-pv"
    assert "remove `kernel`" in skip.reason


def test_workloads_that_need_more_vcpus_are_skipped_with_the_remedy() -> None:
    study = small()
    many = study.workloads["switch"].model_copy(
        update={"points": ({"threads": 2, "rounds": 100}, {"threads": 300, "rounds": 100})}
    )
    study = study.model_copy(update={"workloads": {**study.workloads, "switch": many}})
    plan = plan_of(study)
    assert {(skip.scenario, skip.workload) for skip in plan.skipped} == {("alone", "switch")}
    assert {skip.reason for skip in plan.skipped} == {
        "switch threads=300 rounds=100 needs 3 vCPUs, not 1: write `vcpus: 3`"
    }
    taken = [
        cell.parameters["threads"]
        for batch in plan.batches
        for cell in batch.cells
        if cell.workload == "switch"
    ]
    assert set(taken) == {2}


def test_a_workload_an_arm_lacks_is_skipped_alone() -> None:
    plan = plan_of(small(), qemu_pv=replace(ABLE, lacks={"switch": "no threads"}))
    assert [(s.arm, s.workload, s.reason) for s in plan.skipped] == [
        ("qemu-pv", "switch", "no threads")
    ]
    assert {c.kind for v in plan.batches if v.arm == "qemu-pv" for c in v.cells} == {
        "tick",
        "memory-bandwidth",
    }


def test_a_baseline_that_cannot_run_is_an_input_error() -> None:
    with pytest.raises(InputError, match="baseline 'bare' cannot run here: broken"):
        plan_of(small(), bare=ArmFacts(usable=False, reason="broken"))


def test_more_vcpus_than_the_host_has_cannot_be_pinned() -> None:
    text = GOOD.replace("shape: {memory: 512MiB}", "shape: {vcpus: 3}")
    plan = plan_of(small(text))
    assert {s.scenario for s in plan.skipped if s.arm == "qemu-em"} == {"pinned", "crowded"}
    assert "this host has 2" in plan.skipped[0].reason


def test_the_estimate_counts_boots_and_cells() -> None:
    study = small(GOOD.replace("baseline: bare", "baseline: bare\nblocks: {least: 8, most: 20}"))
    plan = plan_of(study, qemu_em=replace(ABLE, slowdown=2.0))
    cells = {"alone": 8, "pinned": 4, "crowded": 4}
    boots = {"alone": 1, "pinned": 1, "crowded": 3}
    per_arm = sum(2.0 * n for n in cells.values())
    # The emulated arm's second of work takes two, in addition to the second that the clock ends.
    # Four arms, and a baseline of the emulated arm's shape.
    assert plan.block_s == 5 * sum(boots.values()) + 5.5 * per_arm
    assert plan.least_s == 8 * plan.block_s
    assert plan.most_s == 20 * plan.block_s


def test_only_work_takes_longer_where_the_machine_is_emulated_not_what_the_clock_ends() -> None:
    plan = plan_of(small(), qemu_em=replace(ABLE, slowdown=3.0))
    expected_s = {
        batch.arm: {cell.expected_s for cell in batch.cells}
        for batch in plan.batches
        if batch.arm in ("bare", "qemu-em")
    }
    assert expected_s == {"bare": {2.0}, "qemu-em": {1.0 + 3 * 1.0}}


def test_a_budget_limits_the_estimate_but_never_the_least() -> None:
    text = GOOD.replace("baseline: bare", "baseline: bare\nblocks: {most: 99, budget: 1 s}")
    plan = plan_of(small(text))
    assert plan.most_s == plan.least_s


def test_a_neighbour_is_placed_with_its_parameters() -> None:
    batch = next(v for v in plan_of(small()).batches if v.scenario == "crowded")
    assert batch.placement.subject == (1,)
    assert [n.cpus for n in batch.placement.neighbours] == [(1,), (1,)]
    assert batch.placement.neighbours[0].parameters == {"block_size": 1 << 20}


def test_cell_has_what_the_executor_needs() -> None:
    batch = next(v for v in plan_of(small()).block(2) if v.scenario == "alone")
    cell = next(c for c in batch.cells if c.workload == "again" and c.repeat == 2)
    assert cell.kind == "tick"
    assert cell.deadline_s == 60.0
    assert cell.id == f"b002/{batch.arm}/alone/again#2"


MANY = """
study: x
baseline: bare
shape: {vcpus: 3}
arms:
  bare: {platform: bare}
  qemu: {platform: qemu, shape: {vcpus: 1}}
scenarios:
  one: {subject: {cpus: pinned, vcpus: 1}}
  every: {subject: {vcpus: all}}
  shaped: {}
  four: {subject: {vcpus: 4}}
workloads:
  tick: {samples: 5}
"""


def test_a_scenario_says_how_many_vcpus_the_subject_has() -> None:
    able = replace(ABLE, max_vcpus=3)
    plan = plan_of(small(MANY), bare=able, qemu=able)
    found = {(batch.arm, batch.scenario): batch.vcpus for batch in plan.batches}
    assert found == {
        ("bare", "one"): 1,
        ("qemu", "one"): 1,
        ("bare", "every"): 2,
        ("qemu", "every"): 2,
        ("bare", "shaped"): 1,  # the arm's shape, which the baseline takes
        ("qemu", "shaped"): 1,
    }
    assert [(skip.arm, skip.scenario) for skip in plan.skipped] == [
        ("bare", "four"),
        ("qemu", "four"),
    ]
    assert "wants 4 vCPUs" in plan.skipped[0].reason


@pytest.mark.parametrize("wrong", ["0", "4097", "some", "1.5", "true", "[1, 2]"])
def test_invalid_number_of_vcpus_is_reported(wrong: str) -> None:
    with pytest.raises(InputError, match="must be a whole number from 1 to 4096, `all` or `spare`"):
        small(MANY.replace("vcpus: all", f"vcpus: {wrong}"))


def test_an_arm_names_the_kernel_that_its_live_image_was_made_with() -> None:
    live = replace(ABLE, boots_image=False, boots_live=True)
    named = GOOD.replace("accelerator: tcg}", "accelerator: tcg, kernel: rt}")
    plan = plan_of(small(named), qemu_pv=live)
    assert "qemu-pv" in plan.arms and plan.kernel_of("qemu-pv") == "rt"
    other = plan_of(small(named.replace("kernel: rt", "kernel: cloud")), qemu_pv=live)
    (reason,) = {skip.reason for skip in other.skipped if skip.arm == "qemu-pv"}
    assert "tare image live --kernel rt" in reason
    there = plan_of(small(named), qemu_pv=replace(live, boots_live=False))
    assert "remove `kernel`" in next(s.reason for s in there.skipped if s.arm == "qemu-pv")
