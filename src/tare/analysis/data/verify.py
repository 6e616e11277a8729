"""Check that a run's folder is as the run wrote it: events, series, logs and the study's file."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from tare.analysis.data.parquet import UnreadableSeries
from tare.analysis.data.series_file import require_recorded
from tare.events import (
    Calibrated,
    CellFinished,
    Fold,
    MachineStopped,
    Record,
    UnreadableStream,
)
from tare.events.chain import Chain, read_seal
from tare.events.repair import kept_originals
from tare.events.stream import read_entries
from tare.plaintext import plain_line

_LONGEST_PATH = 300


@dataclass(frozen=True)
class FolderFindings:
    """Findings about a run's folder.

    Args:
        events: How many whole events there are.
        chained: Whether the events carry hashes; events from before 2026-11-23 do not.
        last: The hash of the last event, in hexadecimal; empty if no event is chained.
        series: How many files of series were compared with their recorded hashes.
        damage: What differs from what was written, one sentence each.
        notes: Facts that a reader should know but that are not damage.
        calibrated: What the agent and its peers measured on each host before the first block.
        files: How many logs and programs' outputs were compared with their recorded hashes.
    """

    events: int
    chained: bool
    last: str
    series: int
    damage: tuple[str, ...]
    notes: tuple[str, ...]
    calibrated: tuple[Calibrated, ...] = ()
    files: int = 0


def verify_run(folder: Path, last: str = "") -> FolderFindings:
    """Compare a run's folder with the record in its events.

    Args:
        folder: The folder.
        last: The hash that the run reported at its end, or its first digits; empty: unknown.
    """
    stream = folder / "events.jsonl"
    fold, chain, damage = Fold(), Chain(read_seal(stream)), []
    files: dict[str, str] = {}
    try:
        for each in read_entries(stream, chain):
            if isinstance(each, Record):
                fold.take(each)
                if isinstance(each.event, CellFinished | MachineStopped):
                    # A cell that is measured again writes its file again.
                    files |= each.event.files
    except UnreadableStream as error:
        damage.append(str(error))
    damage += [f"{stream.name}: {doubt}" for doubt in (*fold.doubts, *chain.doubts())]
    if last and not chain.digest.startswith(last.lower()):
        damage.append(f"{stream.name}: its last hash is {chain.digest}, not {last}")
    entries = fold.all_series(folder)
    for entry in entries:
        try:
            require_recorded(entry)
        except UnreadableSeries as error:
            damage.append(plain_line(str(error), _LONGEST_PATH))
    damage += [fault for name, sha in files.items() if (fault := _file(folder, name, sha))]
    damage += _study(folder, fold)
    return FolderFindings(
        events=chain.lines,
        chained=chain.chained,
        last=chain.digest if chain.chained else "",
        series=len(entries),
        files=len(files),
        damage=tuple(damage),
        notes=tuple(_notes(folder, stream, chain, fold, {entry.path for entry in entries})),
        calibrated=tuple(fold.calibrated.values()),
    )


def series_doubts(folder: Path, fold: Fold) -> tuple[str, ...]:
    """Describe the series of counted cells that differ from the record, one sentence each."""
    found = []
    for entry in fold.series(folder):
        try:
            require_recorded(entry)
        except UnreadableSeries as error:
            found.append(plain_line(str(error), _LONGEST_PATH))
    return tuple(found)


def _file(folder: Path, name: str, sha256: str) -> str:
    """Describe what is wrong with a log or an output; empty if it matches the record."""
    shown = plain_line(name, _LONGEST_PATH)
    try:
        path = (folder / name).resolve()
        if not path.is_relative_to(folder.resolve()):
            return f"{shown}: it is not in the run's folder"
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError) as error:
        # A path with a zero byte raises a ValueError.
        return f"{shown}: it cannot be read: {getattr(error, 'strerror', None) or error}"
    return "" if found == sha256 else f"{shown}: it was changed after it was recorded"


def _study(folder: Path, fold: Fold) -> list[str]:
    if fold.started is None:
        return []
    try:
        found = hashlib.sha256((folder / "study.yaml").read_bytes()).hexdigest()
    except OSError as error:
        return [f"study.yaml: {error.strerror or error}"]
    same = found == fold.started.study_sha256
    return [] if same else ["study.yaml: it is not the file that the run began with"]


def _notes(folder: Path, stream: Path, chain: Chain, fold: Fold, recorded: set[Path]) -> list[str]:
    notes = []
    if not chain.chained:
        notes.append("the events are not chained: they were written before Tare did so")
    elif chain.plain:
        notes.append(f"the first {chain.plain} events are not chained: an older Tare wrote them")
    if stream.exists() and stream.read_bytes()[-1:] != b"\n":
        notes.append("a torn last line is left out: the process was ended while it wrote it")
    notes += [
        f"the events were repaired: {each.name} is what they were before"
        for each in kept_originals(stream)
    ]
    unknown = sorted(set((folder / "series").glob("*")) - recorded)
    if unknown:
        notes.append(
            f"{len(unknown)} files in series/ belong to no recorded cell, such as "
            f"{plain_line(unknown[0].name, _LONGEST_PATH)}"
        )
    if fold.ended is None:
        notes.append("the run has not ended; it is judged as far as it went")
    return notes
