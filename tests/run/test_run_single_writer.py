"""A run's folder has one writer, whichever computer, mount or state folder others come from."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from analysis.analysis_simulate import SimulatedMetric, SimulatedRun, events_of, write_run
from run.run_driving import tare
from tare.errors import TareError
from tare.events import BlockStarted, EventLog, RunStarted
from tare.run.lifecycle.folder import RunFolder, create_folder, open_event_log, open_folder
from tare.run.lifecycle.only_writer import (
    NAME,
    STALE_AFTER_S,
    FolderHeld,
    only_writer,
    this_process,
)

WRITER = """
import sys
from pathlib import Path
from tare.run.lifecycle.only_writer import only_writer
with only_writer(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def writer(folder: Path, **env: str) -> Iterator[subprocess.Popen[str]]:
    """Hold a folder in another process."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, env={**os.environ, **env},
    ) as process:  # fmt: skip
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return create_folder(tmp_path / "run").path


@pytest.fixture
def unlocked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have flock(2) succeed always, as on NFS that is mounted with ``local_lock=all``."""
    monkeypatch.setattr(fcntl, "flock", lambda fd, how: None)


def foreign(folder: Path, age_s: float, **changed: object) -> Path:
    """Leave a lock as another computer would."""
    owner = replace(this_process(), host="node-b", boot="another", pid=1, began=1)
    lock = folder / NAME
    lock.write_text(json.dumps({**asdict(owner), **changed}))
    there = lock.stat().st_mtime - age_s
    os.utime(lock, (there, there))
    return lock


def test_a_second_writer_with_another_lock_folder_is_refused_and_learns_of_the_first(
    folder: Path, tmp_path: Path
) -> None:
    with writer(folder, TARE_LOCKS=str(tmp_path / "others")) as first:
        with pytest.raises(FolderHeld) as refused, only_writer(folder):
            pass
        assert f"process {first.pid}" in refused.value.message
        assert f"kill -INT {first.pid}" in refused.value.hint
        assert str(folder) in refused.value.message
    with only_writer(folder):
        pass
    assert not (folder / NAME).exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_two_mounts_of_one_folder_are_one_folder(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "mounted"
    other.mkdir()
    if subprocess.run(["mount", "--bind", folder, other], check=False).returncode:
        pytest.skip("this container may not mount")
    try:
        with writer(folder), pytest.raises(FolderHeld), only_writer(other):
            pass
    finally:
        subprocess.run(["umount", other], check=True)


def test_the_lock_of_a_killed_writer_is_released_at_once(folder: Path) -> None:
    with writer(folder) as first:
        first.kill()
        first.wait()
        assert (folder / NAME).exists()
        with only_writer(folder):
            pass


@pytest.mark.usefixtures("unlocked")
def test_where_locks_stay_on_one_computer_a_living_process_counts(folder: Path) -> None:
    with writer(folder) as first:
        with pytest.raises(FolderHeld), only_writer(folder):
            pass
        first.kill()
        first.wait()
        with only_writer(folder):
            pass


@pytest.mark.usefixtures("unlocked")
def test_another_computers_lock_counts_until_it_gives_no_sign_of_life(folder: Path) -> None:
    foreign(folder, age_s=STALE_AFTER_S - 30)
    with pytest.raises(FolderHeld) as refused, only_writer(folder):
        pass
    assert "a process on node-b writes to" in refused.value.message
    assert "kill" not in refused.value.hint.replace("killed", "")
    assert "try again in 30 s" in refused.value.hint
    foreign(folder, age_s=STALE_AFTER_S + 1)
    with only_writer(folder):
        pass


@pytest.mark.usefixtures("unlocked")
@pytest.mark.parametrize(
    "changed",
    [
        {"boot": this_process().boot, "pids": "pid:[1]"},
        {"boot": ""},
        {"host": "x\x1b[2Jy\n" * 50},
        {"pid": "one"},
    ],
)
def test_a_container_a_reboot_or_a_forged_lock_is_judged_by_its_age(
    folder: Path, changed: dict[str, object]
) -> None:
    foreign(folder, 1, **changed)
    with pytest.raises(FolderHeld) as refused, only_writer(folder):
        pass
    assert refused.value.message.isprintable() and len(refused.value.message) < 500
    foreign(folder, STALE_AFTER_S + 1, **changed)
    with only_writer(folder):
        pass


def test_a_process_of_the_same_number_that_began_later_is_another(folder: Path) -> None:
    own = this_process()
    foreign(folder, 1, boot=own.boot, pids=own.pids, pid=os.getpid(), began=own.began - 1)
    with only_writer(folder):
        pass


def test_an_owner_gives_signs_of_life(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tare.run.lifecycle.only_writer.HEARTBEAT_S", 0.02)
    with only_writer(folder):
        os.utime(folder / NAME, (1, 1))
        deadline = time.monotonic() + 5
        while (folder / NAME).stat().st_mtime < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_writer_taken_for_dead_stops_writing(folder: Path) -> None:
    with open_event_log(open_or_new(folder)) as log:
        log.append(BlockStarted(block=1, order=("a", "b")))
        before = (folder / "events.jsonl").read_bytes()
        (folder / NAME).unlink()
        with pytest.raises(TareError, match="took over"):
            log.append(BlockStarted(block=2, order=("a", "b")))
        assert (folder / "events.jsonl").read_bytes() == before


def open_or_new(folder: Path) -> RunFolder:
    (folder / "events.jsonl").touch()
    return open_folder(folder)


def test_a_process_may_hold_what_it_holds(folder: Path) -> None:
    with only_writer(folder):
        with only_writer(folder):
            pass
        assert (folder / NAME).exists()


def test_lines_that_somebody_else_wrote_end_a_run_before_it_damages_more(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with EventLog(path) as log:
        log.append(BlockStarted(block=1, order=("a", "b")))
        with path.open("ab") as other:
            other.write(b"{}\n")
        with pytest.raises(TareError, match="something else wrote to it"):
            log.append(BlockStarted(block=2, order=("a", "b")))
    assert path.read_bytes().endswith(b"}\n{}\n")


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    metric = SimulatedMetric("latency", {"bare": 1e-6, "box": 2e-6}, unit="s", workload="switch")
    events = events_of(SimulatedRun([metric], arms={"bare": "bare", "box": "oci"}))
    begun = events[0]
    assert isinstance(begun, RunStarted)
    begun = begun.model_copy(update={"study_sha256": hashlib.sha256(b"study").hexdigest()})
    folder = write_run(tmp_path / "whole", [begun, *events[1:]])
    (folder / "study.yaml").write_bytes(b"study")
    return folder


def test_a_held_folder_can_be_read_and_not_resumed(whole: Path) -> None:
    with writer(whole) as first:
        assert tare("report", whole).returncode == 0
        assert tare("export", whole).returncode == 0
        resumed = tare("resume", whole)
        assert resumed.returncode == 2 and f"process {first.pid}" in resumed.stderr
        assert tare("verify", "--repair", whole).returncode == 2


@pytest.mark.parametrize("damage", ["interleaved", "half a line", "edited", "shortened", "garbage"])
def test_a_damaged_stream_is_recovered_up_to_its_last_good_event(whole: Path, damage: str) -> None:
    stream = whole / "events.jsonl"
    lines = stream.read_bytes().splitlines(keepends=True)
    kept, lost = len(lines) - 3, 3
    if damage == "interleaved":
        # Two writers that both continued after the same event.
        damaged = lines[:-1] + [lines[-2]] * 2 + lines[-1:]
        kept, lost = len(lines) - 1, 3
    elif damage == "half a line":
        damaged = [*lines[:-3], lines[-3][:40], *lines[-2:]]
    elif damage == "edited":
        damaged = [*lines[:-3], lines[-3].replace(b'"seq"', b'"seq" ', 1), *lines[-2:]]
    elif damage == "shortened":
        damaged = lines[:-3]
    else:
        damaged = [*lines[:-3], b"\0\xff\n", *lines[-2:]]
    stream.write_bytes(b"".join(damaged))
    assert tare("verify", whole).returncode == 1
    done = tare("verify", "--repair", whole)
    assert done.returncode == 0, done.stderr
    assert f"repaired: {kept} events kept, {lost} lost" in done.stdout
    assert stream.read_bytes() == b"".join(lines[:kept])
    (original,) = whole.glob("events.damaged-*.jsonl")
    assert original.read_bytes() == b"".join(damaged)
    again = tare("verify", whole)
    assert again.returncode == 0 and original.name in again.stdout, again
    assert tare("report", whole).returncode == 0
    assert tare("export", whole).returncode == 0
    with open_event_log(open_folder(whole)) as log:
        log.append(BlockStarted(block=99, order=("a", "b")))
    assert "nothing to repair" in tare("verify", "--repair", whole).stdout


def test_stream_without_a_first_event_is_reported_and_left(whole: Path) -> None:
    stream = whole / "events.jsonl"
    stream.write_bytes(b"{}\n")
    done = tare("verify", "--repair", whole)
    assert done.returncode == 2 and "nothing can be recovered" in done.stderr
    assert stream.read_bytes() == b"{}\n" and not list(whole.glob("*damaged*"))
