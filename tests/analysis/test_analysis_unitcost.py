"""What a unit of work costs the host: from cells whose cost and work are known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analysis.analysis_observed import observed_as
from references.references_run import write_realtime_run
from tare.analysis import load_run
from tare.analysis.data.rundata import RunData
from tare.analysis.topics.unit_cost import LEAST_CPU_S, unit_costs
from tare.events.results import CellResult, Observation
from tare.report.sections.workloads import per_unit

MEASURED_S = 10.0


def busy(arm: str) -> float:
    return 2.0 if arm == "vm" else 1.0


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunData:
    """On the bare machine one CPU does 1000 a second, in the guest two CPUs do 500."""
    data = load_run(write_realtime_run(tmp_path_factory.mktemp("run")))
    cells = tuple(
        replace(
            cell,
            measured_s=MEASURED_S,
            facts={"host_cost": {"cpu_s": busy(cell.arm) * MEASURED_S, "rss_bytes": 2.0**20}},
        )
        for cell in data.cells
    )

    def rate(cell: CellResult, seen: Observation) -> Observation:
        metric = seen.metric._replace(unit="1/s", kind="typical", headline=True)
        return Observation(seen.role, metric, 500.0 if cell.arm == "vm" else 1000.0)

    return replace(data, cells=cells, counted=observed_as(data, rate))


def test_cpu_time_is_divided_by_work_and_compared_within_blocks(run: RunData) -> None:
    costs = unit_costs([run], "bare", 0.95)
    assert costs
    for cost in costs:
        there = cost.arm == "vm"
        assert cost.cpus == pytest.approx(2.0 if there else 1.0)
        assert cost.per_unit_s == pytest.approx(4e-3 if there else 1e-3)
        assert cost.rss_bytes == 2**20
        assert (cost.ratio is None) == (cost.arm == "bare")
        if there:
            assert cost.ratio == pytest.approx(4.0) and cost.interval is not None
            assert cost.interval.low <= 4.0001 and cost.interval.high >= 3.9999


def test_a_duration_costs_the_cpu_time_of_one_run(run: RunData) -> None:
    seconds = observed_as(
        run, lambda _, seen: seen._replace(metric=seen.metric._replace(unit="s"), value=3.0)
    )
    costs = unit_costs([replace(run, counted=seconds)], "bare", 0.95)
    assert {round(cost.per_unit_s or 0.0, 6) for cost in costs} == {3.0, 6.0}


def test_without_cpu_time_worth_the_name_there_is_memory_alone(run: RunData) -> None:
    idle = tuple(
        replace(cell, facts={"host_cost": {"cpu_s": LEAST_CPU_S / 2, "rss_bytes": 5.0}})
        for cell in run.cells
    )
    for cost in unit_costs([replace(run, cells=idle)], "bare", 0.95):
        assert cost.per_unit_s is None and cost.rss_bytes == 5.0
    nothing = tuple(replace(cell, facts={}) for cell in run.cells)
    assert unit_costs([replace(run, cells=nothing)], "bare", 0.95) == ()
    assert unit_costs([], "bare", 0.95) == ()


def test_cost_of_bytes_is_per_gigabyte(run: RunData) -> None:
    cost = unit_costs([run], "bare", 0.95)[0]
    assert per_unit(replace(cost, unit="B/s", per_unit_s=2e-9)) == "2.00 s/GB"
    assert per_unit(replace(cost, unit="1/s", per_unit_s=2e-6)) == "2.00 µs"
    assert per_unit(replace(cost, per_unit_s=None)) == "–"
