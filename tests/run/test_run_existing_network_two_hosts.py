"""A run over the network that a machine has, where the two computers are apart: a wire between."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deadlines import patient
from hosts.hosts_namespaces import WIRE, sshd_inside, two_hosts
from hosts.hosts_sshd import SSHD, Sshd
from run.run_driving import TARE, of_type, tare
from tare.platforms.network import SHARED

pytestmark = [
    pytest.mark.slow,
    pytest.mark.acceptance,
    pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root"),
    pytest.mark.skipif(not shutil.which("ip"), reason="iproute2 is not installed"),
]
HERE, THERE = WIRE
MTU = 1400
STUDY = """
study: wire
baseline: vm
blocks: {{least: 2, most: 2}}
shape: {{vcpus: 1, memory: 64MiB}}
arms:
  vm: {{platform: ssh, {reached}, folder: {folder}, network-way: given}}
workloads:
  net-stream: {{duration: 1s, warmup: 0s}}
  request-response: {{duration: 300ms}}
  http-load: {{rate: 200, duration: 1s}}
"""


def space(letter: str) -> tuple[str, ...]:
    """Return what comes before a command that is to run on one of two hosts."""
    return ("ip", "netns", "exec", f"test-{os.getpid()}-{letter}")


@contextmanager
def listening(folder: Path) -> Iterator[Sshd]:
    """Hold a server on the second host, at its address on the wire."""
    folder.mkdir()
    server = Sshd(folder)
    for file in (folder / "config", server.known_hosts):
        file.write_text(file.read_text().replace("127.0.0.1", THERE))
    Path("/run/sshd").mkdir(exist_ok=True)
    call = [*space("b"), SSHD, "-D", "-e", "-f", str(folder / "config")]
    with (folder / "log").open("ab") as log, subprocess.Popen(call, stderr=log) as process:
        probe = [*space("a"), "bash", "-c", f"</dev/tcp/{THERE}/{server.port}"]
        deadline = time.monotonic() + patient(20)
        while subprocess.run(probe, capture_output=True, check=False).returncode:
            assert time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.05)
        try:
            yield server
        finally:
            process.kill()


def written(folder: Path, server: Sshd, address: str) -> Path:
    study = folder / "wire.yaml"
    study.write_text(STUDY.format(reached=server.in_a_study(address), folder=server.folder))
    return study


def test_two_computers_are_measured_over_the_wire_between_them(
    tmp_path: Path, agent_program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    run = tmp_path / "run"
    with (
        two_hosts(tmp_path, agent_program, mtu=MTU),
        listening(tmp_path / "sshd") as server,
    ):
        study = written(tmp_path, server, THERE)
        call = [*space("a"), str(TARE), "run", str(study), "--out", str(run)]
        done = subprocess.run(call, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    placed = [each["placement"]["network"] for each in of_type(run, "machine_ready")]
    link = {"way": "given", "address": THERE, "peer": HERE, "mtu": MTU, "note": SHARED}
    assert placed == [link, link]
    assert {cell["status"] for cell in of_type(run, "cell_finished")} == {"ok"}


def test_where_nothing_gets_through_the_ports_are_named(
    tmp_path: Path, agent_program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The login is handed on to another computer: its loopback is not this one's."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    run, folder = tmp_path / "run", tmp_path / "sshd"
    folder.mkdir()
    with (
        two_hosts(tmp_path, agent_program) as (_, second),
        sshd_inside(second, folder) as server,
    ):
        done = tare("run", written(tmp_path, server, "127.0.0.1"), "--out", run)
    assert done.returncode == 1, done.stdout + done.stderr
    reasons = {cell["reason"] for cell in of_type(run, "cell_finished")}
    assert reasons
    for reason in reasons:
        assert "cannot connect to 127.0.0.1:7100" in reason
        assert "let TCP and UDP to the ports 5201, 7100, 8080 of 127.0.0.1 through" in reason
