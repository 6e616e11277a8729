"""A host afar that falls silent while a run is to stop: it stops soon, and says what clears up."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hosts.hosts_sshd import Sshd
from run.run_driving import Running, assert_no_ledger_is_left, assert_no_process_is_left, tare
from run.test_run_ssh import under_way, written

pytestmark = pytest.mark.slow
SOON_S = 60
"""Ten seconds of silence, ten more of waiting, and the report; it was more than seven minutes."""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sshd]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "sshd").mkdir()
    server = Sshd(tmp_path / "sshd")
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param((signal.SIGTERM,), id="sigterm"),
        pytest.param((signal.SIGINT, signal.SIGINT), id="ctrl-c-twice"),
    ],
)
def test_a_run_whose_host_vanished_stops_soon_and_names_what_clears_up(
    server: Sshd, tmp_path: Path, asked: tuple[signal.Signals, ...]
) -> None:
    folder = tmp_path / "run"
    study = written(server, tmp_path, duration="60s")
    study.write_text(study.read_text().replace("patience: 5s", "patience: 5min"))
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
    assert took_s < SOON_S, output
    name = f"127.0.0.1:{server.port}"
    assert "did not come back within 10 s" in output
    last = output.splitlines()[-1]
    assert name in last
    assert last.endswith(f"goes with: tare clean; go on with: tare resume {folder}")
    server.thaw()
    cleaned = tare("clean")
    assert cleaned.returncode == 0, cleaned.stderr
    assert name in cleaned.stdout
    assert_no_process_is_left(folder)
    assert_no_ledger_is_left(tmp_path)
