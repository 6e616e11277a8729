"""A network cell is withheld if an end was stopped, however long its partner waits."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from run.run_driving import Running, of_type
from run.run_processes import begins, process_next_to, process_of

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="networks need root")
STUDY = """
study: stopped
baseline: bare
blocks: {least: 1, most: 1}
arms:
  bare: {platform: bare}
workloads:
  request-response: {duration: 4s, timeout: 1s}
  connect-request-response: {duration: 4s, timeout: 1s}
  packet-rate: {duration: 4s}
  http-load: {rate: 50, size: 4KiB, connections: 4, duration: 4s, timeout: 1s}
  net-stream: {duration: 4s}
  proxy: {size: 1KiB, most-connections: 8, step: 500ms, duration: 3s, warmup: 100ms}
"""
STOPPED_S = 2.5
"""Longer than the partner's time limit, and than two checks of the machine."""


def stopped(folder: Path, workload: str, role: str, began_s: float = 1.0) -> dict[str, str]:
    """Stop an end in the middle of a cell of a bare machine, and return how the cell ended."""
    (folder / "study.yaml").write_text(STUDY)
    words = ("run", folder / "study.yaml", "--workload", workload, "--out", folder / "run")
    with Running(folder / "run", *words) as run:
        run.wait_for(begins("b001/bare/"))
        time.sleep(began_s)
        process = (process_of if role == "subject" else process_next_to)(
            folder / "run", "bare", role
        )
        os.kill(process, signal.SIGSTOP)
        time.sleep(STOPPED_S)
        os.kill(process, signal.SIGCONT)
        _, output = run.end()
    ends = of_type(folder / "run", "cell_finished")
    assert len(ends) == 1, output
    return dict(ends[0])


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.mark.parametrize("role", ["subject", "peer"])
@pytest.mark.parametrize(
    "workload", ["request-response", "connect-request-response", "packet-rate"]
)
def test_a_stopped_end_withholds_the_cell(tmp_path: Path, workload: str, role: str) -> None:
    ended = stopped(tmp_path, workload, role)
    assert ended["status"] == "withheld", ended["reason"]
    whose = "the machine" if role == "subject" else "the machine of the peer"
    assert ended["reason"].startswith(f"{whose} was stopped for"), ended["reason"]


@pytest.mark.slow
@pytest.mark.boots
@pytest.mark.parametrize("role", ["subject", "peer"])
@pytest.mark.parametrize(
    ("workload", "began_s"), [("http-load", 1.0), ("net-stream", 1.0), ("proxy", 5.0)]
)
def test_a_stopped_end_withholds_the_cell_of_a_program(
    tmp_path: Path, workload: str, role: str, began_s: float
) -> None:
    ended = stopped(tmp_path, workload, role, began_s)
    assert ended["status"] == "withheld", ended["reason"]
    assert "was stopped for" in ended["reason"], ended["reason"]
