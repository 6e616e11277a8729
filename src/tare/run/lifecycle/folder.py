"""A run's folder: its events, series, logs and report, and the command that resumes the run."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tare.errors import InputError, TareError
from tare.events import EventLog, Record, RunStarted
from tare.events.chain import seal_path
from tare.events.stream import read_entries
from tare.outputs import PART, remedy, unwritable

LEAST_FREE_BYTES = 256 * 1024 * 1024
ANY_CLUSTER = "ADDRESS"
"""Placeholder for the address of a scheduler that is not known."""


@dataclass(frozen=True)
class RunFolder:
    """The paths within a run's folder."""

    path: Path

    @property
    def events(self) -> Path:
        """The append-only stream of events, from which everything else is derived."""
        return self.path / "events.jsonl"

    @property
    def study(self) -> Path:
        """The study as the user wrote it."""
        return self.path / "study.yaml"

    @property
    def series(self) -> Path:
        """Binary series as Parquet, one file each."""
        return self.path / "series"

    @property
    def outputs(self) -> Path:
        """Output of measured programs, one file for each cell that runs one."""
        return self.path / "outputs"

    @property
    def machines(self) -> Path:
        """Consoles and logs, one folder per machine."""
        return self.path / "machines"

    @property
    def report(self) -> Path:
        """The report, as one self-contained page."""
        return self.path / "report.html"

    def relative(self, path: Path) -> str:
        """Return ``path`` as written in events: relative to the folder."""
        return str(path.relative_to(self.path))


def create_folder(path: Path) -> RunFolder:
    """Create the folder of a new run.

    Raises:
        InputError: The folder holds a run that wrote events, or other files; or it cannot be
            written, or its disk has less than 256 MiB free.
    """
    folder = RunFolder(path.absolute())
    if path.is_dir() and _holds_no_event(folder):
        _clear(folder)
    if folder.events.exists():
        raise InputError(
            f"{path} already holds a run",
            f"resume it: `{resume_command(path, first_event(folder.events))}`, "
            "or choose another folder with --out",
        )
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is a file", "choose a folder with --out")
    if path.is_dir() and any(path.iterdir()):
        raise InputError(f"{path} is not empty", "choose a new folder with --out")
    _require_free_space(folder.path)
    try:
        folder.series.mkdir(parents=True)
        folder.machines.mkdir()
    except OSError as error:
        raise InputError(
            f"cannot create {path}: {error.strerror}",
            f"{remedy(error, folder.path)}; or choose another folder with --out",
        ) from error
    return folder


def open_folder(path: Path) -> RunFolder:
    """Open the folder of an existing run.

    Raises:
        InputError: There is no run in it.
    """
    folder = RunFolder(path.absolute())
    if path.is_file():
        raise InputError(f"{path} is a file", f"name the run's folder: {path.parent}")
    if not folder.events.is_file():
        if path.is_dir() and _holds_no_event(folder):
            raise InputError(
                f"the run in {path} was killed before its first event",
                f"start it again in the same folder: tare run STUDY --out {path}",
            )
        raise InputError(
            f"{path} holds no run (there is no {folder.events.name})",
            "name a folder that `tare run` wrote",
        )
    return folder


def resume_command(directory: Path, started: RunStarted | None, cluster: str = ANY_CLUSTER) -> str:
    """Return the command that resumes a run, with the cluster if several hosts share the run.

    Args:
        directory: The run's folder.
        started: The run's first event; None if it is not known.
        cluster: The address of the scheduler, or ``local:N``.
    """
    shared = started is not None and is_shared(started)
    return f"tare resume {directory}" + (f" --cluster {cluster}" if shared else "")


def is_shared(started: RunStarted) -> bool:
    """Return whether hosts of a cluster share a run: each is recorded with its worker."""
    return any(
        isinstance(each, dict) and {"worker", "spread"} <= each.keys()
        for each in started.host.values()
    )


