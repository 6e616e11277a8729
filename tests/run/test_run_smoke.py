"""A run of one block: it shows whether everything works, and judges nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from study.study_catalog import CATALOG
from tare.analysis.data.load import load_run
from tare.analysis.effects.compare import compare
from tare.study.reading.changes import Changes
from tare.study.reading.load import parse_study
from tare.study.reading.shipped import find_study, shipped_studies

WORDS = "smoke run of 1 block"


@pytest.mark.parametrize("blocks", [1, 2, 7, 40])
def test_so_many_blocks_are_planned_as_are_asked_for(blocks: int) -> None:
    text = b"study: s\nbaseline: bare\narms: {bare: {platform: bare}}\nworkloads: {tick: {}}\n"
    study = parse_study(text, "s.yaml", CATALOG, Changes(blocks=blocks))
    assert (study.blocks.least, study.blocks.most) == (blocks, blocks)
    assert any(WORDS in warning for warning in study.warnings) == (blocks == 1)


@pytest.mark.parametrize("name", ["quick"])
def test_a_smoke_run_says_so_everywhere_and_gives_no_verdict(name: str, tmp_path: Path) -> None:
    study = find_study(shipped_studies()[name])
    environment = {
        **os.environ,
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "TARE_LOCKS": str(tmp_path / "locks"),
    }
    only = ["--arm", "bare,bare-again", "--workload", "switch", "--blocks", "1"]
    call = [sys.executable, "-m", "tare"]
    out = tmp_path / "run"

    def output_of(*words: str) -> str:
        done = subprocess.run(
            [*call, *words], capture_output=True, text=True, env=environment, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert WORDS in output_of("plan", str(study), *only)
    assert f"this was a {WORDS}" in output_of("run", str(study), *only, "--out", str(out))
    page = (out / "report.html").read_text()
    assert f"A {WORDS}" in page
    found = compare(load_run(out))
    assert {effect.verdict for effect in (*found.effects, *found.aa)} == {"preliminary"}
