"""How environments differ: between arms, block by block; and within a run, from which block on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from analysis.analysis_simulate import SimulatedMetric, SimulatedRun, events_of
from tare.analysis import compare_runs
from tare.analysis.data.load import run_data
from tare.analysis.model import Comparison
from tare.analysis.runs.proofs import (
    change_sentences,
    environment_changes,
    explanation,
    flatten,
    proof_differences,
)
from tare.events import Event, MachineReady, MachineStarting, Record, fold_records
from tare.events.results import MachineResult
from tare.report import render_comparison
from tare.report.compare.changes import RunPair, environment_table
from tare.report.compare.run_doubts import doubts_of

ARMS = ("bare", "bare-again", "qemu-pv")


def machine(
    arm: str,
    proof: dict[str, Any],
    role: str = "subject",
    block: int = 1,
    scenario: str = "alone",
    cpus: Sequence[int] = (),
) -> MachineResult:
    return MachineResult(
        arm, block, arm, scenario, role, 1.0, proof, {"cpus": list(cpus)}, True, "", (), {}
    )


def test_proofs_are_compared_and_explained() -> None:
    base = {
        "kernel": {"release": "6.1", "tainted": 0},
        "cpu": {"flags": "avx fpu tsc"},
        "nics": [],
        "topology": {"usable": [0, 1]},
    }
    guest = {
        "kernel": {"release": "6.1-rt", "tainted": 1},
        "cpu": {"flags": "fpu hypervisor tsc"},
        "nics": [{"driver": "virtio_net"}],
        "topology": {"usable": [0, 1]},
    }
    found = proof_differences(
        [machine("bare", base), machine("vm", guest), machine("vm", {"x": 1}, role="neighbour")],
        "bare",
        ["bare", "vm", "never-started"],
    )
    by_path = {difference.path: difference for difference in found}
    assert set(by_path) == {"kernel.release", "kernel.tainted", "cpu.flags", "nics.0.driver"}
    assert by_path["cpu.flags"].baseline_value == "only here: avx"
    assert by_path["cpu.flags"].arm_value == "only here: hypervisor"
    assert by_path["nics.0.driver"].baseline_value == "(absent)"
    assert by_path["kernel.release"].explains
    assert not by_path["kernel.tainted"].explains
    assert found[-1].path == "kernel.tainted"


def test_settings_that_vary_alike_in_both_arms_do_not_differ() -> None:
    machines = [
        machine("bare", {"memory": {"swap": 1}, "kernel": {"release": "a"}}),
        machine("bare", {"memory": {"swap": 2}, "kernel": {"release": "b"}}),
        machine("vm", {"memory": {"swap": 2}, "kernel": {"release": "c"}}),
    ]
    (difference,) = proof_differences(machines, "bare", ["vm"])
    assert (difference.path, difference.varies) == ("kernel.release", True)


def test_proofs_without_a_baseline_and_odd_values() -> None:
    assert proof_differences([machine("vm", {"a": 1})], "bare", ["vm"]) == ()
    # No two machines have one address: that is not a difference of their arms.
    both = [machine(arm, {"network": {"address": arm}}) for arm in ("bare", "vm")]
    assert proof_differences(both, "bare", ["vm"]) == ()
    assert flatten({"a": {"b": None, "c": True, "d": []}}) == {"a.c": "True"}
    assert explanation("mitigations.meltdown")
    assert explanation("machine.product") == ""


def over_blocks(values: dict[str, Sequence[Any]], path: str = "current") -> list[MachineResult]:
    """Machines of some arms, a block each, with a value of the clock source in each."""
    return [
        machine(arm, {"clocksource": {path: value}}, block=block)
        for arm, of_arm in values.items()
        for block, value in enumerate(of_arm, 1)
        if value is not None
    ]


@pytest.mark.parametrize(
    ("vm", "when"),
    [
        ("ttttpppp", "from block 5 on"),
        ("tppppppp", "from block 2 on"),
        ("tttttttp", "from block 8 on"),
        ("pptttttt", "until block 2"),
        ("ttpptttt", "in blocks 3, 4"),
        ("tttttptt", "in block 6"),
        ("pppppppp", ""),
    ],
)
def test_a_difference_in_some_blocks_is_listed_with_these_blocks(vm: str, when: str) -> None:
    (found,) = proof_differences(over_blocks({"bare": "tttttttt", "vm": vm}), "bare", ["vm"])
    assert (found.baseline_value, found.arm_value, found.when) == ("t", "p", when)
    (turned,) = proof_differences(over_blocks({"bare": vm, "vm": "tttttttt"}), "bare", ["vm"])
    assert (turned.baseline_value, turned.arm_value, turned.when) == ("p", "t", when)


def test_both_arms_in_the_same_blocks_with_the_same_values_do_not_differ() -> None:
    assert proof_differences(over_blocks({"bare": "ttpp", "vm": "ttpp"}), "bare", ["vm"]) == ()
    assert proof_differences(over_blocks({"bare": "tt", "vm": "ttpp"}), "bare", ["vm"]) == ()


def test_values_that_swap_between_arms_differ_in_every_block() -> None:
    (found,) = proof_differences(over_blocks({"bare": "tptp", "vm": "ptpt"}), "bare", ["vm"])
    assert found.varies and found.when == ""


def test_cpus_that_arms_use_in_turns_do_not_differ() -> None:
    machines = [
        machine(arm, {"topology": {"usable": [cpu]}}, block=block, cpus=[cpu])
        for block, cpus in enumerate([(0, 1), (1, 0)], 1)
        for arm, cpu in zip(("bare", "vm"), cpus, strict=True)
    ]
    assert proof_differences(machines, "bare", ["vm"]) == ()


def test_scenarios_are_compared_each_by_itself() -> None:
    sizes = {"small": 1, "large": 4}
    machines = [
        machine(arm, {"topology": {"online": size}}, scenario=scenario)
        for arm in ("bare", "vm")
        for scenario, size in sizes.items()
    ]
    assert proof_differences(machines, "bare", ["vm"]) == ()
    machines[-1] = machine("vm", {"topology": {"online": 2}}, scenario="large")
    (found,) = proof_differences(machines, "bare", ["vm"])
    assert (found.baseline_value, found.arm_value) == ("4", "2")


def test_arms_that_share_no_block_are_compared_as_wholes() -> None:
    machines = over_blocks({"bare": ["t", None], "vm": [None, "p"]})
    (found,) = proof_differences(machines, "bare", ["vm"])
    assert (found.baseline_value, found.arm_value, found.when) == ("t", "p", "")


def test_a_few_pages_of_memory_do_not_count_as_a_difference() -> None:
    def of(bare: int, vm: int) -> list[MachineResult]:
        return [
            machine("bare", {"memory": {"total": bare}}),
            machine("vm", {"memory": {"total": vm}}),
        ]

    assert proof_differences(of(1_000_000, 1_004_096), "bare", ["vm"]) == ()
    assert proof_differences(of(1_000_000, 1_100_000), "bare", ["vm"]) != ()


Change = Callable[[int, str, dict[str, Any]], dict[str, Any]]


def simulated(change: Change, run: str = "r1", blocks: int = 8) -> Comparison:
    """A whole comparison of a run whose machines have the proofs that ``change`` returns."""
    metric = SimulatedMetric("time", dict.fromkeys(ARMS, 1e-3))
    where: dict[str, tuple[int, str]] = {}

    def with_proof(event: Event) -> Event:
        if isinstance(event, MachineStarting):
            where[event.machine] = (event.block, event.arm)
        if isinstance(event, MachineReady):
            usual = {"clocksource": {"current": "tsc"}, "cpu": {"model": "A"}}
            return event.model_copy(update={"proof": change(*where[event.machine], usual)})
        return event

    events = map(with_proof, events_of(SimulatedRun([metric], run=run, blocks=blocks)))
    records = [Record(seq=i, time=float(i), event=event) for i, event in enumerate(events)]
    return compare_runs(run_data(Path("nowhere"), fold_records(records)))


def clock_falls_at(at: int, arms: Sequence[str] = ARMS) -> Change:
    def change(block: int, arm: str, usual: dict[str, Any]) -> dict[str, Any]:
        falls = block >= at and arm in arms
        return usual | {"clocksource": {"current": "acpi_pm" if falls else "tsc"}}

    return change


@pytest.mark.parametrize("at", [2, 5, 8])
def test_a_clock_source_that_falls_in_all_arms_alike_is_reported_first(at: int) -> None:
    found = simulated(clock_falls_at(at))
    (change,) = found.environment_changes
    assert (change.arms, change.block, change.before, change.after) == (ARMS, at, "tsc", "acpi_pm")
    assert found.notes[0] == (
        f"The environment changed during the run, at block {at}: clocksource.current of bare, "
        "bare-again and qemu-pv was tsc before and is acpi_pm from then on (reading the time may "
        "trap into the hypervisor)."
    )
    console = Console(file=StringIO(), width=200)
    render_comparison(found, console)
    assert f"at block {at}: clocksource.current" in console.file.getvalue()  # type: ignore[attr-defined]


def test_constant_environments_are_not_reported() -> None:
    assert simulated(lambda block, arm, usual: usual).environment_changes == ()


def test_a_value_that_changes_and_changes_back_is_reported_with_both_blocks() -> None:
    def change(block: int, arm: str, usual: dict[str, Any]) -> dict[str, Any]:
        return usual | {"cpu": {"model": "B" if 3 <= block < 6 else "A"}}

    found = simulated(change)
    assert found.environment_changes[0].blocks == (3, 6)
    assert "until it changed again at block 6" in found.notes[0]


def test_a_host_that_shares_a_run_is_compared_with_itself() -> None:
    def change(block: int, arm: str, usual: dict[str, Any]) -> dict[str, Any]:
        return usual | {"cpu": {"model": "B" if block % 2 else "A"}}

    (run,) = simulated(change).runs
    hosts = {block: "odd" if block % 2 else "even" for block in range(1, 9)}
    assert environment_changes([replace(run, block_hosts=hosts)]) == ()
    assert environment_changes([run]) != ()


def test_many_changes_are_counted() -> None:
    def change(block: int, arm: str, usual: dict[str, Any]) -> dict[str, Any]:
        return {"mitigations": {f"m{n}": block > 3 for n in range(9)}}

    notes = change_sentences(simulated(change).environment_changes)
    assert len(notes) == 5
    assert notes[-1].startswith("5 more values of the environment changed during the run")


def test_two_runs_are_compared_block_by_block() -> None:
    before = simulated(lambda block, arm, usual: usual)
    after = simulated(clock_falls_at(5), run="r2")
    pair = RunPair({"bare": before}, {"bare": after}, "bare")
    rows = [row for row in environment_table(pair).rows if "clocksource" in row.what]
    assert {row.where for row in rows} == {"bare", "bare-again", "qemu-pv"}
    assert {(row.what, row.before, row.after) for row in rows} == {
        ("clocksource.current (from block 5 on)", "tsc", "acpi_pm")
    }
    assert any(
        reason.startswith("The second run: the environment changed during the run, at block 5")
        for reason in doubts_of(before, after)
    )
