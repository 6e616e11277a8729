"""The real-time studies as shipped: the seven scenarios, on hosts of several sizes, in time."""

from pathlib import Path

import pytest

from tare.references.published import PublishedScenario, load_reference
from tare.registry import installed
from tare.run.catalog import build_catalog
from tare.run.preflight.checking import EMULATED_SLOWDOWN
from tare.study.model.study import Study
from tare.study.planning.host_cpus import HostCpus
from tare.study.planning.plan import ArmFacts, HostFacts, Plan, make_plan
from tare.study.reading.load import load_study
from tare.workloads import WORKLOADS

STUDIES = Path(__file__).parents[2] / "studies"
MINUTE = 60.0


def boot_s(study: Study, arm: str) -> float:
    wanted = study.arms[arm]
    return installed().platforms[wanted.platform].stated(wanted.options).boot_s


def study(name: str) -> Study:
    return load_study(STUDIES / f"{name}.yaml", build_catalog())


def plan(name: str, cpus: int = 2) -> Plan:
    chosen = study(name)
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
    return make_plan(chosen, 1, facts, {"": HostFacts(HostCpus(tuple(range(cpus))))}, WORKLOADS)


@pytest.mark.parametrize(("name", "limit_min"), [("realtime", 90), ("realtime-short", 10)])
def test_a_study_takes_no_longer_than_promised(name: str, limit_min: float) -> None:
    planned = plan(name)
    # The rest is left to what the estimate does not know: slow boots and busy hosts.
    assert 0.3 * limit_min * MINUTE < planned.most_s < 0.75 * limit_min * MINUTE
    assert planned.study.blocks.least == planned.study.blocks.most == 8
    assert planned.study.aa == ("bare", "bare-again")
    assert not planned.study.warnings


def test_the_seven_scenarios_are_those_of_the_source() -> None:
    published = load_reference("fayyad2013").scenarios
    chosen = study("realtime")
    assert list(chosen.scenarios) == list(published)
    for name, scenario in chosen.scenarios.items():
        wanted: PublishedScenario = published[name]
        assert scenario.summary.startswith(f"{wanted.number}: ")
        assert scenario.subject.cpus == wanted.subject
        assert len(scenario.neighbours) == (wanted.neighbours is not None)
        for neighbour in scenario.neighbours:
            assert wanted.neighbours is not None
            assert (neighbour.load, neighbour.cpus) == (
                wanted.neighbours.load,
                wanted.neighbours.cpus,
            )


COUNTED = {"one-to-all", "all-to-all-cpu", "all-to-all-memory", "two-to-all-memory"}


def test_every_arm_runs_every_scenario_with_all_tests() -> None:
    planned = plan("realtime")
    assert len(planned.batches) == 7 * 7
    for batch in planned.batches:
        # The processor's counters are read where there is something to compare.
        counted = ["tick"] if batch.scenario in COUNTED else []
        # The sources' view of 9 s is of their first scenario.
        view = ["tick"] if batch.scenario == "one-to-all" else []
        kinds = ["tick", *view, "tick", *counted, "wakeup", *["switch"] * 5]
        assert [cell.kind for cell in batch.cells] == kinds
    threads = [cell.parameters["threads"] for cell in planned.batches[0].cells[-5:]]
    assert threads == [2, 10, 100, 500, 1000]


@pytest.mark.parametrize(("cpus", "neighbours"), [(1, 1), (2, 1), (4, 3), (8, 7)])
def test_neighbours_fill_the_host(cpus: int, neighbours: int) -> None:
    counts = {
        batch.scenario: len(batch.placement.neighbours)
        for batch in plan("realtime", cpus).batches
        if batch.arm == "bare"
    }
    assert counts == {
        "one-to-all": 0,
        "one-to-one": 0,
        "contention-cpu": 1,
        "contention-memory": 1,
        "all-to-all-cpu": neighbours,
        "all-to-all-memory": neighbours,
        "two-to-all-memory": 1,
    }


def test_adaptation_to_the_host_is_noted() -> None:
    notes = plan("realtime", 4).notes
    assert any(note.startswith("all-to-all-cpu: 3 cpu-load neighbours to fill") for note in notes)


def test_the_long_study_takes_as_many_samples_as_the_source_in_every_scenario() -> None:
    wanted = {fact: each.value for fact, each in load_reference("fayyad2013").facts.items()}
    long, usual = study("realtime-long"), study("realtime")
    assert list(long.scenarios) == list(usual.scenarios)
    for name, scenario in long.scenarios.items():
        assert scenario.model_copy(update={"host_trace": None}) == usual.scenarios[name]
        assert not long.records_host("qemu-pv", name)
    (point,) = long.workloads["tick"].points
    assert point["samples"] == wanted["long-view-samples"]
    assert long.shape == usual.shape
    assert set(long.arms) < set(usual.arms)


def test_a_calibrated_loop_takes_its_time_on_a_slow_machine_too() -> None:
    kind = WORKLOADS["tick"]
    counted, timed, bare = (
        kind.parameters.model_validate(given)
        for given in ({"samples": 50_000_000}, {"duration": "2s"}, {"samples": 1000, "loop": 0})
    )
    assert kind.clocked_s(counted) == pytest.approx(3400)
    assert kind.clocked_s(counted) <= kind.expected_s(counted)
    assert kind.clocked_s(timed) == 2
    assert kind.clocked_s(bare) == 0


def test_the_short_study_asks_part_of_the_long_one() -> None:
    long, short = study("realtime"), study("realtime-short")
    assert set(short.arms) < set(long.arms)
    for name, scenario in short.scenarios.items():
        assert scenario == long.scenarios[name]
