"""What is typed to go on with a run that hosts share, and what is refused."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import typer

from run.run_driving import tare
from tare.cli.ending import says_how_to_go_on
from tare.errors import InputError, TareError
from tare.events import EventLog, RunStarted
from tare.run.appending import appending
from tare.run.folder import RunFolder, create_folder

CLUSTER = "tcp://10.0.0.1:8786"


def begun(folder: Path, *, shared: bool = True) -> Path:
    """Write the first event of a run."""
    folder.mkdir()
    facts = {"worker": "tcp://10.0.0.2:40000", "spread": "split"} if shared else {"kernel": "6.1"}
    with EventLog(folder / "events.jsonl") as log:
        log.append(
            RunStarted(
                run="r",
                study={"study": "s", "title": "S", "arms": {}, "baseline": "bare"},
                study_path="s.yaml",
                study_sha256="",
                seed=1,
                host={"h1": facts},
                versions={},
            )
        )
    return folder


@pytest.mark.parametrize(
    ("shared", "words"),
    [(True, f" --cluster {CLUSTER}"), (False, "")],
)
def test_a_shared_run_goes_on_with_its_cluster(
    shared: bool, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = begun(tmp_path / "run", shared=shared)
    with pytest.raises(typer.Exit), says_how_to_go_on(folder, CLUSTER):
        raise KeyboardInterrupt
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"interrupted; go on with: tare resume {folder}{words}"


@pytest.mark.parametrize("shared", [True, False])
def test_a_folder_that_holds_a_shared_run_is_told_with_its_cluster(
    shared: bool, tmp_path: Path
) -> None:
    folder = begun(tmp_path / "run", shared=shared)
    with pytest.raises(InputError) as refused:
        create_folder(folder)
    words = f"`tare resume {folder}" + (" --cluster ADDRESS`" if shared else "`")
    assert words in refused.value.hint
    with pytest.raises(TareError) as full, appending(RunFolder(folder), CLUSTER):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    words = f"tare resume {folder}" + (f" --cluster {CLUSTER}" if shared else "")
    assert full.value.hint.endswith(f"then go on with: {words}")


@pytest.mark.parametrize("more", [(), ("--accept",), ("--wait",)])
def test_a_shared_run_does_not_go_on_without_its_cluster(
    more: tuple[str, ...], tmp_path: Path
) -> None:
    folder = begun(tmp_path / "run")
    before = (folder / "events.jsonl").read_bytes()
    told = tare("resume", folder, *more)
    assert told.returncode == 2, told
    assert "is shared by hosts of a cluster" in told.stderr
    assert f"write: tare resume {folder} --cluster ADDRESS" in told.stderr
    assert (folder / "events.jsonl").read_bytes() == before
