"""A difference between two equal guests is not a cost, and a lower value of one of them is."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from benchmarks import confinement_cost
from benchmarks._pairs import Pairs
from benchmarks._runs import Unmeasured
from tare.workloads import WORKLOADS


def run_of(
    cost: float, spread: float, blocks: int = 16
) -> dict[tuple[str, str], tuple[float, ...]]:
    drawn = np.random.default_rng(1)
    return {
        (workload, arm): tuple(
            100 * (cost if arm == "confined" else 1) * np.exp(drawn.normal(0, spread, blocks))
        )
        for workload in confinement_cost.FIGURES
        for arm in ("open", "open-again", "confined")
    }


def test_each_guest_begins_and_ends_a_round_as_often_as_the_others() -> None:
    rounds = [confinement_cost.order(block, number) for block in (0, 1) for number in range(6)]
    for place in range(3):
        assert set(Counter(each[place] for each in rounds).values()) == {4}


def test_guests_run_the_workloads_that_are_compared() -> None:
    assert list(confinement_cost.works(0.2)) == list(confinement_cost.FIGURES)
    for name, given in confinement_cost.works(0.2).items():
        asked = WORKLOADS[name].parameters.model_validate(given)
        named = [metric.name for metric in WORKLOADS[name].metrics_for(asked)]
        assert confinement_cost.FIGURES[name][0] in named


def test_a_guest_without_confinement_is_refused() -> None:
    refused = {"runs_as": {"uid": None, "reason": "its user may not", "sandbox": True}}
    with pytest.raises(Unmeasured, match="its user may not"):
        confinement_cost.require_confined(refused)
    confinement_cost.require_confined({"runs_as": {"uid": 70001, "sandbox": True}})


def test_equal_arms_are_equivalent_and_others_or_uncertain_ones_are_not() -> None:
    assert all(goal.met for goal in confinement_cost.result(run_of(1.0, 0.01), "tcg").goals)
    dearer = confinement_cost.result(run_of(0.97, 0.005), "tcg")
    assert not any(goal.met for goal in dearer.goals)
    unsure = confinement_cost.result(run_of(1.0, 0.2), "tcg")
    assert not any(goal.met for goal in unsure.goals)


def test_the_interval_is_that_of_two_one_sided_tests() -> None:
    # By hand: logs ln 1.1 and ln 1/1.1, mean 0, sd 0.13479, t(0.95; 1) = 6.3138.
    found = confinement_cost.ratio(Pairs("a", "b", (1.1, 1 / 1.1), (1.0, 1.0)))
    assert found.mean == pytest.approx(1.0)
    assert np.log(found.high) == pytest.approx(6.3138 * 0.0953102, rel=1e-4)
    with pytest.raises(Unmeasured):
        confinement_cost.ratio(Pairs("a", "b", (1.0,), (1.0,)))
