"""Comparisons: what is declared, what is not, and the sentences."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.analysis_simulate import SimulatedMetric, SimulatedRun, events_of, some, write_run
from tare.analysis import compare_every_pair, compare_runs, load_run
from tare.analysis.data.load import run_data
from tare.analysis.data.rundata import RunData
from tare.analysis.data.settings import Settings
from tare.analysis.effects.noise import noise_floor
from tare.analysis.effects.verdict import significant
from tare.analysis.model import Comparison, Effect, VerdictWord
from tare.analysis.runs.run_changes import pooled
from tare.errors import InputError
from tare.events import CellFinished, Observed, Record, fold_records


def truth(qemu: float, bare: float = 1.0) -> dict[str, float]:
    return {"bare": bare, "bare-again": bare, "qemu-pv": qemu * bare}


def fold(simulated: SimulatedRun, tmp_path: Path) -> RunData:
    events = events_of(simulated)
    records = [Record(seq=i, time=float(i), event=event) for i, event in enumerate(events)]
    return run_data(tmp_path, fold_records(records))


def effects_by_metric(comparison: Comparison) -> dict[str, Effect]:
    return {effect.key.metric: effect for effect in comparison.effects}


METRICS = [
    SimulatedMetric("slower", truth(1.3)),
    SimulatedMetric("faster", truth(1.4), unit="B/s", better="higher", workload="copy"),
    SimulatedMetric("same", truth(1.0), spreads=(0.002, 0.001)),
    SimulatedMetric("tiny", truth(1.004), spreads=(0.0005, 0.0002), headline=False),
    SimulatedMetric("noisy", truth(1.05), spreads=(0.2, 0.05), headline=False),
    SimulatedMetric("worst", truth(3.0), kind="maximum", headline=False, spreads=(0.1, 0.1)),
    SimulatedMetric("other", truth(2.0), better="neither", headline=False),
]


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return compare_runs(fold(SimulatedRun(METRICS, repeats=2), tmp_path_factory.mktemp("run")))


def test_true_differences_are_found_and_named_by_direction(comparison: Comparison) -> None:
    found = effects_by_metric(comparison)
    assert found["slower"].verdict == "worse"
    assert found["faster"].verdict == "better"
    assert found["other"].verdict == "differs"
    assert found["worst"].verdict == "worse"
    assert found["slower"].estimate == pytest.approx(1.3, rel=0.02)
    assert some(found["slower"].interval).holds(1.3)
    assert found["slower"].overhead == pytest.approx(found["slower"].estimate - 1)
    assert found["faster"].overhead == pytest.approx(1 / found["faster"].estimate - 1)
    low, high = some(found["faster"].overhead_interval)
    assert low < some(found["faster"].overhead) < high < 0


def test_small_certain_differences_are_equivalent_and_noise_is_inconclusive(
    comparison: Comparison,
) -> None:
    found = effects_by_metric(comparison)
    assert found["same"].verdict == "equivalent"
    assert found["tiny"].verdict == "equivalent"
    # With a twin three boots of each block change names, which its drawn exchanges bound.
    assert found["tiny"].p == found["tiny"].p_least == 1 / 2048
    assert "all within ± 2 % in typical boots; " in found["tiny"].sentence
    noisy = found["noisy"]
    assert noisy.verdict == "inconclusive"
    assert some(noisy.not_excluded) == pytest.approx(some(noisy.interval).high - 1)
    assert f"a cost up to {100 * some(noisy.not_excluded):.2g} % is not excluded" in noisy.sentence
    assert "cannot resolve 2 %" in noisy.sentence


def test_pairing_in_blocks_takes_out_what_a_block_has_in_common(comparison: Comparison) -> None:
    """The blocks differ by 10 % among themselves, the arms' ratio is known to under 2 %."""
    effect = effects_by_metric(comparison)["slower"]
    assert some(effect.baseline_summary.deviation) > 0.05
    assert some(effect.half_width) < 0.02


