"""Ways to stop: evidence that holds at every look, pilots, and Stein's two stages."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy import integrate

from analysis.analysis_observed import observed_as
from analysis.analysis_simulate import SimulatedMetric, SimulatedRun, events_of
from benchmarks import stopping_simulations as sims
from tare.analysis import compare_runs
from tare.analysis.data.load import run_data
from tare.analysis.data.rundata import RunData
from tare.analysis.data.settings import Settings
from tare.analysis.effects.stopping import Look, Value, decide, settled_difference
from tare.analysis.effects.two_stage import stein_error
from tare.analysis.statistics.anytime import (
    mean_ends,
    mean_evidence,
    median_ends,
    median_evidence,
    sign_evidence,
)
from tare.analysis.statistics.logratio import mean_interval
from tare.events import Record, fold_records
from tare.events.results import CellResult, Observation
from tare.study.planning.blocks import Blocks

FLOATS = st.floats(-1e3, 1e3).map(lambda value: round(value, 3))


def likelihood_ratio(values: np.ndarray) -> float:
    """The mixture by its definition: the density of t with and without an effect."""
    from scipy.stats import nct, norm, t

    n = values.size
    found = values.mean() / values.std(ddof=1) * math.sqrt(n)
    mixed, _ = integrate.quad(
        lambda effect: nct.pdf(found, n - 1, effect * math.sqrt(n)) * norm.pdf(effect), -6, 6
    )
    return float(mixed / t.pdf(found, n - 1))


def test_evidence_is_the_mixed_likelihood() -> None:
    values = np.random.default_rng(1).normal(0.4, 1, 9)
    assert mean_evidence(values.tolist()) == pytest.approx(likelihood_ratio(values), rel=1e-4)


def test_looks_after_each_block_keep_the_error_rate() -> None:
    """Declare an effect in at most 5 % of 600 experiments without one (plus three errors)."""
    rng = np.random.default_rng(2)
    errors = {"mean": 0, "median": 0, "t": 0}
    for _ in range(600):
        values = rng.standard_normal(60).tolist()
        looks = range(2, 61)
        errors["mean"] += any(mean_evidence(values[:n]) >= 20 for n in looks)
        errors["median"] += any(median_evidence(values[:n]) >= 20 for n in looks)
        fixed = (mean_interval(values[:n], 0.95) for n in looks)
        errors["t"] += any(found.low > 0 or found.high < 0 for found in fixed)
    assert max(errors["mean"], errors["median"]) <= 0.05 * 600 + 3 * math.sqrt(600 * 0.0475)
    assert errors["t"] > 0.2 * 600


@given(st.lists(FLOATS, min_size=2, max_size=30, unique=True), st.floats(0.5, 0.99))
def test_ends_are_where_evidence_reaches_its_bound(values: list[float], confidence: float) -> None:
    low, high = mean_ends(values, confidence)
    if math.isfinite(low) and high - low > 1e-6:
        for end in (low, high):
            assert mean_evidence(values, end) == pytest.approx(1 / (1 - confidence), rel=1e-3)
    ends = median_ends(values, confidence)
    if ends is not None:
        for end, outward in zip(ends, (-1e-6, 1e-6), strict=True):
            assert median_evidence(values, end) < 1 / (1 - confidence) + 1e-9
            assert median_evidence(values, end + outward) >= 1 / (1 - confidence) - 1e-9


def test_ties_are_not_evidence() -> None:
    """One above, one below and ten on the median itself speak for it, not against it."""
    assert median_evidence([1.0, -1.0, *[0.0] * 10]) < 1
    assert median_evidence([1.0, 1.0, *[0.0] * 10]) < 1
    assert median_evidence([1.0] * 10 + [0.0] * 2) == pytest.approx(
        median_evidence([1.0] * 10 + [-1.0] * 2)
    )
    assert sign_evidence([1.0] * 8 + [0.0] * 50) == pytest.approx(2**8 / 9)
    assert sign_evidence([0.0] * 9) == 1


def test_few_values_bound_nothing() -> None:
    assert mean_ends([1.0], 0.95) == mean_ends([1.0, 2.0], 0.95) == (-math.inf, math.inf)
    assert median_ends([1.0] * 5, 0.95) is None
    assert (mean_evidence([3.0]), mean_evidence([0.0, 0.0])) == (1.0, 1.0)
    assert mean_evidence([1.0, 1.0]) == math.inf


def values_of(blocks: int, spread: float, effect: float = 0.0, seed: int = 1) -> list[Value]:
    rng = np.random.default_rng(seed)
    return [
        Value(block, arm, "m", math.exp(spread * rng.normal() + effect * (arm == "arm")))
        for block in range(1, blocks + 1)
        for arm in ("base", "arm")
    ]


def stops_after(values: list[Value], method: Any, **more: Any) -> int:
    """After how many blocks the run loop's own question is answered with no."""
    asked: dict[str, Any] = {
        "baseline": "base", "least": 6, "most": 200, "precision": 0.03, "margin": 0.02, **more,
    }  # fmt: skip
    for done in range(1, 201):
        seen = [value for value in values if value.block <= done]
        if not decide(seen, blocks_done=done, method=method, **asked).go_on:
            return done
    raise AssertionError("it never stopped")


