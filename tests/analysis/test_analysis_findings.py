"""Findings on what a mean over boots hides are reported, and nothing is called equal then."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.analysis_simulate import SimulatedMetric, SimulatedRun, events_of, some
from tare.analysis import compare_every_pair, compare_runs
from tare.analysis.data.load import run_data
from tare.analysis.data.settings import Settings
from tare.analysis.effects.findings import SlowBoots
from tare.analysis.effects.flags import slow_words
from tare.analysis.model import Comparison, Effect
from tare.analysis.runs.run_changes import changes
from tare.analysis.statistics import slow_boots
from tare.analysis.statistics.shares import Share
from tare.events import CellFinished, Event, Observed, Record, fold_records
from tare.report.page.verdicts import arm_sentences, finding_notes, lead
from tare.report.page.warnings import warnings_of
from tare.report.sections.method import method_of

ARMS = {"bare": "bare", "bare-again": "bare", "vm": "qemu", "other": "qemu"}
EQUAL = SimulatedMetric("time", dict.fromkeys(ARMS, 1e-3), spreads=(0.004, 0.001))

Change = Callable[[Event], Event]


def compared(
    change: Change = lambda event: event,
    metric: SimulatedMetric = EQUAL,
    settings: dict[str, Any] | None = None,
    **simulated: Any,
) -> Comparison:
    events = events_of(SimulatedRun([metric], arms=ARMS, emulated=frozenset(), **simulated))
    records = [Record(seq=i, time=float(i), event=change(e)) for i, e in enumerate(events)]
    run = run_data(Path("nowhere"), fold_records(records))
    return compare_runs(run, replace(Settings.of([run]), **(settings or {})))


def of(found: Comparison, arm: str = "vm") -> Effect:
    return next(effect for effect in found.effects if effect.arm == arm)


def times(factor: float, arm: str, blocks: set[int]) -> Change:
    """Multiply an arm's values in some blocks."""

    def change(event: Event) -> Event:
        if isinstance(event, Observed):
            block, name, *_ = event.cell.split("/")
            if name == arm and int(block[1:]) in blocks:
                return event.model_copy(update={"value": event.value * factor})
        return event

    return change


def test_equal_arms_are_equivalent_and_the_lead_may_say_so() -> None:
    found = compared(blocks=12)
    assert {effect.verdict for effect in found.effects} == {"equivalent"}
    assert all(verdict.equivalent == 1 for verdict in found.arm_verdicts)
    assert found.failures == ()


@pytest.mark.parametrize("blocks", [6, 8, 12, 20])
def test_two_modes_of_boots_are_in_the_effect_and_on_the_first_screen(blocks: int) -> None:
    slow = set(range(1, blocks + 1, 2))
    found = compared(times(1.3, "vm", slow), blocks=blocks, shared_spread=0.0)
    (flag,) = [flag for flag in of(found).flags if flag.kind == "two-humped"]
    assert flag.text.startswith(
        "the boots of vm seem to form two groups, which an average hides (dip"
    )
    assert any("the boots of vm seem to form two groups" in note for note in finding_notes(found))
    assert not any(flag.kind == "two-humped" for flag in of(found, "other").flags)


@pytest.mark.parametrize(
    ("count", "total", "factor", "words"),
    [
        (1, 12, 3.04, "1 of 12 boots of vm was slow, 3× the typical cost ("),
        (3, 36, 213.4, "3 of 36 boots of vm were slow, 210× the typical cost ("),
        (1, 90, 12.6, "1 of 90 boots of vm was slow, 13× the typical cost ("),
        (2, 90, 12_600.0, "2 of 90 boots of vm were slow, 13,000× the typical cost ("),
    ],
)
def test_slow_boots_are_reported_without_powers_of_ten(
    count: int, total: int, factor: float, words: str
) -> None:
    text = slow_words("vm", SlowBoots(Share(count, total, 0.01, 0.2), factor))
    assert text.startswith(words)


