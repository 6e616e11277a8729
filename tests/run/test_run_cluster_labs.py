"""Clusters of KVM and of Xen whose master and slave are guests of two labs."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from run.run_clusters import NEEDS
from run.run_driving import Running, assert_no_ledger_is_left, assert_no_process_is_left, of_type

pytestmark = [*NEEDS, pytest.mark.acceptance, pytest.mark.guest]
UP_S = 3000
"""Most of it is copying images into the labs and starting Java in their guests."""
STOP_S = 120
# With two CPUs a lab's kernel or its guest of KVM falls while Hadoop starts (docs/lab.md).
STUDY = """
study: labs
baseline: guest
blocks: {{least: 2, most: 2}}
hosts: {{here: lab, there: lab}}
lab: {{cpus: 1, memory: 3GiB}}
shape: {{vcpus: 1, memory: 1GiB, disk: 1GiB}}
arms:
  guest: {{{platform}, on: here}}
scenarios:
  apart: {{cluster: {{slaves: 1, tasks: 1, hosts: [there]}}}}
workloads:
  wordcount: {{copies: 1, deadline: 2h}}
"""


# Their jobs take hours there (docs/mapreduce.md), so that a cluster that could do some is enough.
@pytest.mark.parametrize(
    "platform", ["platform: qemu, accelerator: kvm", "platform: xen, type: pvh"]
)
@pytest.mark.timeout(UP_S + STOP_S + 100)
def test_guests_of_two_labs_are_one_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    study, folder = tmp_path / "labs.yaml", tmp_path / "run"
    study.write_text(STUDY.format(platform=platform))
    with Running(folder, "run", study, "--out", folder) as running:
        running.wait_for(lambda event: event["type"] == "cell_started", UP_S, look_s=5)
        running.process.send_signal(signal.SIGINT)
        running.wait_for(lambda event: event["type"] == "interrupted")
        running.process.send_signal(signal.SIGINT)
        status, output = running.end(STOP_S)
    assert status == 130, output
    (cluster,) = of_type(folder, "cluster_ready")
    # HDFS has left safe mode with the one's DataNode, and YARN knows its NodeManager.
    assert cluster["facts"]["slaves"] == 1
    ready = of_type(folder, "machine_ready")
    assert {len(machine["placement"]["network"]["hosts"]) for machine in ready} == {2}
    assert_no_ledger_is_left(tmp_path)
    assert_no_process_is_left(folder)
