"""What two equal guests differ by is no cost, and what one of them lacks is one."""

from __future__ import annotations

import numpy as np
import pytest
import yaml

from benchmarks import confinement_cost
from benchmarks._pairs import Pairs
from benchmarks._runs import Unmeasured
from tare.events import (
    CellStarted,
    Event,
    MachineReady,
    MachineStarting,
    Observed,
    Record,
)
from tare.run.catalog import build_catalog
from tare.study.load import parse_study


def told(cost: float, spread: float, blocks: int = 16) -> dict[tuple[str, str], tuple[float, ...]]:
    drawn = np.random.default_rng(1)
    return {
        (workload, arm): tuple(
            100 * (cost if arm == "confined" else 1) * np.exp(drawn.normal(0, spread, blocks))
        )
        for workload in confinement_cost.FIGURES
        for arm in ("open", "open-again", "confined")
    }


def test_the_study_is_one() -> None:
    text = yaml.safe_dump(confinement_cost.study(4, 2, 0.2, "tcg"))
    study = parse_study(text.encode(), "confinement.yaml", build_catalog())
    assert set(study.workloads) == set(confinement_cost.FIGURES)
    confined = {name: arm.options.model_dump()["confined"] for name, arm in study.arms.items()}
    assert confined == {"open": False, "open-again": False, "confined": True}


def test_equal_arms_are_equivalent_and_others_or_uncertain_ones_are_not() -> None:
    assert all(goal.met for goal in confinement_cost.result(told(1.0, 0.01), "tcg").goals)
    dearer = confinement_cost.result(told(0.97, 0.005), "tcg")
    assert not any(goal.met for goal in dearer.goals)
    unsure = confinement_cost.result(told(1.0, 0.2), "tcg")
    assert not any(goal.met for goal in unsure.goals)


def test_the_interval_is_that_of_two_one_sided_tests() -> None:
    # By hand: logs ln 1.1 and ln 1/1.1, mean 0, sd 0.13479, t(0.95; 1) = 6.3138.
    found = confinement_cost.ratio(Pairs("a", "b", (1.1, 1 / 1.1), (1.0, 1.0)))
    assert found.mean == pytest.approx(1.0)
    assert np.log(found.high) == pytest.approx(6.3138 * 0.0953102, rel=1e-4)
    with pytest.raises(Unmeasured):
        confinement_cost.ratio(Pairs("a", "b", (1.0,), (1.0,)))


def records(*events: Event) -> list[Record]:
    return [Record(seq=n, time=float(n), event=event) for n, event in enumerate(events)]


def test_repeats_of_a_block_are_one_value_and_a_guest_that_is_not_confined_is_none() -> None:
    def cell(name: str) -> CellStarted:
        return CellStarted(
            cell=name,
            block=1,
            arm="open",
            scenario="pinned",
            workload="numeric-sort",
            parameters={},
        )

    def rate(name: str, value: float) -> Observed:
        return Observed(cell=name, metric="rate", unit="1/s", better="higher", value=value)

    found = confinement_cost.values(
        records(cell("a"), rate("a", 100.0), cell("b"), rate("b", 400.0))
    )
    assert found["numeric-sort", "open"] == pytest.approx((200.0,))
    starting = MachineStarting(
        machine="m", block=1, arm="confined", scenario="pinned", role="subject"
    )
    refused = {"runs_as": {"uid": None, "reason": "its user may not", "sandbox": True}}
    ready = MachineReady(machine="m", boot_s=1.0, proof={}, placement=refused)
    with pytest.raises(Unmeasured, match="its user may not"):
        confinement_cost.values(records(starting, ready))
