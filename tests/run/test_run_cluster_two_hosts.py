"""A cluster over two hosts: two network stacks of one computer, one of them reached over SSH."""

from __future__ import annotations

from pathlib import Path

import pytest

from hosts.hosts_namespaces import sshd_inside, two_hosts
from run.run_clusters import NEEDS
from run.run_driving import assert_no_ledger_is_left, assert_no_process_is_left, of_type, tare

pytestmark = [*NEEDS, pytest.mark.acceptance, pytest.mark.timeout(2400)]
STUDY = """
study: apart
baseline: bare
blocks: {{least: 2, most: 2}}
hosts:
  here: local
  there: {{{reached}}}
shape: {{vcpus: 1, memory: 1GiB, disk: 1GiB}}
arms:
  bare: {{platform: bare, on: here}}
  oci: {{platform: oci, on: here}}
scenarios:
  together: {{cluster: {{slaves: 2, tasks: 1, placement: together}}}}
  apart: {{cluster: {{slaves: 2, tasks: 1, placement: apart}}}}
workloads:
  wordcount: {{copies: 2}}
"""


def test_slaves_of_one_cluster_are_on_two_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agent_program: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    study, folder, place = tmp_path / "apart.yaml", tmp_path / "run", tmp_path / "sshd"
    place.mkdir()
    with two_hosts(tmp_path, agent_program) as (_, far), sshd_inside(far, place) as server:
        study.write_text(STUDY.format(reached=server.in_a_study()))
        done = tare("run", study, "--out", folder, limit_s=2300)
    assert done.returncode == 0, done.stdout + done.stderr
    ended = of_type(folder, "cell_finished")
    assert [cell["status"] for cell in ended] == ["ok"] * 8, ended
    # Each slave holds a copy of each block, so that all data crossed from host to host.
    assert {cell["facts"]["job"]["replication"] for cell in ended} == {2}
    scenario = {each["machine"]: each["scenario"] for each in of_type(folder, "machine_starting")}
    spans = {
        (scenario[ready["machine"]], len(ready["placement"]["network"]["hosts"]))
        for ready in of_type(folder, "machine_ready")
    }
    assert spans == {("together", 1), ("apart", 2)}
    hosts = {
        (cell["cell"].split("/")[2], role)
        for cell in ended
        for role in cell["facts"]["origins_ns"]
        if role.startswith("host")
    }
    assert hosts == {("together", "host"), ("apart", "host"), ("apart", "host-there")}
    assert_no_ledger_is_left(tmp_path)
    assert_no_process_is_left(folder)
