"""Kernels' ticks and preemption, from machines' proofs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from io import StringIO
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from report.report_synthetic import write_run
from tare.analysis import load_run
from tare.analysis.data.rundata import RunData
from tare.analysis.effects.compare import compare
from tare.analysis.topics.kernels import different_kernels, kernels, tick_rates
from tare.events.results import MachineResult
from tare.report.compare.run_doubts import doubts_of
from tare.report.page.warnings import warnings_of
from tare.report.sections.provenance import kernels_table
from tare.report.terminal.comparison import render_comparison


def machine(arm: str, proof: Mapping[str, Any], role: str = "subject") -> MachineResult:
    return MachineResult(
        arm, 1, arm, "alone", role, 1.0, proof, MappingProxyType({}), True, "", (), {}
    )


@pytest.fixture(scope="module")
def any_run(tmp_path_factory: pytest.TempPathFactory) -> RunData:
    return load_run(write_run(tmp_path_factory.mktemp("run")))


def with_machines(run: RunData, *machines: MachineResult) -> RunData:
    return replace(run, machines=machines)


def kernel(hz: object, preempt: str = "rt", tickless: str | None = None) -> dict[str, Any]:
    return {
        "kernel": {"release": "6.1", "tick_hz": hz, "preempt": preempt},
        "topology": {"tickless": tickless},
    }


def test_each_arm_has_its_kernels_tick_and_preemption(any_run: RunData) -> None:
    run = with_machines(
        any_run,
        machine("bare", kernel(250, "voluntary", "(null)")),
        machine("bare", kernel(250, "voluntary", "(null)")),
        machine("kvm", kernel(1000, "rt", "1")),
        machine("kvm", kernel(100), role="neighbour-1"),
    )
    table = kernels_table([run]).shown()
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["bare", "6.1", "250/s", "voluntary", "none", "none"],
        ["kvm", "6.1", "1,000/s", "PREEMPT_RT", "1", "none"],
    ]
    assert tick_rates([run]) == {"bare": 250, "kvm": 1000}


def test_differing_or_missing_rate_is_not_listed(any_run: RunData) -> None:
    machines = (machine("a", kernel(250)), machine("a", kernel(1000)), machine("b", kernel(None)))
    run = with_machines(any_run, *machines)
    assert tick_rates([run]) == {}
    assert len(kernels([run])) == 3


@pytest.mark.parametrize("proof", [{}, {"kernel": 7}, {"kernel": {}}, {"topology": []}])
def test_machine_without_kernel_facts_has_no_row(
    any_run: RunData, proof: Mapping[str, Any]
) -> None:
    assert kernels([with_machines(any_run, machine("a", proof))]) == ()


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists))
def test_any_reported_rate_is_a_number_above_zero(any_run: RunData, given_value: object) -> None:
    run = with_machines(
        any_run,
        machine(
            "a",
            {"kernel": {"tick_hz": given_value, "preempt": given_value, "release": given_value}},
        ),
    )
    assert all(rate > 0 for rate in tick_rates([run]).values())
    kernels_table([run]).shown()


def released(arm: str, release: object) -> MachineResult:
    return machine(arm, {"kernel": {"release": release}})


def test_arms_on_another_kernel_than_their_baseline_are_named(any_run: RunData) -> None:
    base, *others = any_run.arms
    assert base == any_run.baseline
    same, first, second = others[0], others[1], others[2]
    run = with_machines(
        any_run,
        released(base, "6.18.44-host"),
        released(same, "6.18.44-host"),
        released(first, "6.1.0-rt"),
        released(second, "6.1.0-rt"),
    )
    (sentence,) = different_kernels(run)
    assert sentence.startswith(
        f"{first} and {second} ran Linux 6.1.0-rt, and {base} Linux 6.18.44-host: "
    )
    assert same not in sentence.split()


@pytest.mark.parametrize("release", [None, 7, "", ["6.1"]])
def test_missing_release_is_not_a_different_kernel(any_run: RunData, release: object) -> None:
    base, other = any_run.arms[:2]
    assert different_kernels(with_machines(any_run, released(base, release))) == ()
    machines = (released(base, release), released(other, "6.1"))
    assert different_kernels(with_machines(any_run, *machines)) == ()


def test_warnings_terminal_and_two_runs_say_that_kernels_differ(any_run: RunData) -> None:
    base, other = any_run.arms[0], any_run.arms[2]
    run = with_machines(any_run, released(base, "6.18"), released(other, "6.1"))
    same = with_machines(any_run, released(base, "6.18"), released(other, "6.18"))
    sentence = f"{other} ran Linux 6.1, and {base} Linux 6.18"
    assert any(each.text.startswith(sentence) for each in warnings_of(compare([run])))
    assert not any(sentence in each.text for each in warnings_of(compare([same])))
    shown = StringIO()
    render_comparison(compare([run]), Console(file=shown, width=300))
    # The words after the table, which a terminal shows last.
    assert sentence in " ".join(shown.getvalue().split("-+-")[-1].split())
    doubts = doubts_of(compare([same]), compare([run]))
    (doubt,) = (each for each in doubts if sentence in each)
    assert doubt.startswith(f"In the second run {sentence}")
