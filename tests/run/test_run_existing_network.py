"""Runs over the network that a machine has already: one that exists, reached by a real sshd."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hosts.hosts_sshd import Sshd, Way, serving
from run.run_driving import (
    assert_no_ledger_is_left,
    assert_no_process_is_left,
    of_type,
    tare,
)
from run.run_ports import served_ports
from tare.hosts import Ledger, LocalHost
from tare.images.cache import default_cache
from tare.platforms.contract import Context
from tare.platforms.network import SHARED
from tare.platforms.ssh.options import SshArmOptions
from tare.platforms.ssh.platform import Ssh

HERE = "127.0.0.1"
STUDY = """
study: given
baseline: vm
blocks: {{least: 2, most: 2}}
shape: {{vcpus: 1, memory: 64MiB}}
arms:
  vm: {{{reached}, network-way: given}}
  none: {{{reached}}}
scenarios: {{alone: {{}}, linked: {{link: 1Gbit}}, two: {{machines: {{peer: {{}}}}}}}}
workloads: {workloads}
"""
QUICK = "{request-response: {duration: 300ms}, connect-request-response: {duration: 300ms}}"
TOOLS = """
  net-stream: {duration: 1s, warmup: 0s}
  request-response: {duration: 300ms}
  packet-rate: {duration: 300ms, direction: [to-machine, from-machine]}
  http-load: {rate: 200, duration: 1s}
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sshd]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with serving(tmp_path / "sshd") as server:
        yield server


def run_study(server: Sshd, folder: Path, workloads: str, host: str = "") -> Path:
    """Run a study on the machine behind a server, and return the run's folder."""
    study, run = folder / "given.yaml", folder / "run"
    reached = f"platform: ssh, {server.in_a_study()}, folder: {server.folder}"
    text = STUDY.format(reached=reached, workloads=workloads)
    study.write_text(text + host)
    with served_ports():
        done = tare("run", study, "--out", run)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list(server.folder.glob("tare-*"))
    assert_no_process_is_left(run)
    assert_no_ledger_is_left(folder)
    return run


def assert_measured(run: Path, workloads: set[str]) -> None:
    """Check that all was measured over the existing network, and that the record describes it."""
    cells = of_type(run, "cell_finished")
    assert {cell["status"] for cell in cells} == {"ok"}, cells
    assert {cell["cell"].split("/")[3].partition("[")[0] for cell in cells} == workloads
    placed = [each["placement"].get("network") for each in of_type(run, "machine_ready")]
    assert placed and placed[0] == {
        "way": "given",
        "address": HERE,
        "peer": HERE,
        # That of a loopback, as far as IPv4 takes it.
        "mtu": 65_535,
        "note": SHARED,
    }
    page = (run / "report.html").read_text()
    assert "which others share, packets of up to 65535 bytes" in page
    assert "over a network that Tare did not make" in page


@pytest.mark.slow
@pytest.mark.boots
def test_a_machine_that_exists_is_measured_over_the_network_it_has(
    server: Sshd, tmp_path: Path
) -> None:
    run = run_study(server, tmp_path, QUICK)
    assert_measured(run, {"request-response", "connect-request-response"})
    skipped = {
        (each["arm"], each["scenario"], each["workload"]): each["reason"]
        for each in of_type(run, "skipped")
    }
    assert "`network-way: given` measures" in skipped["none", None, "request-response"]
    assert "which `network-way: given` is not" in skipped["vm", "linked", None]
    assert ("vm", "two", None) in skipped


@pytest.mark.slow
@pytest.mark.acceptance
def test_the_peer_is_on_the_arms_host_also_where_that_is_reached_over_ssh(
    server: Sshd, tmp_path: Path
) -> None:
    """Use the same sshd as the host and as the machine on that host."""
    run = run_study(server, tmp_path, QUICK, f"host: {{{server.in_a_study()}}}\n")
    assert_measured(run, {"request-response", "connect-request-response"})


@pytest.mark.slow
@pytest.mark.acceptance
@pytest.mark.skipif(os.geteuid() != 0, reason="the toolbox needs root")
def test_so_are_programs_of_the_toolbox(server: Sshd, tmp_path: Path) -> None:
    run = run_study(server, tmp_path, TOOLS)
    assert_measured(run, {"net-stream", "request-response", "packet-rate", "http-load"})


async def test_a_machine_behind_translated_addresses_is_refused_by_the_plan(
    server: Sshd, tmp_path: Path, agent_program: Path
) -> None:
    """Check a relay at another address: the machine's own address is not the login's."""
    elsewhere = "127.0.0.9"
    async with Way(server.port, address=elsewhere) as way:
        known = server.known_hosts.read_text()
        known = known.replace(f"[{HERE}]:{server.port}", f"[{elsewhere}]:{way.port}")
        server.known_hosts.write_text(known)
        options = SshArmOptions.model_validate(
            {
                "ssh": elsewhere,
                "port": way.port,
                "known_hosts": str(server.known_hosts),
                "key": str(server.user_key),
                "folder": str(server.folder),
                "network_way": "given",
            }
        )
        with Ledger(tmp_path / "ledger") as ledger:
            context = Context(LocalHost(agent_program), ledger, default_cache(), agent_program)
            verdict = await Ssh().check(context, options)
    assert verdict.usable, verdict
    refused = verdict.capabilities.no_network
    assert re.search(rf"own address is {HERE}, and here it is seen as {elsewhere}.*NAT", refused)
