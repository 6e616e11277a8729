"""A run that measures an existing machine: nothing stays in it, and the report describes it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from hosts.hosts_sshd import Sshd, serving
from run.run_driving import (
    Running,
    assert_no_ledger_is_left,
    assert_no_process_is_left,
    of_type,
    tare,
)

pytestmark = [pytest.mark.slow, pytest.mark.boots]
STUDY = """
study: my-vm
baseline: bare
blocks: {{least: 2, most: 2, every: 1s}}
shape: {{vcpus: 1, memory: 64MiB}}
arms:
  bare: {{platform: bare}}
  vm: {{platform: ssh, {reached}, folder: {folder}}}
scenarios:
  alone: {{}}
  pinned: {{subject: {{cpus: pinned}}}}
workloads:
  numeric-sort: {{duration: 300ms}}
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sshd]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with serving(tmp_path / "sshd") as server:
        yield server


def test_killed_run_leaves_nothing_in_the_machine_and_resumes(server: Sshd, tmp_path: Path) -> None:
    study, folder = tmp_path / "vm.yaml", tmp_path / "run"
    study.write_text(STUDY.format(reached=server.in_a_study(), folder=server.folder))
    with Running(folder, "run", study, "--out", folder) as running:
        running.wait_for(lambda e: e["type"] == "cell_started" and "/vm/" in e["cell"])
        os.kill(running.process.pid, signal.SIGKILL)
        running.end()
    cleaned = tare("clean")
    assert cleaned.returncode == 0, cleaned.stdout + cleaned.stderr
    assert "tare-agent" in cleaned.stdout
    assert not list(server.folder.glob("tare-*"))
    resumed = tare("resume", folder)
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert not list(server.folder.glob("tare-*"))
    assert_no_process_is_left(folder)
    assert_no_ledger_is_left(tmp_path)
    cells = of_type(folder, "cell_finished")
    assert {cell["status"] for cell in cells} == {"ok"}
    skipped = {(e["scenario"], e["workload"]): e["reason"] for e in of_type(folder, "skipped")}
    assert "cannot do here" in skipped["pinned", None]
    page = (folder / "report.html").read_text()
    for words in ("Machines that exist", "boots were not varied", "steal: "):
        assert words in page
    text = (folder / "events.jsonl").read_text()
    assert "PRIVATE KEY" not in text
