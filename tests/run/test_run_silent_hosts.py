"""Hosts and machines that fall silent: a run still stops on request, and names its leftovers."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deadlines import patient
from hosts.hosts_sshd import Sshd, keepers, serving
from processes import agents_of
from run.run_driving import Running, assert_no_ledger_is_left, assert_no_process_is_left, tare
from run.test_run_ssh import under_way, written

pytestmark = [pytest.mark.slow, pytest.mark.boots]
STOPPED = """
study: stopped
baseline: bare
blocks: {least: 2, most: 2}
shape: {vcpus: 1, memory: 128MiB}
arms:
  bare: {platform: bare}
scenarios:
  contended:
    subject: {cpus: pinned}
    neighbours: [{load: cpu-load, cpus: same}, {load: cpu-load, cpus: same}]
workloads:
  numeric-sort: {duration: 60s}
"""
SOON_S = 60
"""Ten seconds of silence, ten more of waiting, and the report; it was more than seven minutes."""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sshd]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with serving(tmp_path / "sshd") as server:
        yield server


@pytest.mark.parametrize(
    ("asked", "patience", "waited"),
    [
        pytest.param(
            *((signal.SIGTERM,), "5min", "3 s"), id="sigterm", marks=pytest.mark.acceptance
        ),
        pytest.param((signal.SIGINT, signal.SIGINT), "5min", "3 s", id="ctrl-c-twice"),
        # Once, it is the cell that decides how long the host is waited for.
        pytest.param((signal.SIGINT,), "5s", "5 s", id="ctrl-c", marks=pytest.mark.acceptance),
    ],
)
def test_a_run_whose_host_vanished_stops_soon_and_names_what_clears_up(
    server: Sshd, tmp_path: Path, asked: tuple[signal.Signals, ...], patience: str, waited: str
) -> None:
    folder = tmp_path / "run"
    study = written(server, tmp_path, duration="60s")
    study.write_text(study.read_text().replace("patience: 5s", f"patience: {patience}"))
    with Running(folder, "run", study, "--out", folder) as running:
        running.wait_for(under_way)
        server.freeze()
        began = time.monotonic()
        for number in asked:
            running.process.send_signal(number)
            time.sleep(0.5)
        status, output = running.end(SOON_S * 4)
    took_s = time.monotonic() - began
    assert status == 130, output
    assert took_s < patient(SOON_S), output
    name = f"127.0.0.1:{server.port}"
    last = output.splitlines()[-1]
    # The second Ctrl-C ends a run within 5 s, on a busy computer before it has given the host up.
    in_background = len(asked) == 2 and "the rest is removed in the background" in output
    if not in_background:
        assert f"did not come back within {waited}" in output
        assert name in last
        assert last.endswith(f": tare clean; to resume: tare resume {folder}")
    server.thaw()
    if in_background:
        ledgers, deadline = tmp_path / "state" / "tare" / "ledgers", time.monotonic() + patient(90)
        while any(ledgers.glob("*.jsonl")) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert name in (folder / "clean.log").read_text()
    else:
        cleaned = tare("clean")
        assert cleaned.returncode == 0, cleaned.stderr
        assert name in cleaned.stdout
    assert_no_process_is_left(folder)
    assert_no_ledger_is_left(tmp_path)


def test_a_run_that_is_stopped_before_it_measures_leaves_nothing(
    server: Sshd, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    lock = server.folder / "locks" / "tare-host.lock"
    with Running(folder, "run", written(server, tmp_path), "--out", folder) as running:
        deadline = time.monotonic() + patient(60)
        while not (lock.exists() and lock.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        running.process.send_signal(signal.SIGTERM)
        status, output = running.end(SOON_S)
    assert status == 130, output
    assert "Traceback" not in output
    assert not keepers(server)
    assert_no_ledger_is_left(tmp_path)


def test_a_run_whose_machines_stand_still_stops_soon_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder, study = tmp_path / "run", tmp_path / "study.yaml"
    study.write_text(STOPPED)
    with Running(folder, "run", study, "--out", folder) as running:
        running.wait_for(under_way)
        time.sleep(2)
        agents = agents_of(running.process.pid)
        assert len(agents) >= 3
        for agent in agents:
            os.kill(agent, signal.SIGSTOP)
        began = time.monotonic()
        running.process.send_signal(signal.SIGTERM)
        status, output = running.end(SOON_S * 4)
    assert status == 130, output
    # Each of four agents was waited for in turn, for half a minute.
    assert time.monotonic() - began < min(patient(SOON_S), 110), output
    assert not [agent for agent in agents if Path(f"/proc/{agent}").exists()]
    assert_no_process_is_left(folder)
    assert_no_ledger_is_left(tmp_path)
