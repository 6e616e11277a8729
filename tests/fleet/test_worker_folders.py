"""A worker's folders go with it, and what a killed one left goes with the next."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tare.fleet.scratch import scratch

HOLDER = """
import subprocess, sys, time
from tare.fleet.scratch import scratch
with scratch("part") as place:
    (place.folder / "run").mkdir()
    child = 0
    if "child" in sys.argv:
        quiet = subprocess.DEVNULL
        child = subprocess.Popen(["sleep", "60"], stdout=quiet, pass_fds=(place.lock,)).pid
    print(place.folder, child, flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def holding(*words: str) -> tuple[subprocess.Popen[str], Path, int]:
    call = [sys.executable, "-c", HOLDER, *words]
    process = subprocess.Popen(call, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    folder, child = process.stdout.readline().split()
    return process, Path(folder), int(child)


def killed(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_scratch_folder_is_removed_afterwards(places: Path) -> None:
    with scratch("part") as place:
        (place.folder / "file").write_text("x")
        assert place.folder.parent == places
    assert not list(places.iterdir())


def test_folders_of_killed_processes_are_removed_and_those_in_use_stay(places: Path) -> None:
    (places / "tare-part-of-another-kind").symlink_to(places)
    dead, left, _ = holding()
    killed(dead)
    living, kept, _ = holding()
    try:
        assert not left.exists()
        with scratch("worker"), scratch("part"):
            assert (kept / "run").is_dir()
    finally:
        killed(living)
    assert (kept / "run").is_dir()
    with scratch("part"):
        assert not kept.exists()


def test_a_process_that_ends_in_order_after_its_worker_keeps_the_folder() -> None:
    worker, folder, child = holding("child")
    killed(worker)
    try:
        with scratch("part"):
            assert (folder / "run").is_dir()
    finally:
        os.kill(child, signal.SIGKILL)
    deadline = time.monotonic() + 20
    while folder.exists():
        assert time.monotonic() < deadline
        with scratch("part"):
            time.sleep(0.05)