def test_one_slow_boot_is_a_finding_and_forbids_equality() -> None:
    found = compared(times(3.0, "vm", {5}), blocks=12)
    effect = of(found)
    assert effect.verdict == "inconclusive"
    texts = {flag.kind: flag.text for flag in effect.flags}
    assert texts["slow-boots"].startswith("1 of 12 boots of vm was slow, ")
    assert "× the typical cost (interval of the share: 0.21 to 38.5 %)" in texts["slow-boots"]
    assert some(effect.robust).estimate == pytest.approx(1.0, abs=0.01)
    assert some(effect.robust).interval.high < 1.02
    # The other arm's boots were not slow.
    assert "slow-boots" not in {flag.kind for flag in of(found, "other").flags}


def test_a_block_that_is_slow_for_all_arms_is_not_a_slow_boot() -> None:
    def change(event: Event) -> Event:
        for arm in ARMS:
            event = times(3.0, arm, {5})(event)
        return event

    found = compared(change, blocks=12)
    assert {effect.verdict for effect in found.effects} == {"equivalent"}


def test_cells_that_failed_in_one_arm_alone_forbid_equality() -> None:
    def lost(arms: set[str]) -> Change:
        def change(event: Event) -> Event:
            if isinstance(event, CellFinished):
                block, arm, *_ = event.cell.split("/")
                if block == "b003" and arm in arms:
                    return event.model_copy(update={"status": "failed", "reason": "too slow"})
            return event

        return change

    alone = compared(lost({"vm"}), blocks=12)
    assert of(alone).verdict == "inconclusive"
    assert "vm failed in 1 block in which the baseline did not" in of(alone).sentence
    assert of(alone, "other").verdict == "equivalent"
    (rate,) = alone.failures
    assert (rate.arm, rate.failed.count, rate.failed.total) == ("vm", 1, 12)
    assert 0 < rate.failed.low < 1 / 12 < rate.failed.high < 0.5
    everywhere = compared(lost(set(ARMS)), blocks=12)
    assert of(everywhere).verdict == "equivalent"


def test_studies_of_an_arm_that_fails_when_it_is_slow_never_call_it_equal() -> None:
    """A boot in three is three times slow, and fails: what is left is as fast as the baseline."""
    rng = np.random.default_rng(1)
    verdicts, other, covered = [], 0, 0
    for seed in range(12):
        slow = set((1 + np.flatnonzero(rng.random(12) < 1 / 3)).tolist()) or {5}

        def change(event: Event, slow: set[int] = slow) -> Event:
            if isinstance(event, CellFinished):
                block, arm, *_ = event.cell.split("/")
                if arm == "vm" and int(block[1:]) in slow:
                    return event.model_copy(update={"status": "failed", "reason": "out of time"})
            return event

        found = compared(change, blocks=12, seed=seed)
        verdicts.append(of(found).verdict)
        other += of(found, "other").verdict == "equivalent"
        (rate,) = found.failures
        covered += rate.failed.low <= 1 / 3 <= rate.failed.high
    assert not {"equivalent", "better"} & set(verdicts)
    assert other >= 9
    assert covered >= 10


def test_an_arm_that_fails_when_it_is_slow_is_not_called_better() -> None:
    """Half of its boots are three times slow and fail; what is left looks 5 % better."""
    slow = {2, 4, 6, 8, 10, 12}

    def change(event: Event) -> Event:
        if isinstance(event, CellFinished):
            block, arm, *_ = event.cell.split("/")
            if arm == "vm" and int(block[1:]) in slow:
                return event.model_copy(update={"status": "failed", "reason": "out of time"})
        return times(0.95, "vm", set(range(1, 13)))(event)

    found = compared(change, blocks=12)
    assert of(found).verdict == "inconclusive"
    assert "What is left looks better" in of(found).sentence


