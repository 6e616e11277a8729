"""Gates with the exit statuses that ``git bisect run`` expects."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest
import typer

from analysis.analysis_simulate import SimulatedMetric, SimulatedRun, events_of, write_run
from run.run_driving import TARE, tare
from tare.cli.compare import compare

GATE = "switch latency < +3 %"
COMMITS = 6
GUILTY = 4
"""The first commit of the longer path."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs")
    for number in range(COMMITS):
        one_run(place, number, 1.1 if number >= GUILTY else 1.0, 0.002)
    return place


def one_run(place: Path, number: int, slower: float, spread: float) -> Path:
    truth = {"bare": 1.0, "vm": 2.0 * slower}
    metric = SimulatedMetric("latency", truth, workload="switch", spreads=(spread, 0.0))
    simulated = SimulatedRun(
        [metric], arms={"bare": "bare", "vm": "xen"}, seed=number, run=f"r{number}"
    )
    return write_run(place / f"r{number}", events_of(simulated))


@pytest.mark.slow
@pytest.mark.boots
def test_the_guilty_commit_is_found(runs: Path, tmp_path: Path) -> None:
    def git(*words: str) -> str:
        own = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@t"}
        own |= {"GIT_COMMITTER_NAME": "t", "GIT_COMMITTER_EMAIL": "t@t"}
        done = subprocess.run(
            ["git", "-C", tmp_path, *words],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, **own},
        )
        return done.stdout

    git("init", "--quiet")
    for number in range(COMMITS):
        (tmp_path / "version").write_text(str(number))
        git("add", "version")
        git("commit", "--quiet", "-m", f"commit {number}")
    git("bisect", "start", "HEAD", f"HEAD~{COMMITS - 1}")
    words = (TARE, "compare", runs / "r0", "--gate", GATE, "--bisect")
    command = f"{shlex.join(map(str, words))} {shlex.quote(str(runs))}/r$(cat version)"
    bisected = git("bisect", "run", "sh", "-c", command)
    assert f"commit {GUILTY}" in bisected.split("is the first bad commit")[1], bisected


def test_open_gates_skip_a_commit_and_incomparable_runs_end_the_search(
    runs: Path, tmp_path: Path
) -> None:
    noisy = one_run(tmp_path, 9, 1.03, 0.05)
    found = [
        tare("compare", runs / "r0", other, *more).returncode
        for other, more in (
            (noisy, ("--gate", GATE, "--bisect")),
            (noisy, ("--gate", GATE)),
            (tmp_path / "none", ("--gate", GATE, "--bisect")),
            (noisy, ("--bisect",)),
        )
    ]
    assert found == [125, 3, 128, 128]


def test_a_typing_mistake_does_not_mark_a_commit_as_bad(runs: Path) -> None:
    words = ("compare", runs / "r0", runs / "r1", "--gate", GATE, "--flor", "latency=1 %")
    # git takes 2 for bad, as it takes all below 128 but 125.
    assert tare(*words, "--bisect").returncode == 128
    assert tare(*words).returncode == 2


def test_a_mistake_of_tares_own_calls_no_commit_bad(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def mistaken(*_: object) -> None:
        raise KeyError("a mistake")

    monkeypatch.setattr("tare.cli.compare._compare", mistaken)
    both = [runs / "r0", runs / "r1"]
    with pytest.raises(typer.Exit) as ended:
        compare(both, gate=[GATE], bisect=True)
    assert ended.value.exit_code == 128
    assert "KeyError: 'a mistake'" in capsys.readouterr().err
    with pytest.raises(KeyError):
        compare(both, gate=[GATE])