def test_kinds_get_the_intervals_that_suit_them(comparison: Comparison) -> None:
    found = effects_by_metric(comparison)
    typical, maximum = found["slower"], found["worst"]
    assert typical.interval is typical.student_t
    assert some(typical.bootstrap).method == "hierarchical-bootstrap"
    assert maximum.student_t is None
    assert maximum.interval is maximum.order
    assert some(maximum.bootstrap).method == "boot-level-bootstrap"
    assert maximum.arm_summary.error is None
    assert some(maximum.arm_summary.interval).method == "order-statistic"
    assert maximum.arm_summary.greatest >= max(b.value for b in maximum.arm_summary.blocks)
    assert typical.arm_summary.error == pytest.approx(some(typical.arm_summary.interval).half_width)


def test_the_control_pair_is_apart_and_a_diagnostic(comparison: Comparison) -> None:
    assert {effect.arm for effect in comparison.effects} == {"qemu-pv"}
    assert {effect.arm for effect in comparison.aa} == {"bare-again"}
    assert [(family.family, family.arm) for family in comparison.families] == [
        ("headline", "qemu-pv"),
        ("detail", "qemu-pv"),
        ("control", "bare-again"),
    ]
    for effect in comparison.aa:
        floor = some(effects_by_metric(comparison)[effect.key.metric].noise_floor)
        interval = some(effect.interval)
        ends = abs(math.log(interval.low)), abs(math.log(interval.high))
        assert math.log1p(floor) == pytest.approx(max(ends))


def test_emulation_is_marked_wherever_it_matters(comparison: Comparison) -> None:
    assert all(effect.emulated for effect in comparison.effects)
    assert not any(effect.emulated for effect in comparison.aa)
    assert all("qemu-pv (emulated)" in effect.sentence for effect in comparison.effects)
    assert comparison.arm_verdicts[0].sentence.startswith("qemu-pv (emulated) against bare: worse")
    assert any("not hardware speed" in note for note in comparison.notes)
    assert {cost.arm: cost.emulated for cost in comparison.host_costs}["qemu-pv"]


def test_headlines_are_summed_up_per_arm(comparison: Comparison) -> None:
    (verdict,) = comparison.arm_verdicts
    assert (verdict.worse, verdict.better, verdict.equivalent, verdict.inconclusive) == (1, 1, 1, 0)
    assert verdict.total == 3
    assert comparison.arms == ("bare", "bare-again", "qemu-pv")
    assert comparison.blocks == 8


def test_the_same_run_gives_the_same_figures(tmp_path: Path) -> None:
    simulated = SimulatedRun(METRICS[:2], repeats=2)
    first, second = (compare_runs(fold(simulated, tmp_path)) for _ in range(2))
    assert [e.bootstrap for e in first.effects] == [e.bootstrap for e in second.effects]
    assert [e.sentence for e in first.effects] == [e.sentence for e in second.effects]


def test_identical_arms_are_almost_never_called_different(tmp_path: Path) -> None:
    """A thousand metrics without any difference: the whole rule, not only the test."""
    metrics = [
        SimulatedMetric(f"m{i}", truth(1.0), spreads=(0.05, 0.02), headline=i % 2 == 0)
        for i in range(1000)
    ]
    found = compare_runs(fold(SimulatedRun(metrics, seed=5), tmp_path))
    declared = [e for e in (*found.effects, *found.aa) if e.verdict in ("better", "worse")]
    assert len(declared) <= 0.05 * 2000
    assert sum(some(e.p) < 0.05 for e in found.aa) <= 0.05 * 1000 + 3 * math.sqrt(
        1000 * 0.05 * 0.95
    )


@pytest.mark.parametrize(
    ("blocks", "verdict", "flag"),
    [
        (1, "preliminary", True),
        (2, "preliminary", True),
        (5, "preliminary", True),
        (6, "worse", False),
        (8, "worse", False),
    ],
)
def test_few_blocks_are_flagged(
    tmp_path: Path, blocks: int, verdict: VerdictWord, flag: bool
) -> None:
    simulated = SimulatedRun([SimulatedMetric("slower", truth(1.5))], blocks=blocks)
    found = compare_runs(fold(simulated, tmp_path))
    (effect,) = found.effects
    assert effect.verdict == verdict
    assert ("few-blocks" in {f.kind for f in effect.flags}) == flag
    few = "6 are the least for a verdict" if blocks > 1 else "A smoke run of 1 block"
    assert any(few in note for note in found.notes) == flag
    # What cannot be declared has no interval that pretends to know it.
    assert (effect.interval is None) == (effect.half_width is None) == flag
    if flag:
        assert f"preliminary: cost {significant(effect.estimate)}" in effect.sentence
        ratios = [one.value for one in effect.block_effects]
        ends = f"({significant(min(ratios))} to {significant(max(ratios))} in its {blocks} blocks)"
        assert (ends in effect.sentence) == (blocks > 1)


