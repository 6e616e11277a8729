"""Mistakes on command lines: each ends with one sentence and status 2 before anything starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.analysis_simulate import SimulatedMetric, SimulatedRun, events_of, write_run
from run.run_driving import tare
from tare.events import BlockStarted, EventLog

ROOT = Path(__file__).parents[2]

STUDY = """\
study: slips
baseline: bare
blocks: {least: 2, most: 2}
floors: {latency-median: 50.0e-9}
arms:
  bare: {platform: bare}
workloads:
  switch: {}
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    file = tmp_path / "slips.yaml"
    file.write_text(STUDY)
    return file


def refused(*words: str | Path) -> str:
    done = tare(*map(str, words))
    assert (done.returncode, done.stdout) == (2, ""), done
    assert "Traceback" not in done.stderr
    return done.stderr


def test_a_floor_that_is_about_no_metric_is_refused(study: Path) -> None:
    assert tare("plan", str(study)).returncode == 0
    study.write_text(STUDY.replace("latency-median", "latency-medain"))
    message = refused("plan", study)
    assert (
        f"{study}:4:26: floors.latency-medain: there is no metric 'latency-medain'; did" in message
    )
    assert "did you mean 'latency-median'?" in message


@pytest.mark.parametrize("option", ["--arm", "--workload", "--scenario"])
def test_an_empty_name_does_not_run_everything(study: Path, option: str) -> None:
    assert f"{option} '' has no name in it" in refused("run", study, option, "")


def test_a_missing_pilot_is_refused_before_the_plan_is_printed(study: Path, tmp_path: Path) -> None:
    assert "holds no run" in refused("plan", study, "--pilot", tmp_path / "none")


def test_a_file_of_a_run_is_answered_with_its_folder(tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    events.write_text("")
    assert f"name the run's folder: {tmp_path}" in refused("report", events)


def test_a_run_without_its_first_event_cannot_be_resumed(tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    with EventLog(events) as log:
        log.append(BlockStarted(block=1, order=()))
    message = refused("resume", tmp_path)
    assert f"{events} lacks the run's first event" in message
    assert "tare run STUDY --out FOLDER" in message


def test_an_empty_description_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "web1.xml"
    empty.write_text("\n")
    assert f"{empty}: is empty" in refused("import", empty)


def test_a_history_is_found_by_a_studys_file(study: Path) -> None:
    assert "no complete run of slips is known here" in refused("history", study)
    study.write_text("study: [a]\n")
    assert "names no study" in refused("history", study)


def test_a_platform_and_an_option_to_certify_are_suggested() -> None:
    assert "did you mean 'qemu'?" in refused("certify", "qmeu")
    wrong = refused("certify", "qemu", "--set", "accelerater=kvm", "--dry-run")
    assert "qemu has no option accelerater; did you mean 'accelerator'?" in wrong


@pytest.mark.parametrize("argv", [["-m", "tare"], [str(ROOT / "wheel" / "scripts" / "tare")]])
def test_ctrl_c_while_the_code_is_loaded_shows_no_traceback(
    tmp_path: Path, argv: list[str]
) -> None:
    wait = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(20)\n"
    (tmp_path / "typer.py").write_text(wait)
    found = os.pathsep.join([str(tmp_path), str(ROOT / "src")])
    done = subprocess.run(
        [sys.executable, *argv, "doctor"],
        env={**os.environ, "PYTHONPATH": found},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_a_comparison_in_the_terminal_says_that_a_run_has_not_ended(tmp_path: Path) -> None:
    metric = SimulatedMetric("latency", {"bare": 1e-6, "box": 2e-6}, unit="s", workload="switch")
    arms = {"bare": "bare", "box": "oci"}
    runs = [
        events_of(SimulatedRun([metric], arms=arms, blocks=6, seed=seed, run=f"r{seed}"))
        for seed in (1, 2)
    ]
    ended = write_run(tmp_path / "ended", runs[0])
    cut = write_run(tmp_path / "cut", [each for each in runs[1] if each.type != "run_finished"])
    done = tare("compare", str(ended), str(cut))
    assert done.returncode == 0, done.stderr
    assert "Note: The second run is not complete." in done.stdout
