"""Energy per unit of work: from the host's power and the work, with the meter's uncertainty."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from analysis.analysis_observed import observed_as
from references.references_run import write_realtime_run
from tare.analysis import compare_runs, load_run
from tare.analysis.data.rundata import RunData
from tare.analysis.topics.energy import COMPUTER, MEMORY, PLATFORM, PROCESSORS, energy_costs
from tare.events.results import CellResult, Observation
from tare.report.page.data import ReportData
from tare.report.sections.energy import INCLUDED, Energy

SECONDS = 10.0


def counter(watts: float, step: float = 0.01) -> dict[str, float]:
    return {"joules": watts * SECONDS, "resolution_j": step, "uncertainty_j": 2 * step}


def facts_of(arm: str) -> dict[str, Any]:
    """Two packages of 20 W each on the bare machine and of 30 W with the guest, memory and BMC."""
    watts = 30.0 if arm == "vm" else 20.0
    return {
        "seconds": SECONDS,
        "domains": {
            "package-0": counter(watts),
            "package-1": counter(watts),
            "package-0/core": counter(watts - 5),
            "package-0/dram": counter(3.0),
            "psys": counter(90.0),
        },
        "idle_w": {"package-0": 8.0, "package-1": 9.0},
        "bmc": {
            "source": "IPMI (DCMI)",
            "seconds": SECONDS,
            "joules": 150.0 * SECONDS,
            "uncertainty_j": 75.0,
        },
    }


def run_with(data: RunData, of_arm: Mapping[str, Any] | None = None, unit: str = "1/s") -> RunData:
    """Return a run whose bare machine does 1000 a second, and the guest 500."""

    def probed(cell: CellResult) -> CellResult:
        facts = facts_of(cell.arm) if of_arm is None else of_arm.get(cell.arm)
        return replace(cell, facts={} if facts is None else {"probes": {"energy": facts}})

    def rate(cell: CellResult, seen: Observation) -> Observation:
        metric = seen.metric._replace(unit=unit, kind="typical", headline=True)
        value = (500.0 if cell.arm == "vm" else 1000.0) if unit.endswith("/s") else 2.0
        return Observation(seen.role, metric, value)

    counted = [replace(done, result=probed(done.result)) for done in observed_as(data, rate)]
    return replace(data, cells=tuple(map(probed, data.cells)), counted=tuple(counted))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> RunData:
    return load_run(write_realtime_run(tmp_path_factory.mktemp("run")))


def test_power_is_divided_by_work_for_each_meter(plain: RunData) -> None:
    costs, missing = energy_costs([run_with(plain)], "bare", 0.95)
    assert costs and not missing
    assert {cost.meter for cost in costs} == {PROCESSORS, MEMORY, PLATFORM, COMPUTER}
    for cost in costs:
        there = cost.arm == "vm"
        if cost.meter == PROCESSORS:
            # Both packages, and not their cores again.
            assert cost.watts == pytest.approx(60.0 if there else 40.0)
            assert cost.per_unit_j == pytest.approx(0.12 if there else 0.04)
            assert cost.idle_w == pytest.approx(17.0)
            assert cost.uncertainty == pytest.approx(0.04 / (cost.watts * SECONDS))
            assert (cost.ratio is None) == (cost.arm == "bare")
            if there:
                assert cost.ratio == pytest.approx(3.0) and cost.interval is not None
        elif cost.meter == COMPUTER:
            assert cost.per_unit_j == pytest.approx(0.3 if there else 0.15)
            assert cost.uncertainty == pytest.approx(0.05) and cost.idle_w is None
        else:
            assert cost.watts == pytest.approx(3.0 if cost.meter == MEMORY else 90.0)


def test_a_duration_costs_the_energy_of_one_run(plain: RunData) -> None:
    costs, _ = energy_costs([run_with(plain, unit="s")], "bare", 0.95)
    found = {cost.arm: cost.per_unit_j for cost in costs if cost.meter == PROCESSORS}
    assert found["vm"] == pytest.approx(120.0) and found["bare"] == pytest.approx(80.0)


def test_a_meter_that_is_too_coarse_gives_no_energy_per_unit(plain: RunData) -> None:
    coarse = {
        "seconds": SECONDS,
        "domains": {"package-0": {"joules": 1.0, "resolution_j": 1.0, "uncertainty_j": 2.0}},
    }
    costs, _ = energy_costs([run_with(plain, {"bare": coarse, "vm": coarse})], "bare", 0.95)
    assert costs
    assert all(cost.per_unit_j is None and cost.uncertainty == 2.0 for cost in costs)


def test_unmeasured_energy_is_not_shown(plain: RunData) -> None:
    lacking = {"missing": "the host has no energy counter (RAPL) that its kernel shows"}
    run = run_with(plain, {"bare": facts_of("bare"), "vm": lacking})
    costs, missing = energy_costs([run], "bare", 0.95)
    assert {cost.arm for cost in costs} == {"bare"}
    assert missing == {lacking["missing"]: ("vm",)}
    shown = Energy().data(ReportData([run], compare_runs(run)))
    assert shown is not None and len(shown.tables) == 1
    assert INCLUDED in shown.lead
    assert f"In vm energy was not measured: {lacking['missing']}." in shown.lead
    assert Energy().data(ReportData([plain], compare_runs(plain))) is None


@pytest.mark.parametrize("facts", [{"seconds": "long"}, {"domains": {"package-0": {}}}, 7])
def test_strange_facts_are_not_energy(plain: RunData, facts: Any) -> None:
    costs, missing = energy_costs([run_with(plain, {"vm": facts})], "bare", 0.95)
    assert not costs and missing == {"the cell's facts are not those of energy": ("vm",)}


def test_the_table_has_units_and_states_the_idle_power(plain: RunData) -> None:
    run = run_with(plain, unit="B/s")
    shown = Energy().data(ReportData([run], compare_runs(run)))
    assert shown is not None
    assert any("Idle power" in line and "17.0 W" in line for line in shown.lead)
    (table,) = shown.tables
    cells = {cell.text for row in table.shown().rows for cell in row}
    assert {"120 MJ/GB", "±5 %"} <= cells