def test_several_runs_are_never_compared_as_one(tmp_path: Path) -> None:
    """Pooled, a run of 1.0 and one of 1.6 would be "worse", with an interval that holds neither."""
    runs = [
        fold(SimulatedRun([SimulatedMetric("slower", truth(t))], run=n, seed=seed), tmp_path)
        for n, t, seed in (("a", 1.0, 1), ("b", 1.6, 2))
    ]
    with pytest.raises(InputError, match="2 runs are not compared as one"):
        compare_runs(runs)
    with pytest.raises(InputError, match="no run"):
        compare_runs([])
    (together,) = pooled([compare_runs(run) for run in runs], 0.95)
    assert math.exp(together.together.low) < 1 and math.exp(together.together.high) > 1.6


def test_different_baselines_cannot_be_compared(tmp_path: Path) -> None:
    run = fold(SimulatedRun(METRICS[:1], blocks=2), tmp_path)
    other = replace(run, run="other", study={**run.study, "baseline": "qemu-pv"})
    with pytest.raises(InputError, match="different baselines"):
        compare_runs([run, other])
    with pytest.raises(InputError, match="different baselines"):
        pooled([compare_runs(run), compare_runs(other)], 0.95)


def test_another_baseline_can_be_asked_for(tmp_path: Path) -> None:
    run = fold(SimulatedRun(METRICS[:1]), tmp_path)
    found = compare_runs(run, Settings("qemu-pv", ("bare", "bare-again")))
    assert {e.arm for e in found.effects} == {"bare", "bare-again"}
    assert all(e.verdict == "better" for e in found.effects)
    assert [e.arm for e in found.aa] == ["bare-again"]


def test_values_of_zero_are_compared_by_difference(tmp_path: Path) -> None:
    events = events_of(SimulatedRun([SimulatedMetric("stolen", truth(1.0))], blocks=32))
    changed = [
        event.model_copy(update={"value": 0.0 if "/bare" in event.cell else event.value})
        if isinstance(event, Observed)
        else event
        for event in events
    ]
    found = compare_runs(load_run(write_run(tmp_path / "run", changed)))
    (effect,) = found.effects
    assert effect.scale == "difference"
    assert effect.null == 0
    assert effect.overhead is None
    assert effect.verdict == "worse"
    assert "difference" in effect.sentence
    assert "not-positive" in {flag.kind for flag in effect.flags}
    # 32 boots without any do not prove that there is none, without a floor that allows it.
    assert found.aa[0].verdict == "inconclusive"
    floors = replace(Settings.of(found.runs), floors={"stolen": 0.1})
    assert compare_runs(found.runs, floors).aa[0].verdict == "equivalent"


def test_a_failed_cell_is_missing_and_not_zero(tmp_path: Path) -> None:
    lost = "b003/qemu-pv/alone/tick[]"
    events = []
    for event in events_of(SimulatedRun([SimulatedMetric("slower", truth(1.3))])):
        if isinstance(event, CellFinished) and event.cell == lost:
            event = event.model_copy(update={"status": "failed", "reason": "it died"})
        events.append(event)
    found = compare_runs(load_run(write_run(tmp_path / "run", events)))
    (effect,) = found.effects
    assert effect.blocks == 7
    assert {f.kind for f in effect.flags} == {"failures", "missing-blocks"}
    (rate,) = found.failures
    assert (rate.arm, rate.failed.count, rate.failed.total) == ("qemu-pv", 1, 8)
    assert rate.baseline_failed.count == 0
    assert any("1 failed cell of 24" in note for note in found.notes)


def test_arm_without_the_baseline_is_incomparable(tmp_path: Path) -> None:
    run = fold(SimulatedRun(METRICS[:1], arms={"qemu-pv": "qemu"}, blocks=2), tmp_path)
    found = compare_runs(run)
    assert found.effects == ()
    assert any("nothing can be compared" in note for note in found.notes)
    assert [summary.arm for summary in found.summaries] == ["qemu-pv"]


