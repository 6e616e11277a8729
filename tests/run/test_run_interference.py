"""A web server next to neighbours whose loads take turns: bare, in containers and in guests.

Nothing here is timed. The tests check that everything that belongs to a cell is recorded on one
time axis, and that faults are recorded too.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from deadlines import patient
from processes import named
from run.run_driving import TARE, Running, assert_no_ledger_is_left, of_type, tare
from run.run_processes import begins, process_of
from tare.analysis import compare_runs, load_run
from tare.analysis.topics.monitoring import monitors
from tare.analysis.topics.response_times import timelines
from tare.analysis.topics.unit_cost import unit_costs
from tare.report import build_report

pytestmark = [
    pytest.mark.slow,
    pytest.mark.guest,
    pytest.mark.skipif(os.geteuid() != 0, reason="networks need root"),
]
LINKS = "links-before"
"""The file that names the interfaces that were there before a test."""
PHASES = ("cpu-load", "memory-load", "disk-load", "net-load")

STUDY = """
study: neighbours
baseline: bare
blocks: {least: 2, most: 2}
shape: {vcpus: 1, memory: 384MiB, disk: 128MiB}
arms:
  bare: {platform: bare}
  oci: {platform: oci}
  guest: {platform: qemu, accelerator: tcg}
scenarios:
  phases:
    neighbours:
      - load: phased-load
        memory: 160MiB
        parameters:
          phases: [cpu-load, memory-load, disk-load, net-load]
          phase: 500ms
          gap: 500ms
workloads:
  http-load: {rate: 50, size: 4KiB, connections: 32, duration: 4500ms, warmup: 200ms}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state directory of the test's own, so that runs of the user are not in the way."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / LINKS).write_text(" ".join(links()))
    yield tmp_path
    # Leftovers of a failed test, if any.
    subprocess.run([TARE, "clean"], capture_output=True, timeout=120, check=False)


def written(home: Path, text: str) -> Path:
    path = home / "study.yaml"
    path.write_text(text)
    return path


def run_study(home: Path, text: str) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = home / "run"
    done = tare("run", written(home, text), "--out", folder, limit_s=600)
    return folder, done


def assert_nothing_is_left(home: Path) -> None:
    assert_no_ledger_is_left(home)
    # Those of other runs here go too, and none is left of this one.
    left, deadline = (
        links() - set((home / LINKS).read_text().split()),
        time.monotonic() + patient(120),
    )
    while left := left & links():
        assert time.monotonic() < deadline, f"interfaces are left: {left}"
        time.sleep(0.5)


def links() -> set[str]:
    """Return the network interfaces here that are some Tare's."""
    output = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    names = (line.split()[1].rstrip(":").partition("@")[0] for line in output.splitlines())
    return {name for name in names if name.startswith("tare-")}


def test_phases_counters_and_response_times_share_one_axis(home: Path) -> None:
    folder, done = run_study(home, STUDY)
    assert done.returncode == 0, done.stdout + done.stderr
    cells = of_type(folder, "cell_finished")
    assert [cell["status"] for cell in cells] == ["ok"] * 6, [cell["reason"] for cell in cells]
    for cell in cells:
        assert [phase["name"] for phase in cell["facts"]["phases"]] == list(PHASES)
        assert cell["facts"]["host_counters"] == {"sampled": True, "reason": ""}
        assert set(cell["facts"]["origins_ns"]) == {"subject", "host"}
        assert cell["facts"]["host_cost"]["rss_bytes"] > 0
        assert not [text for text in cell["warnings"] if "phases" in text]
    run = load_run(folder)
    for timeline in timelines([run]):
        assert [phase.name for phase in timeline.phases] == list(PHASES)
        assert 0.2 <= timeline.steps[0].begin_s < 0.5
        assert timeline.length_s == pytest.approx(4.7, abs=0.3)
        assert all(timeline.within(phase) for phase in timeline.phases)
        assert sum(step.completed + step.failed for step in timeline.steps) == 225
    watched = monitors([run])
    assert len(watched) == 6
    for monitor in watched:
        host, machine = monitor.track("host"), monitor.track("subject")
        assert host is not None and machine is not None
        # Both end with the cell, though each has its own clock.
        assert abs(host.time_s[-1] - machine.time_s[-1]) < 1.0
        assert (host.mean("net-received") or 0) > 0
    costs = unit_costs([run], "bare", 0.95)
    assert {cost.arm for cost in costs} == {"bare", "oci", "guest"}
    assert all(cost.rss_bytes for cost in costs)
    neighbours = [
        machine for machine in of_type(folder, "machine_ready") if "neighbour" in str(machine)
    ]
    guests = [m for m in neighbours if m["placement"]["vcpu_threads"]]
    assert guests and all(memory_of(machine) < 161 << 20 for machine in guests)
    page = build_report([run], compare_runs([run]), home / "report").read_text()
    for words in ("Response time over time", "its host", "Host CPUs busy", "net"):
        assert words in page
    assert (home / "report" / "tables" / "phases.csv").read_text().count("net-load") == 3
    assert_nothing_is_left(home)


def memory_of(machine: dict[str, Any]) -> int:
    """Return the memory that a guest reports; its kernel keeps some for itself."""
    return int(machine["proof"]["memory"]["total"])


