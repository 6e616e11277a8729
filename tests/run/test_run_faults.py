"""Runs that go wrong, against the real thing: a clear message, no orphan, no lost cell."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deadlines import patient
from run.run_driving import (
    Running,
    assert_no_ledger_is_left,
    assert_no_process_is_left,
    events,
    tare,
)

# Among tests that run at the same time, only these turn real-time throttling off.
pytestmark = [pytest.mark.slow, pytest.mark.boots, pytest.mark.guest]

STUDY = """
study: faults
baseline: bare
blocks: {least: 2, most: 2}
shape: {vcpus: 1, memory: 128MiB}
arms:
  bare: {platform: bare}
  guest: {platform: qemu, accelerator: tcg}
scenarios:
  alone: {subject: {cpus: any}}
workloads:
  tick: {samples: 20000}
  numeric-sort: {duration: 500ms}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory of the test's own, so that runs of the user are not in the way."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


@pytest.fixture
def study(home: Path) -> Path:
    path = home / "faults.yaml"
    path.write_text(STUDY)
    return path


Begin = Callable[..., Running]


@pytest.fixture
def start(study: Path, home: Path) -> Iterator[Begin]:
    started: list[Running] = []

    def begin(folder: Path, *words: str | Path) -> Running:
        started.append(Running(folder, *words))
        return started[-1]

    yield begin
    for running in started:
        if running.process.poll() is None:
            running.process.kill()
            running.process.wait()


def measuring(arm: str) -> Callable[[dict[str, Any]], bool]:
    return lambda event: event["type"] == "cell_started" and event["arm"] == arm


def finished_cells(folder: Path) -> dict[str, str]:
    return {
        event["cell"]: event["status"]
        for event in events(folder)
        if event["type"] == "cell_finished"
    }


def starts_of(folder: Path, cell: str) -> int:
    return sum(e["type"] == "cell_started" and e["cell"] == cell for e in events(folder))


def guest_threads(folder: Path) -> list[int]:
    return [
        thread
        for event in events(folder)
        if event["type"] == "machine_ready"
        for thread in event["placement"]["vcpu_threads"]
    ]


def assert_nothing_is_left(folder: Path, home: Path) -> None:
    alive = [thread for thread in guest_threads(folder) if Path(f"/proc/{thread}").exists()]
    assert not alive, f"threads of machines survive: {alive}"
    assert_no_process_is_left(folder)
    assert_no_ledger_is_left(home)


def resumed_to_the_end(folder: Path, before: dict[str, str]) -> None:
    outcome = tare("resume", folder)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    after = finished_cells(folder)
    assert len(after) == 2 * 2 * 2
    for cell, status in before.items():
        assert after[cell] == status
        assert starts_of(folder, cell) == 1, f"finished cell {cell} was run again"
    assert events(folder)[-1]["type"] == "run_finished"
    names = [e["machine"] for e in events(folder) if e["type"] == "machine_starting"]
    assert len(names) == len(set(names)), f"machines of two processes share names: {names}"
    assert (folder / "report.html").stat().st_size > 10_000


def test_a_killed_run_leaves_no_orphan_and_resumes_beyond_a_torn_line(
    study: Path, home: Path, start: Begin
) -> None:
    folder = home / "run"
    running = start(folder, "run", study, "--out", folder)
    # One of the guest's two cells is finished then, and the other under way.
    running.wait_for(lambda e: e["type"] == "cell_finished" and "/guest/" in e["cell"])
    running.process.kill()
    running.end()
    deadline = time.monotonic() + patient(60)
    while any(Path(f"/proc/{t}").exists() for t in guest_threads(folder)):
        assert time.monotonic() < deadline, "the guest outlived the killed command"
        time.sleep(0.05)
    before = finished_cells(folder)
    assert before
    cleaned = tare("clean")
    assert cleaned.returncode == 0
    assert "1 removed" in cleaned.stdout
    assert tare("clean").stdout.strip() == "clean"
    assert_nothing_is_left(folder, home)
    with (folder / "events.jsonl").open("a") as stream:
        stream.write('{"seq": 99, "time": 17637')
    resumed_to_the_end(folder, before)
    assert_nothing_is_left(folder, home)


