"""The command that resumes a run that hosts share, and what is refused."""

from __future__ import annotations

import errno
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from fleet.fleet_cluster import study_file
from run.run_driving import Running, tare
from tare.cli.ending import resume_hint_on_interrupt
from tare.errors import InputError, TareError
from tare.events import EventLog, RunStarted
from tare.run.catalog import build_catalog
from tare.run.lifecycle.folder import RunFolder, create_folder, open_event_log
from tare.study.reading.load import load_study

CLUSTER = "tcp://10.0.0.1:8786"


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    """Hear them again: a command that says its last words hears none until it ends."""
    heard = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {each: signal.getsignal(each) for each in heard}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def begun(folder: Path, *, shared: bool = True) -> Path:
    """Write the first event of a run."""
    folder.mkdir()
    study = load_study(study_file(folder.parent, 2), build_catalog())
    facts = {"worker": "tcp://10.0.0.2:40000", "spread": "split"} if shared else {"kernel": "6.1"}
    with EventLog(folder / "events.jsonl") as log:
        log.append(
            RunStarted(
                run="r",
                study=study.model_dump(mode="json"),
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
def test_shared_run_resumes_with_its_cluster(
    shared: bool, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = begun(tmp_path / "run", shared=shared)
    with pytest.raises(typer.Exit), resume_hint_on_interrupt(folder, CLUSTER):
        raise KeyboardInterrupt
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"interrupted; to resume: tare resume {folder}{words}"


@pytest.mark.parametrize("shared", [True, False])
def test_folder_of_a_shared_run_is_reported_with_its_cluster(shared: bool, tmp_path: Path) -> None:
    folder = begun(tmp_path / "run", shared=shared)
    with pytest.raises(InputError) as refused:
        create_folder(folder)
    words = f"`tare resume {folder}" + (" --cluster ADDRESS`" if shared else "`")
    assert words in refused.value.hint
    with pytest.raises(TareError) as full, open_event_log(RunFolder(folder), CLUSTER):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    words = f"tare resume {folder}" + (f" --cluster {CLUSTER}" if shared else "")
    assert full.value.hint.endswith(f"then resume: {words}")


@pytest.mark.parametrize("more", [(), ("--accept",), ("--wait",)])
def test_shared_run_does_not_resume_without_its_cluster(
    more: tuple[str, ...], tmp_path: Path
) -> None:
    folder = begun(tmp_path / "run")
    before = (folder / "events.jsonl").read_bytes()
    result = tare("resume", folder, *more)
    assert result.returncode == 2, result
    assert f"hosts of a cluster share the run in {folder}" in result.stderr
    assert f"run: tare resume {folder} --cluster ADDRESS, where ADDRESS is" in result.stderr
    assert (folder / "events.jsonl").read_bytes() == before


def test_ctrl_c_while_waiting_for_a_cluster_names_the_resume_command(tmp_path: Path) -> None:
    folder = begun(tmp_path / "run")
    with socket.create_server(("127.0.0.1", 0)) as mute:
        # It takes connections, and says nothing.
        address = f"tcp://127.0.0.1:{mute.getsockname()[1]}"
        with Running(folder, "resume", folder, "--cluster", address) as going:
            mute.settimeout(60)
            asked, _ = mute.accept()
            with asked:
                going.process.send_signal(signal.SIGINT)
                status, output = going.end(60)
    assert status == 130, output
    last = output.splitlines()[-1]
    assert last == f"interrupted; to resume: tare resume {folder} --cluster {address}"


@pytest.mark.parametrize("command", ["run", "resume"])
def test_a_run_that_waits_for_boots_is_not_shared(command: str, tmp_path: Path) -> None:
    what = study_file(tmp_path, 2) if command == "run" else begun(tmp_path / "run")
    result = tare(command, what, "--wait", "--cluster", CLUSTER)
    assert result.returncode == 2, result
    assert "--wait is for a study with `sessions`" in result.stderr
