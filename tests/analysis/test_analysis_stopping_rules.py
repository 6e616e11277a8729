"""Rules to stop: group-sequential tests, pilots, and Stein's two stages."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.stats import norm

from analysis.analysis_observed import observed_as
from analysis.analysis_simulate import SimulatedMetric, SimulatedRun, events_of
from benchmarks import _family_stopping as families
from benchmarks import stopping_simulations as sims
from benchmarks._simulated import Setting
from tare.analysis import compare_runs
from tare.analysis.data.load import run_data
from tare.analysis.data.rundata import RunData
from tare.analysis.data.settings import Settings
from tare.analysis.effects.stopping import (
    PrecisionTarget,
    StoppingValue,
    decide,
    decide_by_verdicts,
)
from tare.analysis.effects.two_stage import stein_error
from tare.analysis.statistics import maxt
from tare.analysis.statistics.exchange import exchanges_at_looks
from tare.analysis.statistics.logratio import mean_interval
from tare.analysis.statistics.maxt import family_p, flips_at_looks
from tare.analysis.statistics.sequential import LookPlan, declared_at, sequential_p, spent
from tare.analysis.statistics.shared_slope import without_slopes
from tare.cli.ending import _decide_by_verdicts
from tare.events import Record, fold_records
from tare.events.results import CellResult, Observation
from tare.study.model.study import Study
from tare.study.planning.blocks import Blocks


def values_of(
    blocks: int, spread: float, effect: float = 0.0, seed: int = 1
) -> list[StoppingValue]:
    rng = np.random.default_rng(seed)
    return [
        StoppingValue(block, arm, "m", math.exp(spread * rng.normal() + effect * (arm == "arm")))
        for block in range(1, blocks + 1)
        for arm in ("base", "arm")
    ]


def stops_after(values: list[StoppingValue], method: Any, **more: Any) -> int:
    """After how many blocks the run loop's own question is answered with no."""
    asked: dict[str, Any] = {
        "baseline": "base", "least": 6, "most": 200, "precision": 0.03, **more,
    }  # fmt: skip
    for done in range(1, 201):
        seen = [value for value in values if value.block <= done]
        if not decide(seen, blocks_done=done, method=method, **asked).continues:
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
    assert early.continues and str(stein) in early.reason
    quiet = values_of(20, 0.001)
    # A pilot asks again by precision, which is looked at from 8 blocks on.
    assert (stops_after(quiet, "pilot"), stops_after(quiet, "stein")) == (8, 6)


def simulated_run(metrics: list[SimulatedMetric], blocks: int, **blocks_keys: Any) -> RunData:
    simulated = SimulatedRun(metrics, arms={"bare": "bare", "vm": "qemu"}, blocks=blocks)
    records = (Record(seq=i, time=float(i), event=e) for i, e in enumerate(events_of(simulated)))
    run = run_data(Path("nowhere"), fold_records(records))
    keys = {"method": "sequential", "least": 6, "most": 30, **blocks_keys}
    return replace(run, study={**run.study, "blocks": keys})


def test_levels_of_looks_add_up_to_the_level() -> None:
    """A mean of normal values without a difference is beyond some look's bar in 5 % of studies."""
    plan = LookPlan(8, 30)
    looks = np.array(plan.looks())
    assert looks.tolist() == list(range(8, 31))
    assert plan.level(8) == pytest.approx(0.05 * spent(8 / 30), rel=1e-4)
    bars = np.array([norm.isf(plan.level(int(n)) / 2) for n in looks])
    values = np.random.default_rng(1).standard_normal((40_000, 30)).cumsum(axis=1)
    beyond = np.abs(values[:, looks - 1]) / np.sqrt(looks) > bars
    assert beyond.any(axis=1).mean() == pytest.approx(0.05, abs=3 * math.sqrt(0.0475 / 40_000))
    # Part of the way, the part that is spent.
    early = beyond[:, looks <= 15].any(axis=1).mean()
    assert early == pytest.approx(0.05 * spent(0.5), abs=0.004)