def test_ctrl_c_once_finishes_the_cell(study: Path, home: Path, start: Begin) -> None:
    folder = home / "run"
    running = start(folder, "run", study, "--out", folder)
    running.wait_for(measuring("guest"))
    under_way = [e["cell"] for e in events(folder) if e["type"] == "cell_started"][-1]
    running.process.send_signal(signal.SIGINT)
    status, output = running.end()
    assert status == 130
    assert "tare resume" in output
    assert finished_cells(folder)[under_way] == "ok"
    assert_nothing_is_left(folder, home)
    resumed_to_the_end(folder, finished_cells(folder))


def test_ctrl_c_twice_stops_now(study: Path, home: Path, start: Begin) -> None:
    folder = home / "run"
    running = start(folder, "run", study, "--out", folder)
    running.wait_for(measuring("guest"))
    running.process.send_signal(signal.SIGINT)
    running.wait_for(lambda event: event["type"] == "interrupted")
    running.process.send_signal(signal.SIGINT)
    status, output = running.end()
    assert status == 130
    assert "stopping now" in output or "finishing the current cell" in output
    assert f"tare resume {folder}" in " ".join(output.split())
    assert_nothing_is_left(folder, home)


def test_a_hypervisor_killed_in_a_cell_costs_that_cell_only(
    study: Path, home: Path, start: Begin
) -> None:
    folder = home / "run"
    running = start(folder, "run", study, "--blocks", "1", "--out", folder)
    running.wait_for(measuring("guest"))
    os.kill(guest_threads(folder)[-1], signal.SIGKILL)
    status, output = running.end()
    assert status == 1, output
    assert "complete: 4 cells planned, 3 ok, 1 failed" in " ".join(output.split())
    cells = finished_cells(folder)
    failed = [cell for cell, state in cells.items() if state == "failed"]
    assert len(failed) == 1
    assert len(cells) == 4
    reason = next(
        event["reason"]
        for event in events(folder)
        if event["type"] == "cell_finished" and event["cell"] == failed[0]
    )
    assert "signal" in reason.lower() or "kill" in reason.lower()
    stopped = [e for e in events(folder) if e["type"] == "machine_stopped" and not e["expected"]]
    assert len(stopped) == 1
    assert_nothing_is_left(folder, home)


@contextmanager
def little_memory(home: Path) -> Iterator[Path]:
    """A control group with next to no memory."""
    parents = {Path("/sys/fs/cgroup/memory"): "memory.limit_in_bytes"}
    parents[Path("/sys/fs/cgroup")] = "memory.max"
    for parent, limit in parents.items():
        group = parent / f"tare-test-{home.name}-{os.getpid()}"
        try:
            group.mkdir()
            (group / limit).write_text(str(4 << 20))
        except OSError:
            if group.is_dir():
                group.rmdir()
            continue
        yield group
        group.rmdir()
        return
    pytest.skip("no control group for memory can be made here")


def test_hypervisor_ended_by_the_oom_killer_is_retried_and_reported(
    study: Path, home: Path, start: Begin
) -> None:
    folder = home / "run"
    with little_memory(home) as group:
        running = start(folder, "run", study, "--blocks", "1", "--out", folder)
        # While it boots it takes its memory: from then on there is none.
        running.wait_for(lambda e: e["type"] == "machine_starting" and e["arm"] == "guest")
        deadline = time.monotonic() + patient(60)
        while not (found := hypervisors_of(running.process.pid)):
            assert time.monotonic() < deadline
            time.sleep(0.005)
        (group / "cgroup.procs").write_text(str(found[0]))
        status, output = running.end()
    assert status == 0, output
    assert "complete: 4 cells planned, 4 ok" in " ".join(output.split())
    stopped = [e for e in events(folder) if e["type"] == "machine_stopped" and not e["expected"]]
    assert len(stopped) == 1
    assert "its kernel killed QEMU (OOM killer)" in stopped[0]["reason"]
    assert_nothing_is_left(folder, home)


