"""A neighbour, or the other end of a network, that is stopped in mid cell withholds the cell."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

from run.run_driving import Running, of_type
from run.run_processes import begins, process_next_to, process_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.acceptance,
    pytest.mark.guest,
    pytest.mark.skipif(os.geteuid() != 0, reason="networks need root"),
]
STUDY = """
study: stopped
baseline: bare
blocks: {least: 2, most: 2}
shape: {vcpus: 1, memory: 256MiB}
arms:
  bare: {platform: bare}
  oci: {platform: oci}
  guest: {platform: qemu, accelerator: tcg}
scenarios:
  alone: {}
  loaded: {neighbours: [{load: cpu-load}]}
workloads:
  numeric-sort: {duration: 6s, scenarios: [loaded]}
  http-load: {rate: 50, size: 4KiB, connections: 8, duration: 6s, warmup: 200ms, scenarios: [alone]}
"""
STOPPED_S = 3.0


@pytest.mark.parametrize("arm", ["bare", "oci", "guest"])
@pytest.mark.parametrize(
    ("role", "work"), [("neighbour-1", "loaded/numeric-sort"), ("peer", "alone/http-load")]
)
def test_stopped_neighbour_or_peer_withholds_the_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str, work: str, arm: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "study.yaml").write_text(STUDY)
    folder = tmp_path / "run"
    workload = work.partition("/")[2]
    words = ("run", tmp_path / "study.yaml", "--arm", f"bare,{arm}", "--workload", workload)
    with Running(folder, *words, "--out", folder) as run:
        run.wait_for(begins(f"b001/{arm}/{work}"))
        time.sleep(1.5)
        named = process_next_to if role == "peer" else process_of
        process = named(folder, arm, role)
        os.kill(process, signal.SIGSTOP)
        time.sleep(STOPPED_S)
        os.kill(process, signal.SIGCONT)
        _, output = run.end(limit_s=300)
    ends = {cell["cell"].partition("[")[0]: cell for cell in of_type(folder, "cell_finished")}
    marked = ends.pop(f"b001/{arm}/{work}")
    assert marked["status"] in ("withheld", "failed"), output
    assert re.search(f"{role} (stalled|was stopped)", marked["reason"]), marked["reason"]
    assert {cell["status"] for cell in ends.values()} == {"ok"}, output