def test_later_blocks_are_looked_at_more_seldom() -> None:
    looks = LookPlan(2, 200).looks()
    assert looks[:3] == (6, 7, 8) and looks[-1] == 200 and len(looks) < 75
    assert LookPlan(8, 100).looks(50)[-1] == 50
    assert LookPlan(8, 5).looks() == () and LookPlan(8, 5).level(5) == 0.05


@pytest.mark.parametrize("rows", [1, 4])
def test_looks_after_each_block_keep_the_error_rate(rows: int) -> None:
    """Ordinary p-values declare a difference at some look in far more than 5 % of studies."""
    rng, plan, studies = np.random.default_rng(2), LookPlan(6, 11), 200
    looks = plan.looks()
    wrong = ordinary = 0
    for _ in range(studies):
        values = rng.exponential(size=(rows, 11)) - rng.exponential(size=(rows, 11))
        extremes = flips_at_looks(values, looks, ranked=[False] * rows, moderated=[True] * rows)
        highest = [each.max(axis=0) for each in extremes]
        wrong += declared_at(highest, plan.shares(looks), 0.05) is not None
        # The observed pattern is extreme by itself at some look.
        ordinary += any((each >= each[0]).mean() < 0.05 for each in highest)
    assert wrong <= 0.05 * studies + 3 * math.sqrt(studies * 0.0475)
    assert ordinary > 0.08 * studies


@pytest.mark.parametrize("sides", [1, 3])
def test_looks_take_out_the_effect_of_places(sides: int) -> None:
    """A gradient over a block hides a difference from looks that ignore the places."""
    rng, plan, studies, rows = np.random.default_rng(4), LookPlan(6, 9), 60, 4
    looks, signs = plan.looks(), np.ones(rows)
    shares = plan.shares(looks)
    ignoring = found = wrong = 0
    for _ in range(studies):
        boots = 0.03 * rng.standard_normal((3, rows, 9))
        covariate = (
            np.array([rng.permutation(3) for _ in range(9)]).T[:, None, :].repeat(rows, axis=1)
        )
        boots += 0.1 * covariate
        if sides == 1:
            boots, covariate = boots[:1] - boots[1:2], covariate[:1] - covariate[1:2]
        for truth in (0.0, 0.12):
            values = boots.copy()
            values[0, 0] += truth
            each = [without_slopes(values[..., :n], covariate[..., :n], signs) for n in looks]
            ranked, moderated = [False] * rows, [True] * rows
            if sides == 1:
                at_looks = [(seen[0], left[0]) for seen, left in each]
                extremes, plain = (
                    flips_at_looks(
                        values[0], looks, ranked=ranked, moderated=moderated, at_looks=at
                    )
                    for at in (at_looks, None)
                )
            else:
                extremes, plain = (
                    exchanges_at_looks(
                        values, looks, ranked=ranked, moderated=moderated, at_looks=at
                    )
                    for at in (each, None)
                )
            declared, alone = (
                declared_at([one.max(axis=0) for one in some], shares, 0.05) is not None
                for some in (extremes, plain)
            )
            wrong += declared and not truth
            found += declared and bool(truth)
            ignoring += alone and bool(truth)
    assert wrong <= 0.05 * studies + 3 * math.sqrt(studies * 0.0475)
    assert found >= 0.9 * studies
    assert ignoring <= found - 0.2 * studies


def test_looks_at_exchanges_keep_the_error_rate() -> None:
    rng, plan, studies = np.random.default_rng(3), LookPlan(6, 9), 100
    looks, wrong = plan.looks(), 0
    for _ in range(studies):
        boots = rng.exponential(size=(3, 2, 9))
        extremes = exchanges_at_looks(boots, looks, ranked=[False, True], moderated=[True, False])
        highest = [each.max(axis=0) for each in extremes]
        wrong += declared_at(highest, plan.shares(looks), 0.05) is not None
    assert wrong <= 0.05 * studies + 3 * math.sqrt(studies * 0.0475)


