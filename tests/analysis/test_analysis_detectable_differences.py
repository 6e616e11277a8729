"""What a plan says of the differences that a study can tell."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analysis.analysis_simulate import SimulatedMetric, SimulatedRun, events_of, some, write_run
from benchmarks import stopping_simulations
from benchmarks import verdict_simulations as sims
from benchmarks._simulated import Setting
from tare.analysis import load_run
from tare.analysis.effects.detectable import (
    Basis,
    Plans,
    assumed_basis,
    basis_of,
    describe_detectable,
    earlier_run,
)
from tare.analysis.statistics import maxt
from tare.analysis.statistics.detectable import detectable
from tare.analysis.statistics.sequential import LookPlan


def plans(least: int, most: int, *, sequential: bool = False, **headlines: int) -> Plans:
    return Plans((least, most), {"typical": 0, **headlines}, sequential=sequential)  # type: ignore[dict-item]


TRUTH = {"bare": 1.0, "bare-again": 1.0, "qemu-pv": 1.2}


def folder_of(
    place: Path,
    spread: float,
    blocks: int = 40,
    run: str = "r1",
    metrics: int = 3,
    truth: dict[str, float] = TRUTH,
) -> Path:
    of = [SimulatedMetric(f"m{i}", truth, spreads=(spread, 0.0)) for i in range(metrics)]
    arms = {arm: "qemu" if arm == "qemu-pv" else "bare" for arm in truth}
    return write_run(place, events_of(SimulatedRun(of, arms=arms, blocks=blocks, run=run)))


def test_a_pilot_shows_how_far_boots_differ(tmp_path: Path) -> None:
    basis = some(basis_of(load_run(folder_of(tmp_path / "a", 0.05)), "the pilot"))
    assert basis.spread == pytest.approx(0.05 * math.sqrt(1.5), rel=0.25)
    assert basis.worst >= basis.spread
    assert basis_of(load_run(folder_of(tmp_path / "b", 0.05, blocks=2)), "the pilot") is None


def test_the_plan_says_what_it_goes_by_and_what_it_cannot_resolve() -> None:
    text = describe_detectable(assumed_basis(), plans(8, 20, typical=28, maximum=2))
    assert "assumed variation of 3 %" in text[0]
    assert text[1].startswith("8 blocks: 7.3 % in the typical headline metric (80 % power over 30")
    assert any("cannot resolve the margin of 2 %" in line for line in text)
    assert any("maxima" in line for line in text)
    few = replace(plans(8, 60, typical=5), margin=0.05)
    assert not any("cannot resolve" in line for line in describe_detectable(assumed_basis(), few))
    short = describe_detectable(assumed_basis(), plans(3, 3, typical=5))
    assert any("all will be preliminary" in line for line in short)


def test_the_plan_says_of_tails_and_maxima_only_where_there_are_any() -> None:
    typical = describe_detectable(assumed_basis(), plans(8, 20, typical=3))
    assert not any(word in line for line in typical for word in ("tails", "maxima"))
    tails = replace(plans(8, 20, typical=3, tail=1), tail_precision=0.3)
    assert "tails are asked to ± 30 %, typical values to ± 5 %" in describe_detectable(
        assumed_basis(), tails
    )


def test_the_plan_allows_for_looks_and_for_the_twins_boots() -> None:
    def first(basis: Basis, asked: Plans) -> float:
        lines = describe_detectable(basis, asked)
        about_blocks = next(line for line in lines if re.match(r"\d+ blocks: ", line))
        return float(about_blocks.split(": ")[1].split(" %")[0])

    asked = plans(8, 8, typical=11)
    once = first(assumed_basis(), asked)
    assert first(assumed_basis(), replace(asked, blocks=(8, 30), sequential=True)) > 1.1 * once
    assert first(assumed_basis(boots=2), asked) < 0.9 * once
    trimmed = replace(asked, trimmed=True)
    assert 1.05 * once < first(assumed_basis(), trimmed) < 1.25 * once
    assert "verdicts compare trimmed means" in describe_detectable(assumed_basis(), trimmed)[1]
    early = describe_detectable(assumed_basis(), plans(6, 30, typical=30, sequential=True))
    assert early[1] == "6 blocks: none, so early"


@pytest.mark.parametrize(("blocks", "metrics"), [(10, 1), (16, 5)])
def test_plan_of_a_sequential_study_keeps_its_promise(
    monkeypatch: pytest.MonkeyPatch, blocks: int, metrics: int
) -> None:
    """The promised difference is declared by that look in 80 % of studies, or a few more."""
    monkeypatch.setattr(maxt, "DRAWS", 511)
    studies, plan = 60, LookPlan(8, 16)
    spread = 0.03 * math.sqrt(2)
    difference = detectable(spread, blocks, metrics, 0.05, margin=math.log1p(0.02), plan=plan)
    setting = Setting(np.eye(1, metrics) * difference, 0.03, 16)
    found = [
        stopped <= blocks and 0 in declared
        for stopped, declared in stopping_simulations.verdicts(setting, plan, studies)
    ]
    assert 0.8 - 3 * math.sqrt(0.16 / studies) <= np.mean(found) < 0.97


def test_the_twins_boots_narrow_a_pilots_spread_without_being_an_arm(tmp_path: Path) -> None:
    noisy = {arm: value for arm, value in TRUTH.items() if arm != "bare-again"}
    with_twin, without = (
        some(basis_of(load_run(folder_of(tmp_path / name, 0.05, truth=truth)), "the pilot"))
        for name, truth in (("a", TRUTH), ("b", noisy))
    )
    assert with_twin.spread == pytest.approx(0.05 * math.sqrt(1.5), rel=0.15)
    assert without.spread == pytest.approx(0.05 * math.sqrt(2), rel=0.15)


def test_this_hosts_newest_run_of_the_study_is_found_and_nothing_else(tmp_path: Path) -> None:
    old, new = (folder_of(tmp_path / name, 0.01, 2, name) for name in ("old", "new"))
    for folder, when in ((old, 1.0), (new, 2.0)):
        events = folder / "events.jsonl"
        first, *rest = events.read_text().splitlines()
        line = json.loads(first) | {"time": when}
        events.write_text("\n".join([json.dumps(line), *rest]) + "\n")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "events.jsonl").write_text("{not json")
    (tmp_path / "empty").mkdir()
    folders = sorted(tmp_path.iterdir())
    here = {"hostname": "here", "kernel": "9"}
    assert earlier_run(folders, "simulated", here) == new
    assert earlier_run(folders, "simulated", {**here, "cpus": 2}) is None
    assert earlier_run(folders, "other", here) is None


def test_a_pilot_shows_how_far_the_deviations_of_metrics_differ(tmp_path: Path) -> None:
    """Moderated variances give less power where they differ; fewer than three have none."""
    alike = some(basis_of(load_run(folder_of(tmp_path / "a", 0.05, metrics=8)), "the pilot"))
    of = [
        SimulatedMetric(f"m{i}", TRUTH, spreads=(0.01 * 2**i, 0.0), parameters={"n": i})
        for i in range(5)
    ]
    arms = {arm: "qemu" if arm == "qemu-pv" else "bare" for arm in TRUTH}
    folder = write_run(tmp_path / "b", events_of(SimulatedRun(of, arms=arms, blocks=40)))
    apart = some(basis_of(load_run(folder), "the pilot"))
    assert alike.dispersion < 0.1
    assert apart.dispersion == pytest.approx(1.1, rel=0.15)
    found = [detectable(0.04, 8, 11, 0.05, dispersion=each) for each in (0.0, 0.5, 1.1, math.inf)]
    assert found == sorted(set(found))
    few = describe_detectable(assumed_basis(), plans(8, 8, typical=2, tail=9))
    many = describe_detectable(assumed_basis(), plans(8, 8, typical=11))
    assert few[1] != many[1]


@pytest.mark.parametrize(
    ("blocks", "metrics", "studies"),
    [
        (6, 1, 300),
        (6, 11, 200),
        (6, 30, 200),
        (8, 11, 200),
        (8, 30, 200),
        (12, 5, 200),
        (20, 1, 200),
    ],
)
def test_effects_of_the_planned_size_are_declared_with_the_planned_power(
    blocks: int, metrics: int, studies: int
) -> None:
    """Few sign patterns, the margin and correlated blocks all count: 54 to 74 % were declared."""
    margin = math.log1p(0.02)
    difference = detectable(0.03 * math.sqrt(2), blocks, metrics, 0.05, margin=margin)
    truth = sims.lone(math.expm1(difference), metrics=metrics)
    setting = Setting(truth, spread=0.03, blocks=blocks)
    _, declared = sims.shares(setting, sims.first_declared, sims.first_declared, studies)
    assert abs(declared - 0.8) <= 0.03 + 3 * math.sqrt(0.16 / studies)
