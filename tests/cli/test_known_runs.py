"""``tare history STUDY``: runs are found by their study's name, where they ended."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import typer

from analysis.analysis_simulate import SimulatedMetric, SimulatedRun, events_of, write_run
from run.run_driving import tare
from tare.cli.ending import end
from tare.events import read_fold
from tare.run.lifecycle.known_runs import (
    KnownRun,
    is_there,
    keep_run,
    known_runs,
    known_runs_file,
    names_of_hosts,
)

STUDY = "simulated"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def a_run(place: Path, number: int) -> Path:
    truth = {"bare": 1.0, "vm": 1.2}
    metric = SimulatedMetric("latency", truth, workload="switch", spreads=(0.01, 0.0))
    simulated = SimulatedRun(
        [metric], arms={"bare": "bare", "vm": "qemu"}, seed=number, run=f"r{number}"
    )
    return write_run(place / f"r{number}", events_of(simulated))


def known(number: int, folder: Path, host: str = "local", status: str = "complete") -> KnownRun:
    return KnownRun(f"r{number}", STUDY, (host,), float(number), status, folder)


@pytest.mark.slow
@pytest.mark.boots
def test_a_studys_runs_are_found_by_its_name_and_host(tmp_path: Path) -> None:
    folders = [a_run(tmp_path / "runs", number) for number in range(9)]
    for number, folder in enumerate(folders[:8]):
        keep_run(known(number, folder))
    keep_run(known(8, folders[8], "xen1"))
    keep_run(known(21, tmp_path / "none", status="failed"))
    done = tare("history", STUDY)
    assert done.returncode == 2
    assert f"the runs of {STUDY} were on several hosts: 8 on local; 1 on xen1" in done.stderr
    history = tare("history", STUDY, "--host", "local", "--format", "json")
    assert history.returncode == 0, history.stderr
    assert json.loads(history.stdout)["runs"] == [f"r{number}" for number in range(8)]
    shutil.rmtree(folders[0])
    history = tare("history", STUDY, "--host", "local")
    assert f"folders of runs of {STUDY} that are gone or hold other runs: 1" in history.stderr
    assert "no complete run of other is known here" in tare("history", "other").stderr


def test_a_folder_that_holds_another_run_by_now_is_not_taken_for_the_one_before(
    tmp_path: Path,
) -> None:
    folder = a_run(tmp_path / "runs", 2)
    # The folder of r1 was removed, and r2 written there.
    keep_run(known(1, folder))
    keep_run(known(2, folder))
    assert [is_there(run) for run in known_runs(STUDY)] == [False, True]
    done = tare("history", STUDY)
    # It is one run, and not the same one twice.
    assert "one run has no history" in done.stderr, done
    assert f"folders of runs of {STUDY} that are gone or hold other runs: 1" in done.stderr
    (folder / "events.jsonl").write_bytes(b"\xff\n")
    assert not any(is_there(run) for run in known_runs(STUDY))


def test_a_finished_run_is_noted_once_and_damaged_lines_are_skipped(tmp_path: Path) -> None:
    folder = a_run(tmp_path, 1)
    finished = read_fold(folder / "events.jsonl").ended
    assert finished is not None
    for _ in range(2):
        try:
            end(folder, finished)
        except typer.Exit as status:
            assert status.exit_code in (0, 1)
        with known_runs_file().open("ab") as file:
            file.write(b'{"run": 1\n\xff\n')
    (run,) = known_runs(STUDY)
    assert (run.run, run.folder, run.hosts) == ("r1", folder, ("local",))
    assert known_runs_file().stat().st_mode & 0o777 == 0o600


def test_hosts_are_named_as_a_study_names_them() -> None:
    assert names_of_hosts({"kernel": "6.1"}) == ("local",)
    assert names_of_hosts({"name": "xen1", "kernel": "6.1"}) == ("xen1",)
    assert names_of_hosts({"kernel": "6.1", "lab": {"cpus": 1}}) == ("lab",)
    assert names_of_hosts({"b": {"kernel": "6.1"}, "a": {}}) == ("a", "b")