def test_a_pilot_says_how_many_and_is_asked_again() -> None:
    values = values_of(200, 0.05)
    pilot, stein = stops_after(values, "pilot"), stops_after(values, "stein")
    looked = stops_after(values, "precision")
    assert looked <= pilot < 40
    assert stein != pilot and 6 < stein <= 200
    # Later blocks do not change Stein's number.
    others = [value for value in values_of(200, 0.5, seed=2) if value.block > 6]
    assert stops_after([*values[:12], *others], "stein") == stein
    early = decide(values[:20], baseline="base", blocks_done=10, least=6, most=200, precision=0.03,
                   method="stein")  # fmt: skip
    assert early.go_on and str(stein) in early.reason
    quiet = values_of(20, 0.001)
    # A pilot asks again by precision, which is checked from 8 blocks on.
    assert (stops_after(quiet, "pilot"), stops_after(quiet, "stein")) == (8, 6)


def test_anytime_stops_when_it_is_decided() -> None:
    slower = values_of(200, 0.05, effect=0.5)
    assert stops_after(slower, "anytime", precision=0.001) <= 8
    same = values_of(200, 0.01)
    assert 6 <= stops_after(same, "anytime", precision=0.001) < 60
    seldom = [value._replace(value=0.0) for value in slower if value.arm == "base"]
    zeros = [*seldom, *(value for value in slower if value.arm == "arm")]
    # There is no ratio to nothing, and signs that are all alike decide after eight blocks.
    assert stops_after(zeros, "anytime") == 8
    nothing = [value._replace(value=0.0) for value in slower]
    assert stops_after(nothing, "anytime") == 6
    many = [v._replace(key=key) for key in range(20) for v in values_of(200, 0.05, 0.08, seed=key)]
    assert stops_after(many, "anytime", precision=0.001) > stops_after(
        values_of(200, 0.05, 0.08), "anytime", precision=0.001
    )


def test_verdicts_of_such_a_run_hold_at_every_look() -> None:
    truth = {"bare": 1.0, "vm": 1.1}
    metrics = [
        SimulatedMetric("latency", truth, workload="w", spreads=(0.03, 0.0)),
        SimulatedMetric("late", truth, workload="w", kind="tail", spreads=(0.03, 0.0)),
    ]
    simulated = SimulatedRun(metrics, arms={"bare": "bare", "vm": "qemu"}, blocks=14)
    records = (Record(seq=i, time=float(i), event=e) for i, e in enumerate(events_of(simulated)))
    run = run_data(Path("nowhere"), fold_records(records))
    ordinary = {effect.kind: effect for effect in compare_runs(run).effects}
    settings = replace(Settings.of([run]), anytime=True)
    for kind, effect in {e.kind: e for e in compare_runs(run, settings).effects}.items():
        assert effect.interval is not None and effect.interval.method == "anytime"
        other = ordinary[kind].interval
        assert other is not None and effect.interval.high - effect.interval.low > (
            other.high - other.low
        )
        assert effect.p is not None and effect.adjusted_p == min(1.0, 2 * effect.p)
    study = {**run.study, "blocks": {"method": "anytime"}}
    assert Settings.of([replace(run, study=study)]).anytime


def test_counts_that_agree_by_chance_are_not_evidence() -> None:
    """Declare a difference of two coins in at most 5 % of 400 experiments, at any look."""
    rng = np.random.default_rng(3)
    look, declared, by_normal = Look(0.02, 0.01, 0.95, 1), 0, 0
    for _ in range(400):
        # Small whole numbers, zero now and then.
        arm, base = rng.integers(0, 2, (2, 60)).astype(float)
        looks = range(6, 61)
        declared += any(
            settled_difference(arm[:n].tolist(), base[:n].tolist(), look) for n in looks
        )
        one = rng.choice([-1.0, 1.0], 60)
        by_normal += any(mean_evidence(one[:n].tolist()) >= 20 for n in range(3, 61))
    assert declared <= 0.05 * 400 + 3 * math.sqrt(400 * 0.0475)
    assert by_normal > 0.2 * 400  # what three equal signs of such numbers were declared as


def test_metric_with_zeros_is_judged_by_signs() -> None:
    rng = np.random.default_rng(4)
    arm, base = rng.poisson(3.0, 200).astype(float), rng.poisson(0.3, 200).astype(float)
    values = [
        Value(block + 1, name, "m", side[block])
        for block in range(200)
        for name, side in (("arm", arm), ("base", base))
    ]
    assert 8 <= stops_after(values, "anytime", precision=0.001) < 40
    undecided = [value._replace(value=float(rng.poisson(0.3))) for value in values]
    assert stops_after(undecided, "anytime", precision=0.001) == 200
    truth = {"bare": 0.0, "vm": 0.0}
    metric = SimulatedMetric("losses", truth, workload="w", spreads=(0.03, 0.0))
    simulated = SimulatedRun([metric], arms={"bare": "bare", "vm": "qemu"}, blocks=8)
    records = (Record(seq=i, time=float(i), event=e) for i, e in enumerate(events_of(simulated)))
    run = run_data(Path("nowhere"), fold_records(records))
    once = run_with(run, lambda arm, block: 1.0 if arm == "vm" else 0.0)
    (effect,) = compare_runs(once, replace(Settings.of([once]), anytime=True)).effects
    # One more in every boot: eight signs, and not the endless evidence of a spread of nothing.
    assert effect.p == pytest.approx(9 / 2**8)
    assert effect.interval is None