def test_a_declared_difference_stays_declared() -> None:
    """More blocks never take back what a look has declared, and p is the level that declares."""
    rng, plan = np.random.default_rng(4), LookPlan(6, 20)
    values = rng.standard_normal((3, 20))
    values[0, :10] += 3.0
    values[0, 10:] -= 1.0
    looks = plan.looks()
    extremes = flips_at_looks(values, looks, ranked=[False] * 3, moderated=[False] * 3)
    shares = plan.shares(looks)
    found = [sequential_p(extremes[:n], shares[:n], 3).adjusted for n in range(1, len(looks) + 1)]
    first = [each[0] for each in found]
    assert first == sorted(first, reverse=True) and first[-1] < 0.05
    declared = next(n for n, p in enumerate(first) if p < 0.05)
    highest = [each.max(axis=0) for each in extremes]
    assert declared_at(highest, shares, 0.05) == declared
    assert declared_at(highest, shares, 0.9 * first[-1]) is None
    assert all(each[1] >= each[0] for each in found)


def test_signs_of_a_pattern_do_not_change_with_more_blocks() -> None:
    values = np.random.default_rng(5).standard_normal((2, 17))
    many = flips_at_looks(values, [8, 15], ranked=[False, True], moderated=[False] * 2)
    few = flips_at_looks(values[:, :15], [8, 15], ranked=[False, True], moderated=[False] * 2)
    for one, other in zip(many, few, strict=True):
        assert np.array_equal(one, other)
    alone = family_p(values[:1, :8]).raw[0]
    assert (many[0][0] >= many[0][0, 0] * (1 - 1e-6)).mean() == pytest.approx(alone)


def test_metric_of_few_blocks_waits() -> None:
    values = np.random.default_rng(6).standard_normal((2, 9))
    values[1, :4] = np.nan
    extremes = flips_at_looks(values, [6, 9], ranked=[False] * 2, moderated=[False] * 2, least=6)
    tests = sequential_p(extremes, [0.5, 1.0], 2)
    assert np.isnan(tests.adjusted[1]) and not np.isnan(tests.adjusted[0])
    assert np.isnan(sequential_p([], [], 2).raw).all()


def test_sequential_run_stops_when_it_is_decided() -> None:
    asked = PrecisionTarget("bare", {}, 0.95, 0.001)

    def blocks(truth: float, spread: float, kind: Any = "typical") -> int:
        metric = SimulatedMetric(
            "latency", {"bare": 1.0, "vm": truth}, workload="w", kind=kind, spreads=(spread, 0.0)
        )
        for done in range(6, 31, 2):
            effects = compare_runs(simulated_run([metric], done)).effects
            if not decide_by_verdicts(effects, asked, done).continues:
                return done
        return 99

    assert blocks(1.5, 0.03) <= 10
    assert blocks(1.0, 0.004) < 20
    assert blocks(1.01, 0.1) == 99
    assert blocks(1.0, 0.3, "maximum") == 6


def test_run_loop_decides_by_verdicts() -> None:
    metric = SimulatedMetric("latency", {"bare": 1.0, "vm": 1.5}, workload="w", spreads=(0.03, 0.0))
    study = Study.model_construct(
        blocks=Blocks.model_validate({"method": "sequential"}), sessions=None, baseline="bare",
        confidence=0.95,
    )  # fmt: skip
    reasons = {}
    for blocks in (3, 8, 14):
        simulated = SimulatedRun([metric], arms={"bare": "bare", "vm": "qemu"}, blocks=blocks)
        fold = fold_records(
            Record(seq=i, time=float(i), event=e) for i, e in enumerate(events_of(simulated))
        )
        assert fold.started is not None
        fold.started.study["blocks"] = study.blocks.model_dump()
        reasons[blocks] = _decide_by_verdicts(study, fold, blocks)
    assert reasons[3].continues and "not decided" in reasons[3].reason
    assert not reasons[14].continues and "is decided" in reasons[14].reason


def test_absent_arms_and_runs_without_values_are_no_reason_to_continue() -> None:
    asked = PrecisionTarget("bare", {}, 0.95, 0.001)
    metric = SimulatedMetric("latency", {"bare": 1.0, "vm": 1.0}, workload="w", spreads=(0.1, 0.0))
    effects = compare_runs(simulated_run([metric], 8)).effects
    assert decide_by_verdicts(effects, asked, 8).continues
    assert not decide_by_verdicts(effects, asked, 11).continues
    assert decide_by_verdicts([], asked, 8).continues
    wide = replace(effects[0], half_width=0.2)
    assert not decide_by_verdicts([wide], asked._replace(precision=0.25), 8).continues
    assert decide_by_verdicts([wide], asked._replace(precision=0.15), 8).continues


