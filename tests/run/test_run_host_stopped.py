"""A subject that a signal stops is reported as stopped, not as waiting for a platform."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from deadlines import patient
from run.run_driving import Event, Running, of_type
from tare.analysis.data.load import load_runs
from tare.analysis.topics.host_track import STOPPED
from tare.analysis.topics.spike_cells import spike_cells

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="tracing the kernel needs root"),
]

STUDY = """
study: stopped
baseline: bare
blocks: {least: 2, most: 2}
arms:
  bare: {platform: bare, host-trace: true}
workloads:
  tick: {duration: 3s}
"""
STOP_S = 0.2


def test_stopped_subject_is_reported_as_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "study.yaml").write_text(STUDY)
    folder = tmp_path / "run"
    stopped_ns = []
    with Running(folder, "run", tmp_path / "study.yaml", "--out", folder) as run:
        for block in (1, 2):
            run.wait_for(partial(begins_in, block))
            thread = measuring_thread(run.process.pid)
            # The recorder is at work from the start barrier on, and the loop long after it.
            time.sleep(1)
            stopped_ns.append(stop(thread))
        code, output = run.end()
    assert code == 0, output
    finished = of_type(folder, "cell_finished")
    assert [(cell["status"], cell["reason"]) for cell in finished] == [("ok", "")] * 2
    recorded = finished[0]["facts"]["host_trace"]
    if not recorded["recorded"]:
        pytest.skip(recorded["reason"])
    cells = list(spike_cells(load_runs([folder])))
    for cell, least_ns in zip(cells, stopped_ns, strict=True):
        longest = max(cell.spikes, key=lambda spike: spike.excess_ns)
        assert longest.cause == STOPPED
        assert dict(longest.parts)[STOPPED] >= least_ns


def begins_in(block: int, event: Event) -> bool:
    return bool(event["type"] == "cell_started" and event["block"] == block)


def measuring_thread(ancestor: int, limit_s: float = 30) -> Path:
    """Return the thread ``tare-tick`` of a process below ``ancestor``, once there is one."""
    deadline = time.monotonic() + patient(limit_s)
    while time.monotonic() < deadline:
        for thread in Path("/proc").glob("[0-9]*/task/[0-9]*"):
            with suppress(OSError):
                named = (thread / "comm").read_text().strip()
                if named == "tare-tick" and descends(int(thread.parts[2]), ancestor):
                    return thread
        time.sleep(0.05)
    raise AssertionError("no thread measures")


def descends(process: int, ancestor: int) -> bool:
    while process > 1:
        if process == ancestor:
            return True
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    return False


def stop(thread: Path) -> int:
    """Stop the thread's process, and return for how long it was stopped at least, in ns."""
    process = int(thread.parts[2])
    os.kill(process, signal.SIGSTOP)
    try:
        while (thread / "stat").read_text().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.001)
        since = time.monotonic_ns()
        time.sleep(STOP_S)
        return time.monotonic_ns() - since
    finally:
        os.kill(process, signal.SIGCONT)
