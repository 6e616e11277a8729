"""A run's folder is made where nothing is, and opened where a run is; else a hint is given."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tare.errors import InputError, TareError
from tare.events import read_fold
from tare.outputs import PART
from tare.run.lifecycle.folder import create_folder, open_event_log, open_folder


def _nothing(_: Path) -> None:
    pass


def _file(path: Path) -> None:
    path.write_text("something")


def _other_files(path: Path) -> None:
    path.mkdir()
    (path / "notes.txt").touch()


def _run(path: Path) -> None:
    path.mkdir()
    (path / "events.jsonl").write_text("{}\n")


@pytest.mark.parametrize("made", [_nothing, Path.mkdir])
def test_a_run_begins_in_a_folder_that_is_new_or_empty(
    made: Callable[[Path], None], tmp_path: Path
) -> None:
    made(tmp_path / "run")
    found = create_folder(tmp_path / "run")
    assert found.path == tmp_path / "run"
    assert found.series.is_dir() and found.machines.is_dir()


@pytest.mark.parametrize(
    ("made", "text"),
    [(_file, "is a file"), (_other_files, "is not empty"), (_run, "already holds a run")],
)
def test_a_run_begins_nowhere_else(made: Callable[[Path], None], text: str, tmp_path: Path) -> None:
    made(tmp_path / "run")
    with pytest.raises(InputError, match=text) as refused:
        create_folder(tmp_path / "run")
    assert "--out" in refused.value.hint


@pytest.mark.parametrize(
    "left",
    [
        ("series/", "machines/"),
        ("series/", "machines/", "study.yaml", "writer.lock"),
        ("series/", "machines/", "study.yaml", "events.jsonl=", "events.last"),
        ("series/", "machines/", "study.yaml", 'events.jsonl={"seq":0,'),
        ("events.jsonl=",),
    ],
)
def test_a_run_that_was_killed_before_its_first_event_is_started_again_in_its_folder(
    left: tuple[str, ...], tmp_path: Path
) -> None:
    for each in left:
        name, _, content = each.partition("=")
        path = tmp_path / "run" / name
        path.parent.mkdir(exist_ok=True)
        if name.endswith("/"):
            path.mkdir(parents=True)
        else:
            path.write_text(content)
    if "writer.lock" in left:
        os.utime(tmp_path / "run" / "writer.lock", (1, 1))
    with pytest.raises(InputError) as refused:
        read_fold(open_folder(tmp_path / "run").events)
    assert f"tare run STUDY --out {tmp_path / 'run'}" in refused.value.hint
    found = create_folder(tmp_path / "run")
    assert {each.name for each in found.path.iterdir()} == {"series", "machines"}


@pytest.mark.parametrize("more", ["series/a.parquet", "machines/m/console.log", "notes.txt"])
def test_files_other_than_those_of_a_beginning_run_are_kept(more: str, tmp_path: Path) -> None:
    for part in ("series", "machines"):
        (tmp_path / "run" / part).mkdir(parents=True)
    (tmp_path / "run" / more).parent.mkdir(exist_ok=True)
    (tmp_path / "run" / more).touch()
    with pytest.raises(InputError, match="is not empty"):
        create_folder(tmp_path / "run")
    assert (tmp_path / "run" / more).exists()


@pytest.mark.parametrize(("free", "begins"), [(256 << 20, True), ((256 << 20) - 1, False)])
def test_a_run_begins_where_there_is_room(
    free: int, begins: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage:
        def __init__(self, _: Path) -> None:
            self.free = free

    monkeypatch.setattr("tare.run.lifecycle.folder.shutil.disk_usage", Usage)
    if begins:
        create_folder(tmp_path / "run")
        return
    with pytest.raises(InputError, match="only 255 MiB are free") as refused:
        create_folder(tmp_path / "run")
    assert "--out" in refused.value.hint
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("made", "text"),
    [(_nothing, "holds no run"), (_file, "is a file"), (_other_files, "holds no run")],
)
def test_path_without_a_run_cannot_be_resumed(
    made: Callable[[Path], None], text: str, tmp_path: Path
) -> None:
    made(tmp_path / "run")
    with pytest.raises(InputError, match=text):
        open_folder(tmp_path / "run")


def test_a_run_is_opened_where_it_is(tmp_path: Path) -> None:
    _run(tmp_path / "run")
    assert open_folder(tmp_path / "run").path == tmp_path / "run"


def _full(name: str | None) -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)


@pytest.mark.parametrize(
    ("named", "message"), [(None, ""), ("series/a.parquet", "series/a.parquet"), (f"{PART}x", "")]
)
def test_the_file_that_a_full_disk_refused_is_named_if_known(
    named: str | None, message: str, tmp_path: Path
) -> None:
    run = create_folder(tmp_path / "run")
    with pytest.raises(TareError) as refused, open_event_log(run):
        raise _full(named and str(run.path / named))
    assert str(refused.value).startswith(f"{run.path / message}: No space left on device")
    assert refused.value.hint.endswith(f"then resume: tare resume {run.path}")


def test_removed_folder_cannot_be_resumed(tmp_path: Path) -> None:
    run = create_folder(tmp_path / "run")
    removed = "was removed while the run wrote into it"
    with pytest.raises(TareError, match=removed) as refused, open_event_log(run):
        shutil.rmtree(run.path)
        raise FileNotFoundError(errno.ENOENT, "No such file", str(run.series / "a.parquet"))
    assert refused.value.hint == "start the run again"
