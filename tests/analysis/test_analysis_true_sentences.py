"""Sentences of verdicts against the truth that simulated studies were drawn from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from analysis.analysis_simulate import SimulatedMetric, SimulatedRun, events_of, write_run
from tare.analysis import load_run
from tare.analysis.data.settings import Settings
from tare.analysis.effects.compare import compare
from tare.analysis.effects.comparison import Comparison
from tare.report.figures.palette import looks
from tare.report.page.verdicts import arm_lines, lead


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
def test_the_lead_states_the_margin_that_each_effect_was_judged_by(
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
    for sentence in (lead(comparison), line.sentence):
        assert "± 20 % in " in sentence
        assert ("within ± 2 %" in sentence) is more
    without = compared(tmp_path / "plain", *metrics[1:], *metrics[1:]) if more else None
    assert without is None or "within ± 2 % in all" in lead(without)