def test_intervals_of_a_sequential_run_allow_for_its_looks() -> None:
    truth = {"bare": 1.0, "vm": 1.1}
    metrics = [
        SimulatedMetric("latency", truth, workload="w", spreads=(0.03, 0.0)),
        SimulatedMetric("late", truth, workload="w", kind="tail", spreads=(0.03, 0.0)),
    ]
    run = simulated_run(metrics, 14)
    settings = Settings.of([run])
    assert settings.plan == LookPlan(6, 30) and not settings.position
    ordinary = compare_runs(run, replace(settings, plan=None)).effects
    for effect, other in zip(compare_runs(run).effects, ordinary, strict=True):
        assert effect.interval is not None and effect.interval.method == "sequential"
        assert other.interval is not None
        assert effect.interval.high - effect.interval.low > other.interval.high - other.interval.low
        assert effect.p is not None and other.p is not None and effect.p >= other.p
    rounds = {**run.study, "sessions": {"blocks": 2}}
    assert Settings.of([replace(run, study=rounds)]).plan == LookPlan(3, 15)


def test_counts_that_differ_in_each_boot_are_declared() -> None:
    metric = SimulatedMetric("losses", {"bare": 0.0, "vm": 0.0}, workload="w", spreads=(0.03, 0.0))
    run = simulated_run([metric], 10)
    once = run_with(run, lambda arm, block: 1.0 if arm == "vm" else 0.0)
    (effect,) = compare_runs(once).effects
    assert effect.adjusted_p is not None and effect.adjusted_p < 0.05


def run_with(run: RunData, value: Callable[[str, int], float]) -> RunData:
    def changed(cell: CellResult, seen: Observation) -> Observation:
        return seen._replace(value=value(cell.arm, cell.block))

    return replace(run, counted=observed_as(run, changed))


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
    assert Blocks.model_validate({"least": 12, "method": "sequential"}).position
    with pytest.raises(ValidationError):
        Blocks.model_validate({"method": "significance"})


def test_rules_side_by_side() -> None:
    """At equal power, the sequential rule needs a quarter fewer blocks than the one it replaced."""
    found = {
        rule: sims.simulated(rule, 0.10, 0.10, 300)
        for rule in ("`precision`", "former `anytime`", "`sequential`")
    }
    error = 3 * math.sqrt(0.0475 / 300)
    for cell in found.values():
        assert cell.decided >= 0.79
        assert cell.covered >= 0.92
    new = found["`sequential`"]
    assert new.wrong <= 0.05 + error
    assert new.blocks <= 0.78 * found["former `anytime`"].blocks
    assert new.blocks < found["`precision`"].blocks


@pytest.mark.parametrize(("metrics", "lag"), [(1, 0.5), (5, 0.0)])
def test_whole_verdicts_of_a_sequential_study_are_seldom_wrong(
    monkeypatch: pytest.MonkeyPatch, metrics: int, lag: float
) -> None:
    monkeypatch.setattr(maxt, "DRAWS", 255)
    studies = 150
    setting = Setting(np.zeros((1, metrics)), 0.03, 16, lag=lag)
    wrong = sum(bool(found) for _, found in sims.verdicts(setting, LookPlan(8, 16), studies))
    assert wrong <= (0.07 if lag else 0.05) * studies + 3 * math.sqrt(studies * 0.0475)


def test_for_many_metrics_a_run_needs_fewer_blocks_than_by_the_former_rules(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without moderated variances and places, a gradient of 5 % took half as many blocks again."""
    monkeypatch.setattr(maxt, "DRAWS", 255)
    case = families.Case(metrics=11, spread=0.03, difference=0.05, gradient=0.05)
    rng = np.random.default_rng(5)
    there = [families.Study(case, math.log1p(0.05), rng) for _ in range(40)]
    former, present = (
        families.simulated(rule, case, there, there[:1])
        for rule in ("former `precision`", "`precision`")
    )
    assert min(former.decided, present.decided) >= 0.8
    assert present.blocks < 0.8 * former.blocks
