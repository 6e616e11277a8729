"""A backend that answers wrongly behind a real HAProxy, and a machine that reboots meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from run.run_driving import assert_no_ledger_is_left, of_type

STUDY = """
study: wrongly-answered
baseline: bare
blocks: {least: 2, most: 2}
shape: {vcpus: 1, memory: 128MiB}
arms: {bare: {platform: bare}}
scenarios:
  proxied: {subject: {cpus: pinned}}
workloads:
  proxy: {size: 5000B, most-connections: 4, step: 500ms, duration: 3s, warmup: 100ms}
"""
WRONG_ORIGIN = """
import sys
from tare.workloads.network import nginx
from tare.workloads.network.proxy import workload
parts = 'split_clients "$request_id" $answer {{ 0.2% /short; 0.2% /none; * /file; }}'
chosen = "location /file {{ try_files $answer =404; }}"
for before, words in (("    server {{", parts), ("        root", chosen)):
    assert before in nginx.CONFIGURATION
    nginx.CONFIGURATION = nginx.CONFIGURATION.replace(before, words + before)
original = workload.nginx
def wrong(size, *more):
    end = original(size, *more)
    end.params["filled"][f"{nginx.FOLDER}/files/short"] = size - 2000
    return end
workload.nginx = wrong
from tare.cli.main import main
sys.exit(main())
"""
"""Tare with another origin: two in a thousand of its answers are too short and two are missing.

So few, as a load whose very first requests are answered wrongly fails at once.
"""


def run_study(program: str, study: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a study by a program that changes something of Tare first."""
    file = folder / "study.yaml"
    file.write_text(study)
    words = (sys.executable, "-c", program, "run", str(file), "--out", str(folder / "run"))
    return subprocess.run(words, capture_output=True, text=True, timeout=580, check=False)


@pytest.mark.slow
@pytest.mark.acceptance
@pytest.mark.skipif(os.geteuid() != 0, reason="networks need root")
def test_a_backend_that_answers_with_a_wrong_length_or_status_is_named_with_its_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    done = run_study(WRONG_ORIGIN, STUDY, tmp_path)
    cells = of_type(tmp_path / "run", "cell_finished")
    good = [cell for cell in cells if cell["status"] == "ok"]
    assert good, done.stdout + done.stderr
    facts = good[0]["facts"]["proxy"]
    seen = {
        (each["what"], each["stage"]): each["count"]
        for each in facts["faults"]
        if each["where"] == "client"
    }
    through = ("proxied-4", "at-50", "at-70", "at-90", "full")
    for what in ("wrong_length", "wrong_status"):
        counts = [seen.get((what, stage), 0) for stage in through]
        assert sum(counts) > 0
        assert counts == [facts["errors"][stage][what] for stage in through]
    # HAProxy passed them on: it has no fault of its own to report.
    assert {each["where"] for each in facts["faults"]} == {"client"}
    values = {
        each["metric"]: each["value"]
        for each in of_type(tmp_path / "run", "observation")
        if each["cell"] == good[0]["cell"]
    }
    assert values["failed-share"] < 0.05
    assert any("wrong length" in text for text in good[0]["warnings"])
    assert_no_ledger_is_left(tmp_path)


GUEST = """
study: rebooted
baseline: tcg
blocks: {least: 2, most: 2}
shape: {vcpus: 1, memory: 256MiB}
arms: {tcg: {platform: qemu, accelerator: tcg}}
scenarios:
  proxied: {subject: {cpus: pinned}}
workloads:
  proxy: {size: 0B, most-connections: 4, step: 2s, duration: 5s, warmup: 100ms}
"""
REBOOTING = """
import sys
from tare.workloads.network.proxy import workload
original = workload.haproxy
def rebooting(*given):
    end = original(*given)
    later = "(sleep 8; echo b > /proc/sysrq-trigger) & exec "
    end.params["argv"] = ["sh", "-c", later + " ".join(end.params["argv"])]
    return end
workload.haproxy = rebooting
from tare.cli.main import main
sys.exit(main())
"""
"""Tare with a machine that reboots some seconds after the start of its HAProxy."""


@pytest.mark.slow
@pytest.mark.guest
@pytest.mark.acceptance
@pytest.mark.skipif(os.geteuid() != 0, reason="networks need root")
def test_a_machine_that_reboots_while_requests_go_through_it_fails_its_cells_by_that_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    done, folder = run_study(REBOOTING, GUEST, tmp_path), tmp_path / "run"
    assert done.returncode == 1, done.stdout + done.stderr
    ended = of_type(folder, "cell_finished")
    assert {cell["status"] for cell in ended} == {"failed"}
    assert all("the guest restarted itself" in cell["reason"] for cell in ended)
    (event,) = of_type(folder, "run_finished")
    (reason,) = event["reasons"].items()
    assert "the guest restarted itself" in reason[0]
    assert reason[1] == len({cell["cell"] for cell in ended})
    assert_no_ledger_is_left(tmp_path)
