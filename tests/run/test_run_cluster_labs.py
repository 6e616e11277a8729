"""Clusters of KVM and of Xen whose master and slave are guests of two labs."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from run.run_clusters import NEEDS
from run.run_driving import Running, assert_no_ledger_is_left, assert_no_process_is_left, of_type

pytestmark = [*NEEDS, pytest.mark.acceptance, pytest.mark.guest]
BLOCK_S = 12_000
"""The limit of one block; only KVM's cell has ever run. The second block is not waited for."""
UP_S = 3000
"""Most of it is copying images into the labs and starting Java in their guests."""
STOP_S, NOW_S = 600, 120
"""Until a run has stopped that was asked once, and twice."""
# With two CPUs a lab's kernel or its guest of KVM falls while Hadoop starts (`tare help lab`).
STUDY = """
study: labs
baseline: {baseline}
blocks: {{least: 2, most: 2}}
hosts: {{here: lab, there: lab}}
lab: {{cpus: 1, memory: 3GiB}}
shape: {{vcpus: 1, memory: 1GiB, disk: 1GiB}}
arms:
  {arms}
scenarios:
  apart: {{cluster: {{slaves: 1, tasks: 1, hosts: [there]}}}}
workloads:
  wordcount: {{copies: 1, deadline: 2h}}
"""


KVM = "kvm: {platform: qemu, accelerator: kvm, on: here}"
XEN = "xen: {platform: xen, type: pvh, on: here}"


@pytest.mark.timeout(BLOCK_S + STOP_S + 100)
def test_words_are_counted_under_kvm_and_xen_over_two_labs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, folder = written(tmp_path, monkeypatch, KVM, XEN)
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
    assert_one_network_and_nothing_left(tmp_path, folder)


@pytest.mark.parametrize("arm", [KVM, XEN], ids=["kvm", "xen"])
@pytest.mark.timeout(UP_S + NOW_S + 100)
def test_guests_of_two_labs_are_one_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arm: str
) -> None:
    study, folder = written(tmp_path, monkeypatch, arm)
    with Running(folder, "run", study, "--out", folder) as running:
        running.wait_for(lambda event: event["type"] == "cell_started", UP_S, look_s=5)
        running.process.send_signal(signal.SIGINT)
        running.wait_for(lambda event: event["type"] == "interrupted")
        running.process.send_signal(signal.SIGINT)
        status, output = running.end(NOW_S)
    assert status == 130, output
    (cluster,) = of_type(folder, "cluster_ready")
    # HDFS has left safe mode with the one's DataNode, and YARN knows its NodeManager.
    assert cluster["facts"]["slaves"] == 1
    assert_one_network_and_nothing_left(tmp_path, folder)


def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *arms: str) -> tuple[Path, Path]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    study = tmp_path / "labs.yaml"
    study.write_text(STUDY.format(baseline=arms[0].partition(":")[0], arms="\n  ".join(arms)))
    return study, tmp_path / "run"


def assert_one_network_and_nothing_left(home: Path, folder: Path) -> None:
    ready = of_type(folder, "machine_ready")
    assert {len(machine["placement"]["network"]["hosts"]) for machine in ready} == {2}
    assert_no_ledger_is_left(home)
    assert_no_process_is_left(folder)
