"""What kernels tell of their ticks and preemption, as machines' proofs hold it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from report.report_synthetic import write_run
from tare.analysis import load_run
from tare.analysis.kernels import kernels, tick_rates
from tare.analysis.rundata import RunData
from tare.events.results import MachineResult
from tare.report.kernels import kernels_table


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


def test_each_arm_tells_its_kernels_tick_and_preemption(any_run: RunData) -> None:
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


def test_a_rate_that_is_not_one_is_not_told(any_run: RunData) -> None:
    told = (machine("a", kernel(250)), machine("a", kernel(1000)), machine("b", kernel(None)))
    run = with_machines(any_run, *told)
    assert tick_rates([run]) == {}
    assert len(kernels([run])) == 3


@pytest.mark.parametrize("proof", [{}, {"kernel": 7}, {"kernel": {}}, {"topology": []}])
def test_a_machine_that_tells_nothing_has_no_row(
    any_run: RunData, proof: Mapping[str, Any]
) -> None:
    assert kernels([with_machines(any_run, machine("a", proof))]) == ()


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists))
def test_whatever_a_guest_tells_a_rate_is_a_number_above_zero(
    any_run: RunData, told: object
) -> None:
    run = with_machines(
        any_run, machine("a", {"kernel": {"tick_hz": told, "preempt": told, "release": told}})
    )
    assert all(rate > 0 for rate in tick_rates([run]).values())
    kernels_table([run]).shown()
