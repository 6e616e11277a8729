"""Runs on a host over SSH, against a real server on loopback: as here, and nothing left."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hosts.hosts_sshd import Sshd, serving
from run.run_driving import (
    Running,
    assert_no_ledger_is_left,
    assert_no_process_is_left,
    events,
    tare,
)
from tare.analysis import load_run
from tare.analysis.effects.compare import compare
from tare.analysis.topics.spike_cells import explained, spike_cells

pytestmark = [pytest.mark.slow, pytest.mark.boots]

STUDY = """
study: afar
baseline: bare
blocks: {{least: {blocks}, most: {blocks}}}
host: {{{reached}, patience: 5s}}
shape: {{vcpus: 1, memory: 128MiB}}
arms:
  bare: {{platform: bare}}
{arms}
scenarios:
  contended: {{subject: {{cpus: pinned}}, neighbours: [{{load: cpu-load, cpus: same}}]}}
workloads:
  numeric-sort: {{duration: {duration}}}
"""
TWO_HOSTS = """
study: two
baseline: bare
blocks: {{least: 2, most: 2}}
hosts:
  here: local
  there: {{{reached}, patience: 5s}}
shape: {{vcpus: 1, memory: 128MiB}}
arms:
  bare: {{platform: bare, on: here}}
  again: {{twin-of: bare}}
  guest: {{platform: qemu, accelerator: tcg, on: here}}
  far-guest: {{platform: qemu, accelerator: tcg, on: there}}
workloads:
  numeric-sort: {{duration: 300ms}}
"""
ROLES = """
study: roles
baseline: bare
blocks: {{least: {blocks}, most: {blocks}}}
hosts:
  here: local
  there: {{{reached}, patience: 5s}}
shape: {{vcpus: 1, memory: 128MiB}}
arms:
  bare: {{platform: bare, on: here}}
  box: {{platform: oci, on: here}}
  guest: {{platform: qemu, accelerator: tcg, on: here}}
scenarios:
  apart: {{machines: {{peer: {{on: there}}}}}}
workloads:
  request-response: {{duration: 2500ms}}
"""
GUEST = "  guest: {platform: qemu, accelerator: tcg}\n"
EVERY = """\
  guest: {platform: qemu, accelerator: tcg}
  box: {platform: oci}
  xen: {platform: xen}
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sshd]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with serving(tmp_path / "sshd") as server:
        yield server


def written(
    server: Sshd,
    folder: Path,
    arms: str = "",
    duration: str = "300ms",
    study: str = STUDY,
    blocks: int = 2,
) -> Path:
    path = folder / "afar.yaml"
    reached = server.in_a_study()
    path.write_text(study.format(reached=reached, arms=arms, duration=duration, blocks=blocks))
    return path


def finished(folder: Path) -> dict[str, dict[str, Any]]:
    return {e["cell"]: e for e in events(folder) if e["type"] == "cell_finished"}


def assert_nothing_is_left(folder: Path, home: Path) -> None:
    assert_no_process_is_left(folder)
    run = events(folder)[0]["run"]
    assert not list(Path("/tmp").glob(f"tare-{run}-*"))
    assert not list(Path("/sys/fs/cgroup").glob(f"*/tare-{run}-*"))
    assert_no_ledger_is_left(home)


def under_way(event: dict[str, Any]) -> bool:
    return bool(event["type"] == "cell_started")


