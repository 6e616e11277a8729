"""KVM against Xen, with a cluster whose master and slave are guests of two labs."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from run.run_clusters import NEEDS
from run.run_driving import Running, assert_no_ledger_is_left, assert_no_process_is_left, of_type

pytestmark = [*NEEDS, pytest.mark.acceptance, pytest.mark.guest]
BLOCK_S = 12_000
"""Of one block, which takes some two hours; so the second one is not waited for."""
STOP_S = 600
# With two CPUs a lab's kernel or its guest of KVM falls while Hadoop starts (docs/lab.md).
STUDY = """
study: labs
baseline: kvm
blocks: {least: 2, most: 2}
hosts: {here: lab, there: lab}
lab: {cpus: 1, memory: 3GiB}
shape: {vcpus: 1, memory: 1GiB, disk: 1GiB}
arms:
  kvm: {platform: qemu, accelerator: kvm, on: here}
  xen: {platform: xen, type: pvh, on: here}
scenarios:
  apart: {cluster: {slaves: 1, tasks: 1, hosts: [there]}}
workloads:
  wordcount: {copies: 1, deadline: 2h}
"""


@pytest.mark.timeout(BLOCK_S + STOP_S + 100)
def test_words_are_counted_under_kvm_and_xen_over_two_labs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    study, folder = tmp_path / "labs.yaml", tmp_path / "run"
    study.write_text(STUDY)
    with Running(folder, "run", study, "--out", folder) as running:
        running.wait_for(lambda event: event["type"] == "block_finished", BLOCK_S, look_s=5)
        running.process.send_signal(signal.SIGINT)
        _, output = running.end(STOP_S)
    assert "tare resume" in output, output
    ended = {cell["cell"].split("/")[1]: cell for cell in of_type(folder, "cell_finished")}
    assert {arm: cell["status"] for arm, cell in ended.items()} == {"kvm": "ok", "xen": "ok"}, ended
    for cell in ended.values():
        count = cell["facts"]["job"]["steps"]["count"]["job"]
        assert (count["maps"], count["reduces"], count["state"]) == (1, 1, "SUCCEEDED")
    ready = of_type(folder, "machine_ready")
    assert {len(machine["placement"]["network"]["hosts"]) for machine in ready} == {2}
    assert_no_ledger_is_left(tmp_path)
    assert_no_process_is_left(folder)