def failing(arms: dict[str, set[int]], factors: dict[str, float]) -> Change:
    """Let cells of arms fail in some blocks, and make arms slower by factors."""

    def change(event: Event) -> Event:
        if isinstance(event, CellFinished):
            block, arm, *_ = event.cell.split("/")
            if int(block[1:]) in arms.get(arm, ()):
                return event.model_copy(update={"status": "failed", "reason": "out of time"})
        for arm, factor in factors.items():
            event = times(factor, arm, set(range(1, 13)))(event)
        return event

    return change


def test_an_arm_is_not_called_worse_than_a_baseline_that_fails_when_it_is_slow() -> None:
    slow = {2, 4, 6, 8, 10, 12}
    found = compared(failing({"bare": slow}, {"vm": 1.05}), blocks=12)
    assert of(found).verdict == "inconclusive"
    assert "What is left looks worse, but bare failed in 6 blocks in which vm" in of(found).sentence
    assert "baseline-failures" in {flag.kind for flag in of(found).flags}
    assert of(found, "other").verdict == "inconclusive", (
        "the surviving cells of a baseline cannot serve as a baseline"
    )
    assert "bare failed in 6 blocks in which other did not" in of(found, "other").sentence


def test_effects_that_survive_the_worst_case_of_lost_cells_are_declared() -> None:
    lost = {"bare": {3}, "vm": {7}, "other": {8}}
    found = compared(failing(lost, {"vm": 10.0, "other": 0.1}), blocks=12)
    assert (of(found).verdict, of(found, "other").verdict) == ("worse", "better")
    # Five of twelve could turn any median.
    many = {"bare": {1, 2, 3, 4, 5}, "other": {8, 9, 10, 11, 12}}
    found = compared(failing(many, {"vm": 10.0, "other": 0.1}), blocks=12)
    assert (of(found).verdict, of(found, "other").verdict) == ("inconclusive", "inconclusive")


def test_rates_of_a_few_pieces_of_work_sit_on_a_grid_as_durations_do() -> None:
    """4 of 4.95 and 5 of 5.05 pieces were done in each second: rates may be nearly the same."""
    truth = {"bare": 5.0, "bare-again": 5.0, "vm": 4.0, "other": 1.0}
    metric = replace(EQUAL, truth=truth, unit="1/s", better="higher", spreads=(0.0, 0.0))
    found = compared(metric=metric, blocks=12, shared_spread=0.0)
    assert of(found).verdict == "inconclusive"
    assert any(flag.kind == "resolution" for flag in of(found).flags)
    assert of(found, "other").verdict == "worse"


def test_arms_without_any_spread_that_are_far_apart_are_distinguished() -> None:
    """As on a computer whose time counts instructions: 20 against 100 ns in every boot."""
    truth = {"bare": 20e-9, "bare-again": 20e-9, "vm": 100e-9, "other": 21e-9}
    metric = replace(EQUAL, truth=truth, spreads=(0.0, 0.0))
    found = compared(metric=metric, blocks=8, shared_spread=0.0)
    assert (of(found).verdict, of(found, "other").verdict) == ("worse", "inconclusive")


def test_the_clocks_grid_is_in_the_interval() -> None:
    def grid(event: Event) -> Event:
        if isinstance(event, Observed):
            value = 21e-9 if "/vm/" in event.cell else 20e-9
            return event.model_copy(update={"value": value})
        return event

    found = compared(grid, blocks=12)
    effect = of(found)
    assert effect.estimate == pytest.approx(1.05)
    assert effect.verdict == "inconclusive"
    assert some(effect.interval).holds(1.0) and some(effect.interval).high > 1.09
    assert "resolution" in {flag.kind for flag in effect.flags}
    assert "the clock's steps hide 5.1 %, however many blocks" in effect.sentence