@pytest.mark.parametrize("after_s", [pytest.param(0.0, marks=pytest.mark.acceptance), 0.7])
def test_hypervisor_killed_during_boot_is_retried_and_reported(
    study: Path, home: Path, start: Begin, after_s: float
) -> None:
    folder = home / "run"
    running = start(folder, "run", study, "--blocks", "1", "--out", folder)
    running.wait_for(lambda e: e["type"] == "machine_starting" and e["arm"] == "guest")
    deadline = time.monotonic() + patient(60)
    while not (found := hypervisors_of(running.process.pid)):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    time.sleep(after_s)
    os.kill(found[0], signal.SIGKILL)
    status, output = running.end()
    assert status == 0, output
    assert "complete: 4 cells planned, 4 ok" in " ".join(output.split())
    stopped = [e for e in events(folder) if e["type"] == "machine_stopped" and not e["expected"]]
    assert len(stopped) == 1
    assert "QEMU was killed by SIGKILL" in stopped[0]["reason"]
    assert_nothing_is_left(folder, home)


def hypervisors_of(pid: int) -> list[int]:
    found = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        # One that ends between the two looks is none.
        with contextlib.suppress(OSError):
            if Path(f"/proc/{child}/comm").read_text().startswith("qemu-system"):
                found.append(int(child))
    return found


def test_two_runs_at_once_are_refused(study: Path, home: Path, start: Begin) -> None:
    folder = home / "run"
    running = start(folder, "run", study, "--out", folder)
    running.wait_for(measuring("bare"))
    second = tare("run", study, "--out", home / "second")
    assert second.returncode == 2
    assert f"process {running.process.pid}, " in second.stderr
    assert not (home / "second").exists()
    status, output = running.end()
    assert status == 0, output


def test_a_folder_that_holds_a_run_is_refused(study: Path, home: Path) -> None:
    folder = home / "run"
    folder.mkdir()
    (folder / "events.jsonl").write_text("{}\n")
    outcome = tare("run", study, "--out", folder)
    assert outcome.returncode == 2
    assert "already holds a run" in outcome.stderr
    assert (folder / "events.jsonl").read_text() == "{}\n"


def test_a_full_disk_is_refused_before_anything_starts(study: Path, home: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    disk = home / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", disk], check=True)
    try:
        outcome = tare("run", study, "--out", disk / "run")
        assert outcome.returncode == 2
        assert "MiB are free" in outcome.stderr
        assert not (disk / "run").exists()
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_disk_that_fills_up_stops_the_run_in_order(study: Path, home: Path, start: Begin) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    disk = home / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300m", "none", disk], check=True)
    try:
        folder = disk / "run"
        running = start(folder, "run", study, "--out", folder)
        running.wait_for(lambda event: event["type"] == "cell_finished")
        with pytest.raises(OSError, match="No space"), (disk / "filler").open("wb") as filler:
            while True:
                filler.write(bytes(1 << 20))
                filler.flush()
        status, output = running.end()
        assert status == 1, output
        assert "No space left on device" in output
        assert f"tare resume {folder}" in output
        assert_nothing_is_left(folder, home)
        before = finished_cells(folder)
        (disk / "filler").unlink()
        resumed_to_the_end(folder, before)
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("accelerater: tcg", "did you mean 'accelerator'"),
        ("kernel: /nowhere/vmlinuz", "/nowhere/vmlinuz"),
        ("shape: {vcpus: 1, memory: 1MB}", "32 MiB"),
    ],
)
def test_wrong_studies_start_nothing(study: Path, home: Path, wrong: str, message: str) -> None:
    study.write_text(STUDY.replace("accelerator: tcg", f"accelerator: tcg, {wrong}"))
    outcome = tare("run", study, "--out", home / "run")
    assert outcome.returncode == 2, outcome.stdout + outcome.stderr
    assert message in outcome.stderr
    assert not (home / "run").exists()


def test_too_many_vcpus_are_skipped_with_the_reason(study: Path, home: Path) -> None:
    large = STUDY.replace("accelerator: tcg}", "accelerator: tcg, shape: {vcpus: 4000}}")
    study.write_text(
        large.replace("scenarios:", "  other: {platform: qemu, accelerator: tcg}\nscenarios:")
    )
    outcome = tare("plan", study)
    assert outcome.returncode == 0, outcome.stderr
    assert "guest skipped: wants 4000 vCPUs" in outcome.stdout
    # Without another arm, the baseline has the study's size, and nothing is compared.
    study.write_text(large)
    outcome = tare("plan", study)
    assert outcome.returncode == 0, outcome.stderr
    assert "guest skipped: wants 4000 vCPUs" in outcome.stdout
    assert "nothing is compared" in outcome.stdout