def first_event(events: Path) -> RunStarted | None:
    """Return the first event of a run; None if it cannot be read.

    Args:
        events: The run's events.
    """
    with suppress(TareError, OSError):
        for record in read_entries(events):
            if isinstance(record, Record) and isinstance(record.event, RunStarted):
                return record.event
            break
    return None


@contextmanager
def open_event_log(folder: RunFolder, cluster: str = ANY_CLUSTER) -> Iterator[EventLog]:
    """Open a run's events for appending; an error of the disk names the command that resumes.

    Args:
        folder: The run's folder.
        cluster: If hosts share the run: the address of their scheduler.

    Raises:
        InputError: The folder cannot be written, or another process writes there.
        TareError: The disk is full or failed during the run.
    """
    # Imported here, because commands that only read a run do not need it.
    from tare.run.lifecycle.only_writer import only_writer

    with only_writer(folder.path) as guard:
        try:
            log = EventLog(folder.events, guard)
        except OSError as error:
            raise unwritable(folder.events, error, "then resume the run") from error
        try:
            with log:
                yield log
        except OSError as error:
            raise _write_error(folder, cluster, error) from error


def _write_error(folder: RunFolder, cluster: str, error: OSError) -> TareError:
    if not folder.events.exists():
        return TareError(
            f"{folder.path} was removed while the run wrote into it, and its results are lost",
            "start the run again",
        )
    # Users do not know the names of temporary files: name the folder instead.
    path = folder.path
    if error.filename and not Path(os.fsdecode(error.filename)).name.startswith(PART):
        path = Path(os.fsdecode(error.filename))
    return TareError(
        f"{path}: {error.strerror or error}",
        f"{remedy(error, path)}; then resume: "
        + resume_command(folder.path, first_event(folder.events), cluster),
    )


def _holds_no_event(folder: RunFolder) -> bool:
    """Return whether a run was killed here before its first event, and nothing else is here."""
    # Imported here, because commands that only read a run do not need it.
    from tare.run.lifecycle.interrupt import CLEANING_LOG
    from tare.run.lifecycle.only_writer import NAME as WRITER_LOCK

    names = {each.name for each in folder.path.iterdir()}
    own = {"series", "machines", "study.yaml", "events.jsonl", "events.last", WRITER_LOCK}
    if not names or not names <= own | {CLEANING_LOG}:
        return False
    try:
        if b"\n" in folder.events.read_bytes():
            return False
    except FileNotFoundError:
        if not names & {"series", "machines"}:
            return False
    return not any(
        part.is_dir() and any(part.iterdir()) for part in (folder.series, folder.machines)
    )


def _clear(folder: RunFolder) -> None:
    """Remove the files that a run made before its first event, unless another process writes."""
    from tare.run.lifecycle.interrupt import CLEANING_LOG
    from tare.run.lifecycle.only_writer import only_writer

    with only_writer(folder.path):
        for part in (folder.series, folder.machines):
            if part.is_dir():
                part.rmdir()
        log = folder.path / CLEANING_LOG
        for file in (folder.study, folder.events, seal_path(folder.events), log):
            file.unlink(missing_ok=True)


def _require_writable(folder: Path) -> None:
    """Check that a folder is writable by writing there: permissions do not show it for root."""
    try:
        Path(tempfile.mkdtemp(prefix=PART, dir=folder)).rmdir()
    except OSError as error:
        raise unwritable(folder, error, "or choose another folder with --out") from error


def _require_free_space(path: Path) -> None:
    existing = path
    while not existing.exists():
        existing = existing.parent
    _require_writable(existing)
    free = shutil.disk_usage(existing).free
    if free < LEAST_FREE_BYTES:
        raise InputError(
            f"only {free // 2**20} MiB are free where {path} would be; "
            f"a run needs {LEAST_FREE_BYTES // 2**20} MiB",
            "free some space or choose another disk with --out",
        )