@pytest.mark.parametrize(("unit", "step"), [("s", 1e-9), ("W", 1.0), ("1", 0.01)])
def test_means_of_rounded_values_are_known_to_the_step_only(unit: str, step: float) -> None:
    """20.9 and 21.05 steps, cut off to whole ones and averaged, often look more than 2 % apart."""

    def cut(event: Event) -> Event:
        if isinstance(event, Observed):
            value = math.floor(event.value / step) * step
            return event.model_copy(update={"value": value})
        return event

    truth = {**dict.fromkeys(ARMS, 20.9 * step), "vm": 21.05 * step}
    metric = replace(EQUAL, truth=truth, unit=unit, spreads=(0.0, 0.006))
    studies, declared, apart = 20, 0, 0
    for seed in range(studies):
        found = of(compared(cut, metric, blocks=8, repeats=5, seed=seed, shared_spread=0.0))
        declared += found.verdict in ("worse", "better")
        apart += found.estimate > 1.02
        assert found.step == pytest.approx(step)
    assert apart > studies / 3
    assert declared <= 0.05 * studies + 1


@pytest.mark.parametrize("kind", ["typical", "tail", "maximum"])
def test_losses_in_some_boots_alone_are_not_equal_to_none(kind: str) -> None:
    rng = np.random.default_rng(4)
    lossy = set(rng.choice(np.arange(1, 21), 5, replace=False).tolist())
    metric = replace(EQUAL, name="lost", unit="1", kind=kind)  # type: ignore[arg-type]

    def change(event: Event) -> Event:
        if isinstance(event, Observed):
            block, arm, *_ = event.cell.split("/")
            there = arm == "vm" and int(block[1:]) in lossy
            return event.model_copy(update={"value": 3000.0 if there else 0.0})
        return event

    found = compared(change, metric, blocks=20)
    effect = of(found)
    assert effect.scale == "difference"
    assert effect.verdict == "inconclusive"
    assert effect.estimate == pytest.approx(750)
    assert some(effect.not_excluded) > 1000
    text = next(flag.text for flag in effect.flags if flag.kind == "seldom")
    assert "vm in 5 of 20" in text and "the baseline in 0 of 20" in text
    # Zero in every boot of both proves equality only with a floor for negligible differences.
    assert of(found, "other").verdict == "inconclusive"
    assert of(found, "other").not_excluded == math.inf
    assert "no cost is excluded" in of(found, "other").sentence
    assert "0.00 to 0.00" not in of(found, "other").sentence
    floored = compared(change, metric, {"floors": {"lost": 1.0}}, blocks=20)
    assert of(floored, "other").verdict == "inconclusive"
    longer = compared(change, metric, {"floors": {"lost": 1.0}}, blocks=32)
    assert of(longer, "other").verdict == "equivalent"
    assert of(floored).verdict == "inconclusive"


def test_a_floor_lets_shares_of_next_to_nothing_pass() -> None:
    slower = replace(EQUAL, truth={**EQUAL.truth, "vm": 1.1e-3})
    assert of(compared(metric=slower, blocks=12)).verdict == "worse"
    floored = compared(metric=slower, settings={"floors": {"time": 5e-4}}, blocks=12)
    assert of(floored).verdict == "equivalent"


def test_drift_over_blocks_is_reported_and_forbids_equality() -> None:
    def change(event: Event) -> Event:
        if isinstance(event, Observed) and "/vm/" in event.cell:
            block = int(event.cell.split("/")[0][1:])
            return event.model_copy(update={"value": event.value * 1.001 ** (block - 10.5)})
        return event

    found = compared(change, blocks=20)
    effect = of(found)
    assert any(flag.kind == "serial" and "seems to drift" in flag.text for flag in effect.flags)
    assert effect.verdict == "inconclusive"