HERE_AND_THERE = {
    "bare": {"on": "here"},
    "vm": {"on": "here"},
    "far": {"on": "there"},
    "bare@there": {"on": "there"},
}
OWN = {"far": "bare@there", "bare@there": "bare@there"}


def on_two_hosts(folder: Path, own: dict[str, str]) -> RunData:
    """A host there that is twice as slow, on which an arm costs a tenth."""
    times = {"bare": 1.0, "vm": 1.3, "far": 2.2, "bare@there": 2.0}
    arms = {arm: "bare" for arm in times if arm in own or arm != "bare@there"}
    metrics = [SimulatedMetric("took", {arm: times[arm] for arm in arms})]
    run = fold(SimulatedRun(metrics, arms=arms, emulated=frozenset()), folder)
    settings = {
        "arms": {arm: HERE_AND_THERE[arm] for arm in arms},
        "own_baselines": own,
        "aa": None,
    }
    return replace(run, study={**run.study, **settings})


def test_each_ratio_is_to_the_baseline_on_the_same_host(tmp_path: Path) -> None:
    run = on_two_hosts(tmp_path, OWN)
    comparison = compare_runs(run)
    found = {(e.arm, e.baseline): e.estimate for e in comparison.effects}
    assert set(found) == {("vm", "bare"), ("far", "bare@there")}
    assert found["vm", "bare"] == pytest.approx(1.3, rel=0.03)
    assert found["far", "bare@there"] == pytest.approx(1.1, rel=0.03)
    against = {verdict.arm: verdict.sentence for verdict in comparison.arm_verdicts}
    assert against["far"].startswith("far against bare@there: ")
    assert not any("cannot be separated" in note for note in comparison.notes)


def test_identical_arms_show_their_difference_on_each_host(tmp_path: Path) -> None:
    # There the arms that are the same differ by a tenth.
    times = {
        "bare": 1.0,
        "again": 1.0,
        "vm": 1.3,
        "far": 2.2,
        "bare@there": 2.0,
        "again@there": 2.2,
    }
    on = {arm: "there" if arm == "far" or "@" in arm else "here" for arm in times}
    twin_of = {"again": "bare", "again@there": "bare@there"}
    simulated = SimulatedRun(
        [SimulatedMetric("took", times)], arms=dict.fromkeys(times, "bare"), emulated=frozenset()
    )
    run = fold(simulated, tmp_path)
    arms = {arm: {"on": on[arm], "twin_of": twin_of.get(arm)} for arm in times}
    own = {arm: "bare@there" for arm in times if on[arm] == "there"}
    settings = {"arms": arms, "own_baselines": own, "aa": ["bare", "again"]}
    run = replace(run, study={**run.study, **settings})
    comparison = compare_runs(run)
    pairs = {(e.arm, e.baseline): e for e in comparison.aa}
    assert set(pairs) == {("again", "bare"), ("again@there", "bare@there")}
    assert comparison.pooled == {"bare": "again", "bare@there": "again@there"}
    effects = {e.arm: e for e in comparison.effects}
    assert set(effects) == {"vm", "far"}
    # The restless host's floor is its own arms', and the quiet one's is not touched by it.
    assert effects["vm"].noise_floor == noise_floor(pairs["again", "bare"])
    assert effects["far"].noise_floor == noise_floor(pairs["again@there", "bare@there"])
    assert (effects["vm"].noise_floor or 0) < (effects["far"].noise_floor or 0)
    # The twin's boots count on each host.
    alone = compare_runs(run, replace(Settings.of([run]), pool_twin=False))
    far = next(e for e in alone.effects if e.arm == "far")
    assert far.estimate != effects["far"].estimate
    assert compare_every_pair(run).pairs is not None


def test_arm_without_a_baseline_on_its_host_is_noted(tmp_path: Path) -> None:
    comparison = compare_runs(on_two_hosts(tmp_path, {}))
    found = {(e.arm, e.baseline): e.estimate for e in comparison.effects}
    assert found["far", "bare"] == pytest.approx(2.2, rel=0.03)
    assert (
        "far ran on there, where the baseline bare could not run: the arm's cost and the host's "
        "influence cannot be separated." in comparison.notes
    )
