"""Sentences of verdicts against the truth that simulated studies were drawn from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from analysis.analysis_simulate import SimulatedMetric, SimulatedRun, events_of, some, write_run
from tare.analysis import load_run
from tare.analysis.data.settings import Settings
from tare.analysis.effects.compare import compare
from tare.analysis.effects.comparison import Comparison
from tare.analysis.effects.estimates import rare_events
from tare.analysis.effects.families import simultaneous
from tare.analysis.effects.results import Interval
from tare.analysis.effects.verdict import Evidence, judge, sentence
from tare.analysis.runs.gates import check, parse_gate
from tare.analysis.runs.run_changes import two_runs_caveat
from tare.analysis.statistics.logratio import mean_interval
from tare.analysis.statistics.meta_analysis import mean_shift
from tare.analysis.statistics.tails import median_interval
from tare.analysis.words import family_note
from tare.events.metric import Kind, Metric
from tare.report.compare.gates import as_text
from tare.report.figures.palette import looks
from tare.report.page.verdicts import arm_lines, lead
from tare.report.terminal.run_changes import render_changes


def compared(
    folder: Path, *metrics: SimulatedMetric, floors: dict[str, float] | None = None, blocks: int = 8
) -> Comparison:
    arms = {"bare": "bare", "kvm": "qemu"}
    simulated = SimulatedRun(
        metrics, arms=arms, emulated=frozenset(), blocks=blocks, shared_spread=0.0
    )
    run = load_run(write_run(folder, events_of(simulated)))
    return compare(run, replace(Settings.of([run]), floors=floors or {}))


@pytest.mark.parametrize("more", [False, True])
def test_equivalence_by_a_floor_does_not_claim_the_studys_margin(
    more: bool, tmp_path: Path
) -> None:
    """A floor of 200 ns is 20 % of 1 µs: +10 % is equivalent by it, and not within ± 2 %."""
    metrics = [SimulatedMetric("lat", {"bare": 1e-6, "kvm": 1.1e-6}, spreads=(0.001, 0.0005))]
    if more:
        steady = {"bare": 1.0, "kvm": 1.0}
        metrics.append(SimulatedMetric("time", steady, spreads=(0.001, 0.0005)))
    comparison = compared(tmp_path / "r", *metrics, floors={"lat": 200e-9})
    assert {effect.verdict for effect in comparison.headlines} == {"equivalent"}
    (line,) = arm_lines(comparison, looks(["bare", "kvm"], "bare"))
    for text in (lead(comparison), line.sentence):
        assert "±2 %" not in text and "± 2 %" not in text
    assert line.sentence.startswith("Work takes ")
    assert {effect.margin for effect in comparison.headlines} != {0.02}


FLOOR = 5.0
LOST = Metric("lost", "1", "lower", kind="tail", headline=True)


def evidence_of(lost: Sequence[float]) -> Evidence:
    """Return the evidence of an arm that loses so many in each boot; the baseline loses none."""
    found = mean_interval(lost, 0.95)
    return Evidence(
        metric=LOST,
        scale="difference",
        estimate=float(found.mean),
        interval=Interval(float(found.low), float(found.high), "student-t", 0.95),
        blocks=len(lost),
        p=None,
        adjusted_p=None,
        margin=FLOOR,
        tests=1,
        share_beyond=some(rare_events(lost, FLOOR, 0.05)).high,
    )


@pytest.mark.parametrize("blocks", [8, 20, 30, 60])
def test_losses_that_are_rare_are_not_equivalent_until_enough_boots_had_none(blocks: int) -> None:
    """One boot in ten loses twice the floor: of 8 boots, 43 % of runs see none of it."""
    rng = np.random.default_rng(blocks)
    studies = 400
    rare = 2 * FLOOR * (rng.random((studies, blocks)) < 0.1)
    wrong = sum(judge(evidence_of(row.tolist())) == "equivalent" for row in rare)
    assert wrong <= 0.05 * studies + 3 * np.sqrt(0.0475 * studies)
    # What loses nothing is equivalent once so many boots show it.
    assert judge(evidence_of([0.0] * blocks)) == ("equivalent" if blocks >= 29 else "inconclusive")


def test_an_equivalent_count_states_how_many_boots_may_differ() -> None:
    words = {
        blocks: sentence(
            evidence_of([0.0] * blocks),
            judge(evidence_of([0.0] * blocks)),
            0.0,
            what="net lost",
            arm="kvm",
            baseline="bare",
        )
        for blocks in (8, 40)
    }
    assert "at most 31 % of blocks are beyond that, which is too many: 29 blocks" in words[8]
    assert "at most 7.2 % of blocks are beyond that." in words[40]


def test_the_greatest_cost_of_many_metrics_is_covered_by_the_interval_that_is_named() -> None:
    """The greatest estimate of 30 metrics at +5 % is +8 %; its own interval covers half of them."""
    rng = np.random.default_rng(7)
    studies, truth, confidences = 400, np.log(1.05), (0.95, 1 - 0.05 / 30)
    covered = dict.fromkeys(confidences, 0)
    for _ in range(studies):
        logs = truth + 0.03 * np.sqrt(2) * rng.standard_normal((30, 8))
        most = logs[logs.mean(axis=1).argmax()]
        for confidence in confidences:
            found = mean_interval(most, confidence)
            covered[confidence] += bool(found.low <= truth <= found.high)
    assert covered[0.95] < 0.7 * studies
    assert covered[1 - 0.05 / 30] >= 0.95 * studies


@pytest.mark.parametrize("kind", ["typical", "tail"])
def test_no_sentence_calls_the_greatest_estimate_a_bound(kind: Kind, tmp_path: Path) -> None:
    metrics = [
        SimulatedMetric(f"m{n}", {"bare": 1.0, "kvm": 1.5 + 0.1 * n}, kind=kind) for n in range(3)
    ]
    comparison = compared(tmp_path / "r", *metrics, blocks=10)
    most = comparison.headlines[-1]
    text, bound = lead(comparison).split("; ")
    assert bound == "up to 31 % of boots may be slow and not be among these 10"
    assert {effect.verdict for effect in comparison.headlines} == {"worse"}
    (line,) = comparison.arm_verdicts
    assert not any(word in text + line.sentence for word in ("up to", "at most"))
    low, high = some(simultaneous(most, 3))
    wide = 1 - (1 - 0.95) / 3
    logs = [float(np.log(block.value)) for block in most.block_effects]
    ends = mean_interval(logs, wide)[1:] if kind == "typical" else some(median_interval(logs, wide))
    assert (low, high) == pytest.approx(tuple(np.exp(ends)), rel=1e-6)
    assert f"most in tick m2 (alone): {low:.3f} to {high:.3f} times the cost" in line.sentence
    # So few blocks have no such interval for a median over many metrics.
    assert (simultaneous(most, 300) is None) is (kind == "tail")


@pytest.mark.parametrize("arms", [1, 6])
def test_the_note_on_several_arms_states_what_is_controlled(arms: int, tmp_path: Path) -> None:
    """Any of six equal arms is called worse or better in 21 % of studies, each of them in 5 %."""
    names = [f"arm{n}" for n in range(arms)]
    truth = {"bare": 1.0, **dict.fromkeys(names, 1.0), "arm0": 1.5}
    simulated = SimulatedRun(
        [SimulatedMetric("m", truth)],
        arms={"bare": "bare", **dict.fromkeys(names, "qemu")},
        emulated=frozenset(),
    )
    text = " ".join(family_note(compare(load_run(write_run(tmp_path / "r", events_of(simulated))))))
    assert ("The error level of 5 % is for each arm" in text) is (arms > 1)
    assert ("if 6 arms all equal the baseline, up to 30 % of studies" in text) is (arms > 1)


def test_a_change_between_two_runs_is_claimed_of_these_two_only(tmp_path: Path) -> None:
    """Runs that differ by 1 % beyond their boots are declared different, though no arm changed."""
    rng = np.random.default_rng(5)
    declared, studies = 0, 200
    for _ in range(studies):
        shift = 0.03 * rng.standard_normal()
        first, second = 0.01 * rng.standard_normal((2, 12))
        found = mean_shift(first.tolist(), (second + shift).tolist(), 0.95)
        declared += not found.low <= 0 <= found.high
    assert declared > 0.5 * studies
    before, after = (
        compared(tmp_path / str(n), SimulatedMetric("m", {"bare": 1.0, "kvm": 1.2})) for n in (1, 2)
    )
    assert two_runs_caveat(before, after).startswith("This is about these two runs only")
    gate = check(before, after, [parse_gate("tick m < +5 %")])
    assert "about these two runs only" in as_text(gate)
    out = StringIO()
    render_changes(before, after, Console(file=out, width=200))
    assert "about these two runs only" in " ".join(out.getvalue().split())
