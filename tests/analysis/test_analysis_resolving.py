"""What a plan says of the differences that a study can tell."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from analysis.analysis_simulate import SimulatedMetric, SimulatedRun, events_of, some, write_run
from tare.analysis import load_run
from tare.analysis.resolving import assumed_basis, basis_of, earlier_run, told

TRUTH = {"bare": 1.0, "bare-again": 1.0, "qemu-pv": 1.2}


def folder_of(
    place: Path, spread: float, blocks: int = 40, run: str = "r1", metrics: int = 3
) -> Path:
    of = [SimulatedMetric(f"m{i}", TRUTH, spreads=(spread, 0.0)) for i in range(metrics)]
    return write_run(place, events_of(SimulatedRun(of, blocks=blocks, run=run)))


def test_a_pilot_tells_how_far_boots_differ(tmp_path: Path) -> None:
    basis = some(basis_of(load_run(folder_of(tmp_path / "a", 0.05)), "the pilot"))
    assert basis.spread == pytest.approx(0.05 * math.sqrt(2), rel=0.25)
    assert basis.worst >= basis.spread
    assert basis.tests == 3
    assert basis_of(load_run(folder_of(tmp_path / "b", 0.05, blocks=2)), "the pilot") is None


def test_the_plan_says_what_it_goes_by_and_what_it_cannot_resolve() -> None:
    said = told(assumed_basis(30), (8, 20), 0.02)
    assert "assumed variation of 3 %" in said[0]
    assert said[1].startswith("8 blocks: 9.6 % in the typical headline metric (80 % power over 30")
    assert any("cannot resolve the margin of 2 %" in line for line in said)
    assert not any("cannot resolve" in line for line in told(assumed_basis(5), (8, 60), 0.05))
    assert any("all will be preliminary" in line for line in told(assumed_basis(5), (3, 3), 0.02))
    assert any("maxima" in line for line in said)


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
