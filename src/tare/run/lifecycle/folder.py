"""One run is one folder: where its events, series, logs and report are."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tare.errors import InputError
from tare.events.chain import seal_path
from tare.outputs import PART, remedy, unwritable
from tare.run.lifecycle.resume_command import first_event, resuming

LEAST_FREE_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True)
class RunFolder:
    """The paths within a run's folder."""

    path: Path

    @property
    def events(self) -> Path:
        """The append-only stream that everything else is made from."""
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
        """What measured programs wrote themselves, one file for each cell that runs one."""
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
            f"go on with it by `{resuming(path, first_event(folder.events))}`, "
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
        raise InputError(
            f"{path} holds no run (there is no {folder.events.name})",
            "name a folder that `tare run` wrote",
        )
    return folder


def _holds_no_event(folder: RunFolder) -> bool:
    """Return whether a run was killed here before its first event, and nothing else is here."""
    # Readers of a run write nothing, and load none of what guards it.
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
    """Remove what a run made before its first event, unless it is about to write that."""
    from tare.run.lifecycle.interrupt import CLEANING_LOG
    from tare.run.lifecycle.only_writer import only_writer

    with only_writer(folder.path):
        for part in (folder.series, folder.machines):
            if part.is_dir():
                part.rmdir()
        log = folder.path / CLEANING_LOG
        for file in (folder.study, folder.events, seal_path(folder.events), log):
            file.unlink(missing_ok=True)


def _require_writable(place: Path) -> None:
    """See that something can be made in a folder; asked of the disk, for root may do anything."""
    try:
        Path(tempfile.mkdtemp(prefix=PART, dir=place)).rmdir()
    except OSError as error:
        raise unwritable(place, error, "or choose another folder with --out") from error


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
