"""Read the files of series, but only if they match the record in the run's events.

A folder may come from anyone, and Parquet decoders are made for speed, not for hostile input. So a
file is read only if it is in the run's folder and has the SHA-256 that was recorded when it was
written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tare.analysis.data.parquet import Columns, UnreadableSeries, read_columns, read_slices
from tare.events.results import SeriesEntry


def read_series(entry: SeriesEntry, names: Sequence[str] | None = None) -> Columns:
    """Return the columns of a series.

    Args:
        entry: The series.
        names: The columns to read; by default all that were recorded.

    Raises:
        UnreadableSeries: The file is missing or differs from what was recorded.
    """
    require_recorded(entry)
    return read_columns(entry.path, (tuple(entry.columns) or None) if names is None else names)


def read_pieces(entry: SeriesEntry, name: str, step: int) -> Iterator[NDArray[Any]]:
    """Yield one column of a series that need not fit into memory, ``step`` rows at a time.

    Raises:
        UnreadableSeries: As for :func:`read_series`.
    """
    require_recorded(entry)
    yield from read_slices(entry.path, name, entry.rows, step)


def require_recorded(entry: SeriesEntry) -> None:
    """Check that a series' file is the one that was recorded.

    Raises:
        UnreadableSeries: It differs, is missing, or cannot be read.
    """
    try:
        path = entry.path.resolve()
        if entry.folder is not None and not path.is_relative_to(entry.folder.resolve()):
            raise UnreadableSeries(f"{entry.path}: it is not in the run's folder")
        if not path.is_file():
            raise UnreadableSeries(f"{entry.path}: it is missing")
        about = path.stat()
        if entry.sha256 is not None:
            found = _sha256(path, about.st_mtime_ns, about.st_size, about.st_ino)
            if found != entry.sha256:
                raise UnreadableSeries(
                    f"{entry.path}: it was changed or damaged after it was recorded"
                )
    except (OSError, ValueError) as error:
        # A path with a zero byte raises a ValueError.
        raise UnreadableSeries(f"{entry.path}: it cannot be read: {error}") from error


@lru_cache(maxsize=4096)
def _sha256(path: Path, *version: int) -> str:
    """Return the SHA-256 of a file, once for each version of it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
