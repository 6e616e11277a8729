"""The real-time study for CI: two scenarios, two blocks, against a real guest."""

from __future__ import annotations

import csv
import subprocess
from pathlib import Path

import pytest

from run.run_driving import TARE, events

pytestmark = [pytest.mark.slow, pytest.mark.guest]

STUDY = """
study: realtime-ci
baseline: bare
blocks: {least: 2, most: 2}
shape: {vcpus: 1, memory: 256MiB}
arms:
  bare: {platform: bare}
  bare-again: {twin-of: bare}
  qemu-pv: {platform: qemu, accelerator: tcg, devices: paravirtual}
scenarios:
  one-to-one:
    subject: {cpus: pinned}
  contention-cpu:
    subject: {cpus: pinned}
    neighbours: [{load: cpu-load, cpus: same}]
workloads:
  tick: {duration: 1s, raw: true, counters: true}
  switch: {threads: [2, 1000], samples: 3000}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("realtime")
    (home / "ci.yaml").write_text(STUDY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(home / "state"))
        tare("run", home / "ci.yaml", "--out", home / "run", "--seed", "7")
    return home / "run"


def tare(*words: str | Path) -> None:
    done = subprocess.run(
        [TARE, *map(str, words)], capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_cell_is_measured_under_its_load(run: Path) -> None:
    finished = [event for event in events(run) if event["type"] == "cell_finished"]
    assert len(finished) == 2 * 3 * 2 * 3
    assert {cell["cell"]: cell["reason"] for cell in finished if cell["status"] != "ok"} == {}


def test_neighbours_have_machines_of_their_own(run: Path) -> None:
    roles = {
        (event["arm"], event["scenario"], event["role"])
        for event in events(run)
        if event["type"] == "machine_starting"
    }
    assert {(arm, role) for arm, scenario, role in roles if scenario == "contention-cpu"} == {
        (arm, role)
        for arm in ("bare", "bare-again", "qemu-pv")
        for role in ("subject", "neighbour-1")
    }
    assert all(role == "subject" for _, scenario, role in roles if scenario == "one-to-one")


def test_the_host_counts_for_every_machine_or_says_why_not(run: Path) -> None:
    counted = {
        event["cell"].split("/")[2]: event["facts"]["host_hardware"]
        for event in events(run)
        if event["type"] == "cell_finished" and "/tick" in event["cell"]
    }
    assert {name: list(each) for name, each in counted.items()} == {
        "one-to-one": ["subject"],
        "contention-cpu": ["subject", "neighbour-1"],
    }
    machines = [machine for each in counted.values() for machine in each.values()]
    # `missing` are the kernel's words, so the host's agent was asked and counted, or could not.
    assert all(each["seconds"] > 0 for each in machines)
    assert all(each.get("cycles", 0) > 0 or ": " in each["missing"] for each in machines)


def test_a_guest_that_shares_its_cpu_loses_much_of_it(run: Path) -> None:
    stolen: dict[str, list[float]] = {}
    for event in events(run):
        if event["type"] == "observation" and event["metric"] == "stolen-share":
            stolen.setdefault("/".join(event["cell"].split("/")[1:3]), []).append(event["value"])
    # Its vCPU and the neighbour's are equals, so half is lost; a fifth leaves room for noise.
    assert min(stolen["qemu-pv/contention-cpu"]) > 0.2
    # Whatever else a busy host takes away, the host itself saw the neighbour have its share.
    shares = [
        neighbour["ran_share"]
        for event in events(run)
        if event["type"] == "cell_finished" and "/qemu-pv/contention-cpu/tick" in event["cell"]
        for neighbour in event["facts"]["neighbours"]
    ]
    assert len(shares) == 2
    assert all(0.1 < share < 0.9 for share in shares)


def test_report_shows_published_values(run: Path) -> None:
    tare("report", run, "--reference", "fayyad2013")
    assert "Published values and this run: fayyad2013" in (run / "report.html").read_text()
    with (run / "tables" / "reference-fayyad2013.csv").open() as file:
        rows = list(csv.DictReader(file))
    own = {(row["table"], row["arm"]) for row in rows if row["source"] == "run"}
    assert own == {(table, arm) for table in "4567" for arm in ("bare", "bare-again", "qemu-pv")}
    assert sum(bool(row["value"]) for row in rows if row["source"] == "published") == 138
