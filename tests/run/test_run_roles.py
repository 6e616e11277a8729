"""Machines with roles in one cell: two of an arm that speak with each other."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from run.run_driving import assert_no_ledger_is_left, of_type, tare

STUDY = """
study: pairs
baseline: bare
blocks: {least: 1, most: 1}
shape: {vcpus: 1, memory: 128MiB}
arms:
  bare: {platform: bare}
  oci: {platform: oci}
  guest: {platform: qemu, accelerator: tcg}
scenarios:
  pair:
    subject: {cpus: pinned}
    machines: {peer: {cpus: other, memory: 160MiB}}
workloads:
  request-response: {duration: 1500ms}
  numeric-sort: {duration: 100ms}
"""


@pytest.mark.slow
@pytest.mark.boots
@pytest.mark.guest
@pytest.mark.skipif(os.geteuid() != 0, reason="networks need root")
def test_two_machines_of_an_arm_speak_with_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    study, folder = tmp_path / "pairs.yaml", tmp_path / "run"
    study.write_text(STUDY)
    done = tare("run", study, "--out", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    ended = of_type(folder, "cell_finished")
    assert [cell["status"] for cell in ended] == ["ok"] * 3, ended
    started = {event["machine"]: event for event in of_type(folder, "machine_starting")}
    ready = {event["machine"]: event for event in of_type(folder, "machine_ready")}
    for cell in of_type(folder, "cell_started"):
        machines = cell["machines"]
        assert set(machines) == {"subject", "peer"}
        assert {started[name]["role"] for name in machines.values()} == {"subject", "peer"}
        assert all(started[name]["arm"] == cell["arm"] for name in machines.values())
        addresses = {ready[name]["placement"]["network"]["address"] for name in machines.values()}
        assert len(addresses) == 2
    skipped = {(event["arm"], event["reason"]) for event in of_type(folder, "skipped")}
    assert skipped == {
        (arm, "numeric-sort does not use a machine `peer`") for arm in ("bare", "oci", "guest")
    }
    assert_no_ledger_is_left(tmp_path)


def test_unknown_role_is_reported(tmp_path: Path) -> None:
    study = tmp_path / "pairs.yaml"
    study.write_text(STUDY.replace("{peer: {", "{pear: {"))
    done = tare("plan", study)
    assert done.returncode == 2
    output = " ".join(done.stderr.split())
    assert "pairs.yaml:13:16: scenarios.pair.machines.pear: no workload uses" in output
    assert "did you mean 'peer'?" in output