def test_an_interval_is_widened_before_it_declares_when_blocks_are_correlated() -> None:
    def drifting(most: float) -> Change:
        def change(event: Event) -> Event:
            if isinstance(event, Observed) and "/vm/" in event.cell:
                # From block 1 to 20 the arm grows slower: over so many blocks by half of that.
                factor = 1 + most * int(event.cell.split("/")[0][1:]) / 20
                return event.model_copy(update={"value": event.value * factor})
            return event

        return change

    slight, large = of(compared(drifting(0.1), blocks=20)), of(compared(drifting(20.0), blocks=20))
    assert slight.widened > 2
    assert slight.adjusted_p is not None and slight.adjusted_p < 0.05, "blocks by themselves"
    assert slight.verdict == "inconclusive"
    assert "It seems to drift over the blocks" in slight.sentence
    assert any("times as wide" in flag.text for flag in slight.flags)
    assert large.verdict == "worse", "a large difference is declared nevertheless"
    assert some(slight.interval).low < some(slight.student_t).low, "the ordinary one is kept too"
    assert of(compared(blocks=20)).widened == 1


def test_the_twins_boots_count_as_the_baselines() -> None:
    slower = replace(EQUAL, truth={**EQUAL.truth, "vm": 1.1e-3}, spreads=(0.05, 0.0))
    pooled = compared(metric=slower, blocks=12, seed=3)
    alone = compared(metric=slower, settings={"pool_twin": False}, blocks=12, seed=3)
    assert (pooled.pooled, alone.pooled) == ({"bare": "bare-again"}, {})
    assert of(pooled).baseline == of(alone).baseline == "bare"
    assert {effect.arm for effect in pooled.effects} == {"vm", "other"}
    blocks = {b.block: b.value for b in of(pooled).block_effects}
    values = {
        arm: {b.block: b.value for b in s.blocks} for (_, arm), s in
        {(s.key, s.arm): s for s in pooled.summaries}.items()
    }  # fmt: skip
    for block, ratio in blocks.items():
        base = np.sqrt(values["bare"][block] * values["bare-again"][block])
        assert ratio == pytest.approx(values["vm"][block] / base)


def test_a_twin_that_differs_is_reported_at_the_top_with_its_consequences() -> None:
    twin = replace(EQUAL, truth={**EQUAL.truth, "bare-again": 1.06e-3})
    found = compared(metric=twin, blocks=12)
    assert found.notes[0].startswith("The A/A pair failed: bare-again and bare are identical")
    assert "better with the twin, inconclusive without" in found.notes[1]
    first = warnings_of(found)[0]
    assert first.line == "The A/A pair failed: two identical arms differ in tick/time."
    assert "better with the twin, inconclusive without" in first.text
    assert first.action and first.worthless, "it is the only headline metric"
    fine = compared(blocks=12)
    assert not any("A/A pair failed" in note for note in fine.notes)
    assert not any("A/A" in each.line for each in warnings_of(fine))


def test_no_arm_is_called_equal_when_identical_arms_differ() -> None:
    """The arm is midway between a baseline and its twin, which differ by three times the margin."""
    truth = {**EQUAL.truth, "bare-again": 1.06e-3, "vm": 1.03e-3, "other": 1.03e-3}
    found = compared(metric=replace(EQUAL, truth=truth), blocks=12)
    interval = some(of(found).interval)
    assert 0.98 < interval.low < interval.high < 1.02, "by itself it would be equal"
    assert {effect.verdict for effect in found.effects} == {"inconclusive"}
    assert "bare-again and bare, which are the same, were found to differ" in of(found).sentence
    assert not any(" the same" in sentence for sentence in arm_sentences(found).values())
    (run,) = found.runs
    pairs = some(compare_every_pair(run).pairs)
    assert "equivalent" not in {e.verdict for e in pairs.effects}


