"""Equal arms of the load balancer are equivalent by Tare's own verdict, or nothing was shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from analysis.analysis_simulate import SimulatedMetric, SimulatedRun, events_of, write_run
from benchmarks import proxy_pairs
from benchmarks._runs import Unmeasured
from report.report_proxied import write_proxied_run
from tare.analysis import compare_runs, load_run
from tare.analysis.effects.results import Effect
from tare.run.catalog import build_catalog
from tare.study.reading.load import parse_study
from tare.workloads import WORKLOADS
from tare.workloads.network.proxy.summary import summed
from workloads.proxy_accounts import proxied_result

SIZES = (0, 8192)


def effects(
    folder: Path, spread: float = 0.005, again: float = 1.0, blocks: int = 8
) -> tuple[Effect, ...]:
    """Return the A/A effects of a simulated run, in which the second arm is so many times more."""
    metrics = [
        SimulatedMetric(
            name,
            {"bare": 100.0, "bare-again": 100.0 * again},
            workload="proxy",
            parameters={"size": size},
            spreads=(spread, 0.0),
        )
        for name in (*proxy_pairs.JUDGED, "direct")
        for size in SIZES
    ]
    arms = {"bare": "bare", "bare-again": "bare"}
    run = SimulatedRun(metrics, arms, frozenset(), blocks=blocks)
    return compare_runs(load_run(write_run(folder, events_of(run)))).aa


def test_the_study_is_the_short_form_on_one_platform_twice() -> None:
    asked = proxy_pairs.study("oci", 7, ["0B", "64KiB"], {"duration": "2s"})
    study = parse_study(yaml.safe_dump(asked).encode(), "pairs.yaml", build_catalog())
    assert {arm.platform for arm in study.arms.values()} == {"oci"}
    assert study.arms["oci-again"].twin_of == "oci" and study.blocks.turns
    assert study.margin == proxy_pairs.MARGIN
    own = proxy_pairs.study("bare", 7, [], {})["workloads"]["proxy"]
    assert own["size"] == ["0B", "64KiB"]
    assert own["duration"] == "1s"


def test_equal_arms_are_equivalent_and_others_or_uncertain_ones_are_not(tmp_path: Path) -> None:
    same, _ = proxy_pairs.result("bare", effects(tmp_path / "same"), len(SIZES), 8)
    assert len(same) == len(SIZES) * len(proxy_pairs.JUDGED) + 1
    same = same[:-1]
    assert all(goal.met for goal in same), [goal.detail for goal in same]
    other, _ = proxy_pairs.result("bare", effects(tmp_path / "other", again=1.1), len(SIZES), 8)
    assert not any(goal.met for goal in other[:-1])
    unsure, _ = proxy_pairs.result("bare", effects(tmp_path / "unsure", 0.3), len(SIZES), 8)
    assert not any(goal.met for goal in unsure[:-1])
    few, _ = proxy_pairs.result("bare", effects(tmp_path / "few", blocks=3), len(SIZES), 3)
    assert not any(goal.met for goal in few[:-1])


def test_the_block_in_which_most_time_has_no_owner_is_the_one_that_counts() -> None:
    def effect(arm: float, baseline: float) -> Any:
        key = SimpleNamespace(metric=proxy_pairs.OWNED)
        sides = {"arm_summary": arm, "baseline_summary": baseline}
        least = {name: SimpleNamespace(least=value) for name, value in sides.items()}
        return SimpleNamespace(key=key, **least)

    assert proxy_pairs.owned("bare", [effect(0.99, 0.96), effect(0.97, 1.0)]).met
    worst = proxy_pairs.owned("bare", [effect(0.99, 0.96), effect(0.94, 1.0)])
    assert not worst.met
    assert worst.found == pytest.approx(94)
    assert not proxy_pairs.owned("bare", []).met


def test_how_haproxys_own_time_is_split_is_a_fact_of_the_run(tmp_path: Path) -> None:
    run = load_run(write_proxied_run(tmp_path))
    (fact,) = proxy_pairs.split("bare", run)
    assert fact.value == pytest.approx(15)
    assert fact.unit == "%"
    assert "0 B" in fact.name
    # Its host sees no HAProxy.
    assert proxy_pairs.split("tcg", run) == ()


def test_caveats_against_equal_arms_count_regardless_of_the_interval(tmp_path: Path) -> None:
    good = effects(tmp_path / "run")[0]
    assert proxy_pairs.goal("bare", good).met
    other = proxy_pairs.goal("bare", replace(good, verdict="inconclusive", sentence="slow boots"))
    assert not other.met
    assert other.found is None
    assert "slow boots" in other.detail


def test_a_metric_missing_for_one_size_is_not_equivalent(tmp_path: Path) -> None:
    found = effects(tmp_path / "run")
    assert set(proxy_pairs.judged(found)) == {(s, m) for s in SIZES for m in proxy_pairs.JUDGED}
    lacking = [e for e in found if (proxy_pairs.size_of(e), e.key.metric) != (0, "connections")]
    with pytest.raises(Unmeasured, match="5 of 6 metrics"):
        proxy_pairs.result("bare", lacking, 2, 8)


def test_the_judged_rate_is_observed_for_every_limit() -> None:
    workload = WORKLOADS["proxy"]
    for direct in (140.0, 1000.0):
        values = workload.observe(workload.parameters(), summed(proxied_result(direct=direct)))
        assert set(proxy_pairs.JUDGED) <= set(values)
