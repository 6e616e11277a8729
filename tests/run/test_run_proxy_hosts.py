"""Client and origin on another host than the proxy, over a network that spans both."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

import pytest

from hosts.hosts_sshd import serving
from run.run_driving import assert_no_ledger_is_left, assert_no_process_is_left, of_type, tare

STUDY = """
study: spanning
baseline: bare
blocks: {{least: 2, most: 2}}
hosts:
  here: local
  there: {{{reached}}}
shape: {{vcpus: 1, memory: 128MiB}}
arms:
  bare: {{platform: bare, on: here}}
  box: {{platform: oci, on: here}}
  guest: {{platform: qemu, accelerator: tcg, on: here}}
scenarios:
  apart: {{machines: {{peer: {{on: there}}, origin: {{on: there}}}}}}
workloads:
  proxy:
    size: 5000B
    most-connections: 4
    step: 300ms
    duration: 1s
    warmup: 100ms
"""


@pytest.mark.slow
@pytest.mark.acceptance
@pytest.mark.guest
@pytest.mark.skipif(os.geteuid() != 0, reason="networks need root")
def test_client_and_origin_are_on_another_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "run"
    with serving(tmp_path / "sshd") as server:
        (tmp_path / "study.yaml").write_text(STUDY.format(reached=server.in_a_study()))
        done = tare("run", tmp_path / "study.yaml", "--out", folder, limit_s=600)
    ended = of_type(folder, "cell_finished")
    output = done.stdout + done.stderr + str([cell["reason"] for cell in ended])
    assert [cell["status"] for cell in ended] == ["ok"] * 6, output
    ready = {each["machine"]: each for each in of_type(folder, "machine_ready")}
    for cell in of_type(folder, "cell_started"):
        assert set(cell["machines"]) == {"subject", "peer", "origin"}
        networks = [ready[name]["placement"]["network"] for name in cell["machines"].values()]
        assert len({network["address"] for network in networks}) == 3
        assert all(len(network["hosts"]) == 2 for network in networks)
    metrics = defaultdict(set)
    for seen in of_type(folder, "observation"):
        metrics[seen["cell"]].add(seen["metric"])
    assert len(metrics) == 6
    assert all("direct" in names and "straight" not in names for names in metrics.values())
    assert all({"requests", "requests-at-least"} & names for names in metrics.values())
    assert_no_process_is_left(folder)
    assert_no_ledger_is_left(tmp_path)