@pytest.mark.guest
@pytest.mark.container
def test_a_study_runs_over_ssh_as_it_does_here(server: Sshd, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    outcome = tare("run", written(server, tmp_path, EVERY, blocks=1), "--out", folder)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    started, *rest = events(folder)
    assert started["host"]["name"].endswith(f"@127.0.0.1:{server.port}")
    assert started["host"]["cpus"] == os.cpu_count()
    usable = {e["arm"] for e in rest if e["type"] == "platform_checked" and e["usable"]}
    assert {"bare", "guest"} <= usable
    skipped = {e["arm"]: e["reason"] for e in rest if e["type"] == "skipped"}
    assert "xen" in skipped
    assert "needs Xen" in skipped["xen"]
    cells = finished(folder)
    assert len(cells) == len(usable)
    assert all(cell["status"] == "ok" for cell in cells.values()), cells
    for cell in cells.values():
        (neighbour,) = cell["facts"]["neighbours"]
        assert neighbour["load"] == "cpu-load"
        assert all(value > 0 for value in neighbour["values"].values())
    assert_nothing_is_left(folder, tmp_path)
    text = (folder / "events.jsonl").read_text()
    assert "PRIVATE KEY" not in text
    assert (folder / "report.html").stat().st_size > 10_000


@pytest.mark.guest
def test_one_run_is_carried_out_on_two_hosts_and_compares_within_each(
    server: Sshd, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    study = written(server, tmp_path, study=TWO_HOSTS)
    outcome = tare("run", study, "--out", folder)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    started = events(folder)[0]
    assert set(started["host"]) == {"here", "there"}
    assert started["host"]["there"]["name"].endswith(f"@127.0.0.1:{server.port}")
    cells = finished(folder)
    assert [cell["status"] for cell in cells.values()] == ["ok"] * 12, cells
    arms = {cell.split("/")[1] for cell in cells}
    assert arms == {"bare", "again", "guest", "bare@there", "again@there", "far-guest"}
    machines = [e["machine"] for e in events(folder) if e["type"] == "machine_starting"]
    assert len(machines) == len(set(machines)) == 12
    checks = {check["name"] for e in events(folder) if e["type"] == "preflight"
              for check in e["checks"]}  # fmt: skip
    assert {name.rpartition(" on ")[2] for name in checks} == {"here", "there"}
    comparison = compare(load_run(folder))
    assert {(e.arm, e.baseline) for e in comparison.effects} == {
        ("guest", "bare"),
        ("far-guest", "bare@there"),
    }
    # On each host the same machine, booted twice, shows how much identical arms differ there.
    twins = {(e.arm, e.baseline) for e in comparison.aa}
    assert twins == {("again", "bare"), ("again@there", "bare@there")}
    assert_nothing_is_left(folder, tmp_path)
    planned = " ".join(tare("plan", study).stdout.split())
    assert "bare@there: bare host on there (as checked" in planned


@pytest.mark.guest
@pytest.mark.skipif(os.geteuid() != 0, reason="networks need root")
def test_the_machines_of_one_cell_are_on_two_hosts(server: Sshd, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    done = tare("run", written(server, tmp_path, study=ROLES, blocks=1), "--out", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    recorded = events(folder)
    ended = [event for event in recorded if event["type"] == "cell_finished"]
    assert [cell["status"] for cell in ended] == ["ok"] * 3, ended
    ready = {each["machine"]: each for each in recorded if each["type"] == "machine_ready"}
    # Each host's and each machine's series, and whose clock each began on.
    watched = {"subject", "peer", "host", "host-there"}
    for cell in ended:
        assert cell["facts"]["host_counters"] == {"sampled": True, "reason": ""}
        assert set(cell["facts"]["origins_ns"]) == watched
        saved = [e for e in recorded if e["type"] == "series" and e["cell"] == cell["cell"]]
        assert {e["role"] for e in saved if e["name"] == "counters"} == watched
    for cell in (event for event in recorded if event["type"] == "cell_started"):
        assert set(cell["machines"]) == {"subject", "peer"}
        hosts = {
            each: ready[name]["placement"].get("host") for each, name in cell["machines"].items()
        }
        assert hosts == {"subject": None, "peer": "there"}
        networks = [ready[name]["placement"]["network"] for name in cell["machines"].values()]
        assert len({network["address"] for network in networks}) == 2
        assert all(network["joined"] == "bridge" for network in networks)
        assert all(len(network["hosts"]) == 2 for network in networks)
    assert_no_process_is_left(folder)
    assert_no_ledger_is_left(tmp_path)


@pytest.mark.acceptance
@pytest.mark.guest
def test_a_killed_run_on_two_hosts_is_resumed(server: Sshd, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    study = written(server, tmp_path, study=TWO_HOSTS.replace("300ms", "3s"))
    running = Running(folder, "run", study, "--out", folder, "--arm", "bare,far-guest")
    running.wait_for(under_way)
    running.process.kill()
    running.end()
    outcome = tare("resume", folder)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert [cell["status"] for cell in finished(folder).values()] == ["ok"] * 6
    assert_nothing_is_left(folder, tmp_path)


def test_the_hosts_counters_are_sampled_over_ssh_too(server: Sshd, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    study = written(server, tmp_path, duration="2500ms", blocks=1)
    outcome = tare("run", study, "--out", folder)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    for cell in finished(folder).values():
        assert cell["facts"]["host_counters"] == {"sampled": True, "reason": ""}
        assert set(cell["facts"]["origins_ns"]) == {"subject", "host"}
    counters = [e for e in events(folder) if e["type"] == "series" and e["name"] == "counters"]
    saved = [(e["role"], e["rows"]) for e in counters]
    assert [role for role, _ in saved] == ["subject", "host"]
    assert min(rows for _, rows in saved) >= 3
    assert_nothing_is_left(folder, tmp_path)


def test_a_killed_run_over_ssh_is_cleaned_and_resumed(server: Sshd, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    study = written(server, tmp_path, duration="4s")
    running = Running(folder, "run", study, "--out", folder)
    running.wait_for(under_way)
    running.process.kill()
    running.end()
    cleaned = tare("clean")
    assert cleaned.returncode == 0, cleaned.stderr
    assert f"127.0.0.1:{server.port}" in cleaned.stdout
    assert_nothing_is_left(folder, tmp_path)
    outcome = tare("resume", folder)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert [cell["status"] for cell in finished(folder).values()] == ["ok", "ok"]
    assert_nothing_is_left(folder, tmp_path)


def test_a_killed_run_is_resumed_at_once_though_its_host_was_still_held(
    server: Sshd, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    study = written(server, tmp_path, duration="3s")
    running = Running(folder, "run", study, "--out", folder)
    running.wait_for(under_way)
    running.process.kill()
    running.end()
    outcome = tare("resume", folder)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert len(finished(folder)) == 2
    assert_nothing_is_left(folder, tmp_path)


def test_ctrl_c_twice_over_ssh_leaves_nothing(server: Sshd, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    study = written(server, tmp_path, duration="20s")
    running = Running(folder, "run", study, "--out", folder)
    running.wait_for(under_way)
    running.process.send_signal(signal.SIGINT)
    running.wait_for(lambda event: event["type"] == "interrupted")
    running.process.send_signal(signal.SIGINT)
    status, output = running.end()
    assert status == 130, output
    assert_nothing_is_left(folder, tmp_path)


def test_two_runs_do_not_share_a_host(
    server: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    study = written(server, tmp_path, duration="20s")
    running = Running(folder, "run", study, "--out", folder)
    running.wait_for(under_way)
    # As from another computer, which does not know the first.
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    second = tare("run", study, "--out", tmp_path / "second")
    assert second.returncode == 2, second.stdout
    assert f"is in progress on root@127.0.0.1:{server.port}" in second.stderr
    assert not (tmp_path / "second").exists()
    running.process.terminate()
    running.end()


def test_a_connection_that_breaks_for_a_moment_costs_no_cell(server: Sshd, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    running = Running(folder, "run", written(server, tmp_path, duration="3s"), "--out", folder)
    running.wait_for(under_way)
    server.cut()
    status, output = running.end()
    assert status == 0, output
    assert "is connected again" in output
    assert [cell["status"] for cell in finished(folder).values()] == ["ok", "ok"]
    starts = [e["cell"] for e in events(folder) if e["type"] == "cell_started"]
    assert len(starts) == len(set(starts))


def test_a_host_that_is_lost_costs_a_cell_or_two_and_not_the_run(
    server: Sshd, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    running = Running(folder, "run", written(server, tmp_path, duration="3s"), "--out", folder)
    running.wait_for(under_way)
    server.stop()
    time.sleep(8)
    server.start()
    status, output = running.end()
    assert status == 0, output
    starts = [e for e in events(folder) if e["type"] == "cell_started"]
    assert any(event["attempt"] == 2 for event in starts)
    assert [cell["status"] for cell in finished(folder).values()] == ["ok", "ok"]
    lost = [e for e in events(folder) if e["type"] == "machine_stopped" and not e["expected"]]
    assert "did not come back within 5 s" in lost[0]["reason"]
    assert_nothing_is_left(folder, tmp_path)


def test_a_wrong_host_key_ends_a_run_before_it_begins(server: Sshd, tmp_path: Path) -> None:
    study = written(server, tmp_path)
    server.known_hosts.write_text(
        f"[127.0.0.1]:{server.port} {(server.folder / 'user_key.pub').read_text()}"
    )
    outcome = tare("run", study, "--out", tmp_path / "run")
    assert outcome.returncode == 2
    assert "differs from the one in" in outcome.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.acceptance
@pytest.mark.parametrize(
    "arms", [pytest.param("", id="bare"), pytest.param(GUEST, id="guest", marks=pytest.mark.guest)]
)
@pytest.mark.skipif(os.geteuid() != 0, reason="tracing the kernel needs root")
@pytest.mark.timeout(400)
def test_remote_host_reports_what_took_the_cpu(tmp_path: Path, server: Sshd, arms: str) -> None:
    study = STUDY.replace("numeric-sort", "tick").replace("128MiB", "256MiB")
    folder = tmp_path / "run"
    done = tare("run", written(server, tmp_path, arms, "1s", study), "--out", folder)
    assert done.returncode == 0, done.stderr
    cells = [event for event in events(folder) if event["type"] == "cell_finished"]
    assert len(cells) == 2 * (2 if arms else 1)
    for cell in cells:
        facts = cell["facts"]["host_trace"]
        assert facts["recorded"], facts
        assert facts["lost"] == 0
        assert "neighbour-1" in {known["role"] for known in facts["threads"].values()}
    found = list(spike_cells([load_run(folder)]))
    # The neighbour is on the subject's CPU: what it took is attributed to it.
    for each in found:
        assert each.matched is not None, each.reason
        blamed = sum(
            taken
            for spike in each.spikes
            for cause, taken in spike.parts
            if cause.kind == "preempted" and "neighbour-1" in cause.who
        )
        assert blamed > 0.05e9 or each.arm == "bare", explained([each])
    assert_no_ledger_is_left(tmp_path)