def test_places_in_the_block_are_taken_out_where_the_plan_says_so() -> None:
    """Each later boot of a block is 5 % slower; the order is drawn by block."""
    rng = np.random.default_rng(9)
    events = events_of(SimulatedRun([EQUAL], arms=ARMS, emulated=frozenset(), blocks=12))
    place: dict[int, dict[str, int]] = {
        block: {arm: int(p) for arm, p in zip(ARMS, rng.permutation(4), strict=True)}
        for block in range(1, 13)
    }

    def slowed(event: Event) -> Event:
        if isinstance(event, Observed):
            block, arm, *_ = event.cell.split("/")
            value = event.value * 1.05 ** place[int(block[1:])][arm]
            return event.model_copy(update={"value": value})
        return event

    run = run_data(
        Path("nowhere"),
        fold_records(Record(seq=i, time=float(i), event=slowed(e)) for i, e in enumerate(events)),
    )
    ordered = sorted(run.machines, key=lambda m: (m.block, place[m.block][m.arm]))
    run = replace(run, machines=tuple(ordered))
    plain, along = (
        compare_runs(run, replace(Settings.of([run]), position=position))
        for position in (False, True)
    )
    assert along.position
    assert some(of(along).half_width) < some(of(plain).half_width) / 2
    assert of(along).verdict == "equivalent"
    assert of(plain).verdict == "inconclusive"


@pytest.mark.parametrize("boots", [6, 8, 17, 30, 40, 41])
def test_how_far_normal_boots_reach_is_what_simulation_finds(boots: int) -> None:
    """The usual numbers of boots are looked up, and no others."""
    looked_up = slow_boots._reach(boots)
    assert looked_up == pytest.approx(slow_boots._simulated(boots), rel=1e-12)


TRIMMED = {"trimmed": True, "position": False}


def test_trimmed_means_show_a_difference_that_one_slow_boot_hides() -> None:
    better = replace(EQUAL, truth={**EQUAL.truth, "vm": 0.95e-3})
    mean, trimmed = (
        of(compared(times(3.0, "vm", {5}), better, settings=settings, blocks=12))
        for settings in (None, TRIMMED)
    )
    assert mean.verdict == "inconclusive"
    assert "1 of 12 boots of vm was slow" in mean.sentence
    assert trimmed.verdict == "better"
    assert some(trimmed.interval).method == "trimmed"
    assert trimmed.estimate == pytest.approx(0.95, abs=0.01)
    assert "typical boots: the 2 least and the 2 greatest of 12 ratios" in trimmed.sentence
    assert "1 of 12 boots of vm was slow" in trimmed.sentence
    assert "The mean includes" not in trimmed.sentence
    # The mean of all boots is next to it, and the flag says that it differs.
    assert some(trimmed.student_t) == some(mean.student_t)
    (flag,) = [flag for flag in trimmed.flags if flag.kind == "robust"]
    assert flag.text.startswith("a few boots move the mean of all boots, which is not compared")


def test_trimmed_means_leave_slow_boots_open_without_any() -> None:
    found = compared(settings=TRIMMED, blocks=12)
    equal = of(found)
    assert equal.verdict == "equivalent"
    assert "in typical boots; up to" in equal.sentence
    slower = of(compared(times(1.1, "vm", set(range(1, 13))), settings=TRIMMED, blocks=12))
    assert slower.verdict == "worse"
    assert slower.sentence.endswith("up to 26 % of boots may be slow and not be among these 12.")
    assert "trimmed means)" in lead(found)
    assert "The study compares trimmed means" in " ".join(method_of(found))


def test_counts_of_rare_events_keep_the_mean_of_all_boots() -> None:
    def lost(event: Event) -> Event:
        if isinstance(event, Observed):
            block, name, *_ = event.cell.split("/")
            return event.model_copy(update={"value": 3.0 * (name == "vm" and int(block[1:]) == 3)})
        return event

    assert not of(compared(lost, settings=TRIMMED, blocks=12)).trimmed


def test_trimmed_means_have_pairs_and_changes_of_their_own() -> None:
    before, after = (
        compared(times(factor, "vm", {5}), settings=TRIMMED, blocks=12, run=name, seed=seed)
        for factor, name, seed in ((3.0, "r1", 1), (1.0, "r2", 2))
    )
    (change,) = [change for change in changes(before, after, 0.95) if change.arm == "vm"]
    assert change.change == pytest.approx(1.0, abs=0.01)
    assert change.high / change.low < 1.05, "the slow boot of the first run is left out"
