"""The order of blocks: its effect on one metric, and on all metrics of an arm together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from analysis.analysis_simulate import SimulatedMetric, SimulatedRun, events_of
from benchmarks import verdict_simulations as sims
from benchmarks._simulated import Setting
from tare.analysis import compare_runs
from tare.analysis.data.load import run_data
from tare.analysis.effects.block_order import SURE, order_of_each
from tare.analysis.effects.results import Interval
from tare.analysis.effects.verdict import Evidence, judge, sentence
from tare.analysis.statistics.serial import ranks, serial
from tare.events import Observed, Record, fold_records
from tare.events.metric import Metric

STUDIES, BLOCKS, METRICS = 120, 8, 5


def alike(rng: np.random.Generator, lag: float) -> NDArray[np.float64]:
    """Draw metrics whose blocks are like the ones before by so much."""
    drawn = rng.standard_normal((METRICS, BLOCKS))
    for block in range(1, BLOCKS):
        drawn[:, block] = lag * drawn[:, block - 1] + np.sqrt(1 - lag**2) * drawn[:, block]
    return drawn


def shares(lag: float) -> tuple[float, float]:
    """Return how often a metric by itself detects it at the same level, and how often the arm."""
    rng = np.random.default_rng(7)
    by_itself = any_way = 0
    for number in range(STUDIES):
        tests = serial(alike(rng, lag), number)
        by_itself += bool((np.minimum(tests.lag_p, tests.drift_p) < SURE / 2).any())
        any_way += any(order.is_dependent(SURE) for order in order_of_each(tests))
    return by_itself / STUDIES, any_way / STUDIES


def test_metrics_tell_together_what_few_blocks_of_one_do_not() -> None:
    by_itself, together = shares(0.8)
    assert by_itself < 0.4
    assert together > by_itself + 0.15


def test_random_order_is_rarely_detected() -> None:
    assert shares(0.0)[1] <= SURE + 3 * np.sqrt(SURE * (1 - SURE) / STUDIES)


def test_few_blocks_tell_nothing() -> None:
    tests = serial(np.arange(10.0).reshape(2, 5))
    assert tests.together == 1.0
    assert not any(order.is_dependent(0.05) for order in order_of_each(tests))


def test_constant_metrics_do_not_drift() -> None:
    """Losses that no boot has, next to a tail: their ranks have no order, and widen nothing."""
    arms, declared, studies = {"bare": "bare", "vm": "qemu"}, 0, 20
    slower = {"bare": 1e-6, "vm": 1.06e-6}
    for seed in range(studies):
        metrics = [
            SimulatedMetric("latency", slower, "switch", spreads=(0.02, 0.0)),
            SimulatedMetric("p99", slower, "tick", kind="tail", spreads=(0.05, 0.0)),
            SimulatedMetric("lost", dict.fromkeys(arms, 1.0), "net", unit="1", kind="tail"),
        ]
        simulated = SimulatedRun(
            metrics, arms=arms, emulated=frozenset(), blocks=10, seed=seed, run=f"r{seed}"
        )
        events = (
            event.model_copy(update={"value": 0.0})
            if isinstance(event, Observed) and event.metric == "lost"
            else event
            for event in events_of(simulated)
        )
        records = (Record(seq=i, time=float(i), event=event) for i, event in enumerate(events))
        effects = compare_runs(run_data(Path("nowhere"), fold_records(records))).effects
        by_name = {effect.key.metric: effect for effect in effects}
        assert not [flag for flag in by_name["lost"].flags if flag.kind == "serial"]
        declared += by_name["latency"].verdict == "worse"
    assert declared >= 0.8 * studies


def test_values_that_are_alike_share_their_rank() -> None:
    rows = np.random.default_rng(1).integers(0, 4, size=(5, 11)).astype(float)
    assert ranks(rows).tolist() == (stats.rankdata(rows, axis=1) - 1).tolist()


@pytest.mark.parametrize(("blocks", "metrics", "studies"), [(8, 1, 400), (8, 5, 150), (20, 1, 150)])
def test_correlated_blocks_are_rarely_declared_a_difference(
    blocks: int, metrics: int, studies: int
) -> None:
    """No test finds a correlation of 0.5 in so few blocks, so no verdict takes it for excluded."""
    setting = Setting(np.zeros((1, metrics)), spread=0.1, blocks=blocks, lag=0.5)
    before, after = sims.shares(setting, sims.any_declared, sims.any_declared, studies)
    assert before > 0.12
    assert after <= 0.07 + 3 * np.sqrt(0.07 * 0.93 / studies)


def test_a_difference_that_correlation_may_explain_is_left_open_with_that_reason() -> None:
    evidence = Evidence(
        metric=Metric("m", "1", "lower"),
        scale="ratio",
        estimate=1.1,
        interval=Interval(1.04, 1.16, "student-t", 0.95),
        blocks=8,
        p=0.0078,
        adjusted_p=0.0078,
        margin=0.02,
        tests=1,
        surest=Interval(0.98, 1.23, "student-t", 0.95),
    )
    assert judge(evidence) == "inconclusive"
    text = sentence(evidence, "inconclusive", 0.16, what="w", arm="a", baseline="b")
    assert text.endswith(
        "8 blocks leave open that each is like the one before, and such a difference may come of "
        "that."
    )
    assert judge(replace(evidence, surest=Interval(1.01, 1.2, "student-t", 0.95))) == "worse"
