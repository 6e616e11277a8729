"""A run continues after the reader of its output ends, and still stops on request."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from run.run_driving import TARE, Running, assert_no_ledger_is_left, of_type, tare

STUDY = """
study: unread
baseline: bare
blocks: {{least: 2, most: 2}}
arms:
  bare: {{platform: bare}}
  nice: {{platform: bare, scheduling: {{nice: 5}}}}
workloads:
  numeric-sort: {{duration: {duration}}}
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def started(home: Path, duration: str) -> Running:
    """Begin a run, and read no more of it than its first line."""
    file = home / "study.yaml"
    file.write_text(STUDY.format(duration=duration))
    running = Running(home / "run", "run", file, "--out", home / "run")
    assert running.process.stdout is not None
    assert running.process.stdout.readline()
    running.process.stdout.close()
    return running


def test_run_continues_to_its_end(home: Path) -> None:
    with started(home, "300ms") as running:
        assert running.process.wait(120) == 0
    assert [each["status"] for each in of_type(home / "run", "run_finished")] == ["complete"]
    assert len(of_type(home / "run", "cell_finished")) == 4
    assert_no_ledger_is_left(home)


def test_a_run_stops_when_it_is_asked_to(home: Path) -> None:
    with started(home, "60s") as running:
        running.wait_for(lambda event: event["type"] == "cell_started")
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(30) == 130
    assert of_type(home / "run", "interrupted")
    assert_no_ledger_is_left(home)


def test_the_status_of_a_gate_does_not_depend_on_its_reader(home: Path) -> None:
    file = home / "study.yaml"
    file.write_text(STUDY.format(duration="100ms"))
    for name in ("before", "after"):
        assert tare("run", file, "--out", home / name).returncode == 0
    gate = ["--gate", "numeric-sort rate > -99 %"]
    result = tare("compare", home / "before", home / "after", *gate)
    assert result.returncode in (0, 3), result.stderr
    with subprocess.Popen(
        [TARE, "compare", home / "before", home / "after", *gate], stdout=subprocess.PIPE
    ) as unread:
        assert unread.stdout is not None
        unread.stdout.close()
        assert unread.wait(60) == result.returncode
