"""A run ended hard by a second Ctrl-C leaves nothing: a process of its own removes the rest."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from deadlines import patient
from processes import of_state
from run.run_driving import Running, events, tare
from run.run_processes import begins
from tare.hosts import Ledger
from tare.hosts.ledger.ledger import all_ledgers, ledger_path
from tare.hosts.lock import host_lock

STUDY = """
study: given-up
baseline: bare
blocks: {least: 1, most: 1}
arms:
  bare: {platform: bare}
workloads:
  request-response: {duration: 60s}
"""
HANGS = """#!/bin/sh
while [ -e HANG ]; do sleep 0.2; done
exec IP "$@"
"""
"""Instead of ip(8): once a file is there, nothing of a network can be removed, nor asked."""


@pytest.fixture
def hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file that lets ip(8) hang while it is there."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    flag, program = tmp_path / "hang", tmp_path / "bin" / "ip"
    program.parent.mkdir()
    program.write_text(HANGS.replace("HANG", str(flag)).replace("IP", str(shutil.which("ip"))))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return flag


def networks(run: str) -> list[str]:
    """Return the interfaces and network namespaces that name a run."""
    shown = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    spaces = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    return [line for line in (shown + spaces).splitlines() if "tare-" in line and run in line]


@pytest.mark.skipif(os.geteuid() != 0, reason="networks need root")
@pytest.mark.skipif(not shutil.which("ip"), reason="iproute2 is not installed")
def test_nothing_is_left_soon_after_a_run_that_was_ended_hard(tmp_path: Path, hang: Path) -> None:
    (tmp_path / "study.yaml").write_text(STUDY)
    folder, others = tmp_path / "run", tmp_path / "tare-of-another-run"
    others.mkdir()
    with Ledger(ledger_path("another")) as alive:
        alive.record("directory", path=str(others))
        with Running(folder, "run", tmp_path / "study.yaml", "--out", folder) as run:
            run.wait_for(begins("b001/bare/"))
            time.sleep(1.0)
            hang.touch()
            run.process.send_signal(signal.SIGINT)
            time.sleep(0.5)
            began = time.monotonic()
            run.process.send_signal(signal.SIGINT)
            status, output = run.end()
            assert time.monotonic() - began < 5.5, output
        number = str(events(folder)[0]["run"])
        assert status == 130, output
        assert f"tare resume {folder}" in output and "clean.log" in output
        assert any(number in path.stem for path in all_ledgers())
        hang.unlink()
        deadline = time.monotonic() + patient(60)
        while of_state(tmp_path) and time.monotonic() < deadline:
            time.sleep(0.2)
        log = (folder / "clean.log").read_text()
        assert of_state(tmp_path) == [], log
        assert "removed" in log and "left" not in log.splitlines()[-1], log
        assert [path.stem for path in all_ledgers()] == ["another"], log
        assert networks(number) == []
        assert not list(Path("/tmp").glob(f"tare-{number}*"))
        assert others.is_dir() and len(alive.open_entries()) == 1


def test_a_clean_up_waits_for_a_run_no_longer_than_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TARE_LOCKS", str(tmp_path / "locks"))
    with host_lock("other"):
        done = tare("clean", "--within", "1s")
        assert done.returncode != 0, done.stdout
        assert "gave up after 1s" in done.stdout or "is in progress" in done.stderr
    done = tare("clean", "--within", "60s")
    assert done.returncode == 0 and done.stdout == "clean\n", done.stderr
    wrong = tare("clean", "--within", "soon")
    assert wrong.returncode == 2 and "--within: 'soon' is not a quantity" in wrong.stderr