def run_with(run: RunData, value: Callable[[str, int], float]) -> RunData:
    def changed(cell: CellResult, seen: Observation) -> Observation:
        return seen._replace(value=value(cell.arm, cell.block))

    return replace(run, counted=observed_as(run, changed))


def test_tails_have_a_precision_of_their_own() -> None:
    tails = [value._replace(kind="tail") for value in values_of(200, 0.3)]
    usual = stops_after(tails, "precision")
    assert stops_after(tails, "precision", tail_precision=0.12) == usual
    assert stops_after(tails, "precision", tail_precision=0.3) < usual
    assert stops_after(tails, "precision", tail_precision=0.06) > usual
    assert stops_after(tails, "anytime", tail_precision=0.3, margin=0.0) < stops_after(
        tails, "anytime", tail_precision=0.12, margin=0.0
    )
    typical = values_of(200, 0.1)
    assert stops_after(typical, "precision", tail_precision=0.9) == stops_after(
        typical, "precision"
    )


def test_the_interval_of_two_stages_rests_on_the_first_alone() -> None:
    """The first blocks' spread sets the number of blocks: 95 % coverage needs just that spread."""
    rng = np.random.default_rng(5)
    studies, first, goal = 2000, 6, 0.02
    own = ordinary = narrow = 0
    for _ in range(studies):
        values = 0.05 * rng.standard_normal(400)
        asked = stein_error(values[:first].tolist(), 1, 0.95)
        count = int(min(400, max(first, math.ceil((asked / goal) ** 2))))
        error = stein_error(values[:first].tolist(), count, 0.95)
        own += abs(values[:count].mean()) <= error
        narrow += error <= goal * 1.0001 or count == 400
        found = mean_interval(values[:count], 0.95)
        ordinary += bool(found.low <= 0 <= found.high)
    assert narrow == studies
    error_of_share = 3 * math.sqrt(0.0475 / studies)
    assert own / studies >= 0.95 - error_of_share
    assert ordinary / studies < own / studies


def test_two_stage_run_is_judged_by_its_first_blocks() -> None:
    truth = {"bare": 1.0, "vm": 1.1}
    metrics = [
        SimulatedMetric("latency", truth, workload="w", spreads=(0.03, 0.0)),
        SimulatedMetric("late", truth, workload="w", kind="tail", spreads=(0.03, 0.0)),
    ]
    simulated = SimulatedRun(metrics, arms={"bare": "bare", "vm": "qemu"}, blocks=14)
    records = (Record(seq=i, time=float(i), event=e) for i, e in enumerate(events_of(simulated)))
    run = run_data(Path("nowhere"), fold_records(records))
    study = {**run.study, "blocks": {"method": "stein", "least": 6, "position": True}}
    settings = Settings.of([replace(run, study=study)])
    assert (settings.first, settings.position) == (6, False)
    ordinary = {effect.kind: effect for effect in compare_runs(run).effects}
    found = {e.kind: e for e in compare_runs(run, settings).effects}
    interval = found["typical"].interval
    assert interval is not None and interval.method == "stein"
    logs = [math.log(block.value) for block in found["typical"].block_effects]
    error = stein_error(logs[:6], len(logs), 0.95)
    assert math.log(interval.high / interval.low) / 2 == pytest.approx(error)
    assert found["tail"].interval == ordinary["tail"].interval


def test_the_study_fixes_the_way_to_stop() -> None:
    assert not Blocks.model_validate({"least": 12, "method": "stein"}).position
    assert Blocks.model_validate({}).method == "precision"
    assert Blocks.model_validate({"least": 12}).position
    assert not Blocks.model_validate({"least": 12, "method": "anytime"}).position
    with pytest.raises(ValidationError):
        Blocks.model_validate({"method": "significance"})


def test_rules_side_by_side() -> None:
    """The table's own claims, on fewer studies: cover, err seldom, and need fewer blocks."""
    found = {rule: sims.simulated(rule, 0.05, 0.03, 80) for rule in sims.RULES}
    for rule in ("`pilot`", "`stein`", "`anytime`"):
        assert found[rule].covered >= 0.9
        assert found[rule].decided >= 0.7
    assert found["`anytime`"].wrong <= 0.05 + 3 * math.sqrt(0.0475 / 80)
    large = {rule: sims.simulated(rule, 0.10, 0.03, 80) for rule in ("fixed 10", "`anytime`")}
    assert large["`anytime`"].blocks < large["fixed 10"].blocks
    assert large["`anytime`"].decided >= 0.95