SHORT = """
study: neighbours
baseline: bare
blocks: {{least: 2, most: 2}}
shape: {{vcpus: 1, memory: 256MiB, disk: {disk}}}
arms:
  bare: {{platform: bare}}
  {more}
scenarios:
  alone: {{}}
  loaded:
    neighbours: [{{load: {load}, parameters: {parameters}}}]
workloads:
  numeric-sort: {{duration: {duration}, scenarios: [loaded]}}
  bitfield: {{duration: 200ms, scenarios: [{bitfield}]}}
"""


def short(load: str, parameters: str, **more: str) -> str:
    usual = {"disk": "0", "more": "", "duration": "6s", "bitfield": "loaded"}
    return SHORT.format(**{**usual, "load": load, "parameters": parameters, **more})


@pytest.mark.boots
@pytest.mark.parametrize(
    ("arm", "more", "words"),
    [
        ("bare", "", "was killed by signal 9"),
        pytest.param("oci", "oci: {platform: oci}", "killed", marks=pytest.mark.acceptance),
        pytest.param(
            "guest",
            "guest: {platform: qemu, accelerator: tcg}",
            "neighbour-1",
            marks=pytest.mark.acceptance,
        ),
    ],
)
def test_a_neighbour_that_dies_in_a_phase_costs_its_cell_only(
    home: Path, arm: str, more: str, words: str
) -> None:
    parameters = "{phases: [cpu-load, memory-load], phase: 5s, gap: 200ms}"
    text = short("phased-load", parameters, more=more)
    folder = home / "run"
    with Running(folder, "run", written(home, text), "--out", folder) as running:
        cell = f"b001/{arm}/loaded/numeric-sort"
        running.wait_for(begins(cell))
        time.sleep(1.5)  # the neighbour is in its first phase then
        os.kill(process_of(folder, arm, "neighbour-1"), signal.SIGKILL)
        _, output = running.end(limit_s=300)
    cells = of_type(folder, "cell_finished")
    lost = [cell for cell in cells if cell["status"] == "failed"]
    names = [cell["cell"].split("[")[0] for cell in lost]
    assert names == [cell], (output, [c["reason"] for c in lost])
    assert "neighbour-1" in lost[0]["reason"] and words in lost[0]["reason"], lost[0]["reason"]
    assert_nothing_is_left(home)


@pytest.mark.boots
def test_a_load_that_fails_ends_its_cell_at_once_with_its_reason(home: Path) -> None:
    parameters = "{phases: [disk-load], phase: 5s, gap: 100ms}"
    text = short("phased-load", parameters, disk="48MiB", bitfield="alone, loaded")
    folder, done = run_study(home, text)
    cells = of_type(folder, "cell_finished")
    lost = [cell for cell in cells if cell["status"] == "failed"]
    assert {cell["cell"].split("/", 1)[1].split("[")[0] for cell in lost} == {
        "bare/loaded/numeric-sort",
        "bare/loaded/bitfield",
    }, done.stdout
    assert all("neighbour-" in cell["reason"] for cell in lost)
    long = [cell for cell in lost if "numeric-sort" in cell["cell"]]
    for cell in long:
        assert "ended before the subject's work did" in cell["reason"]
        assert "disk-load" in cell["reason"] and "room" in cell["reason"]
    assert any(cell["status"] == "ok" for cell in cells)
    assert_nothing_is_left(home)


@pytest.mark.acceptance
def test_network_load_next_to_work_without_a_network(home: Path) -> None:
    user = "user: {platform: qemu, accelerator: tcg, network: user}"
    text = short("net-load", "{}", more=user, duration="2s")
    folder, done = run_study(home, text)
    assert done.returncode == 0, done.stdout + done.stderr
    cells = of_type(folder, "cell_finished")
    assert {cell["status"] for cell in cells} == {"ok"}, [cell["reason"] for cell in cells]
    rates = [
        event["value"]
        for event in of_type(folder, "observation")
        if event["role"].startswith("neighbour") and event["metric"] == "rate"
    ]
    assert len(rates) == 2 * 2 * 2 and min(rates) > 1e4
    series = [event for event in of_type(folder, "series") if event["name"] == "counters"]
    assert {event["role"] for event in series} == {"subject", "host"}
    for event in series:
        assert pl.read_parquet(folder / event["path"]).height >= 2
    assert_nothing_is_left(home)


def test_a_servers_own_children_go_with_a_run_that_is_killed(home: Path) -> None:
    words = ("run", written(home, STUDY), "--arm", "bare", "--workload", "http-load")
    with Running(home / "run", *words, "--out", home / "run") as running:
        running.wait_for(begins("b001/bare"))
        until = time.monotonic() + patient(60)
        while len(servers := named("nginx", running.process.pid)) < 2:
            assert time.monotonic() < until, "no server is at work with children of its own"
            time.sleep(0.05)
        # The cell is under way then, and nothing is being set up any more.
        time.sleep(1)
        running.process.kill()
        running.end()
    deadline = time.monotonic() + patient(30)
    while left := [number for number in servers if Path(f"/proc/{number}").exists()]:
        assert time.monotonic() < deadline, f"processes are left: {left}"
        time.sleep(0.05)
    assert tare("clean").returncode == 0
    assert_nothing_is_left(home)
