"""The files of series, opened only where they are what the run's events say of them.

A folder may come from anyone, and what decodes Parquet is made for speed, not for enemies. So a
file is read only if it lies in the run's folder and has the SHA-256 that was recorded when it was
written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tare.events.results import SeriesEntry

if TYPE_CHECKING:
    import polars as pl

T = TypeVar("T")


class UnreadableSeries(Exception):
    """A file of a series is missing, is not what was recorded, or cannot be read; says which."""


def read_series(entry: SeriesEntry, columns: Sequence[str] | None = None) -> pl.DataFrame:
    """Return a series as a table.

    Args:
        entry: Which.
        columns: The columns that are wanted; all by default.

    Raises:
        UnreadableSeries: It cannot be had as it was recorded.
    """
    return scan_series(entry, columns, lambda lazy: lazy.collect())


def scan_series(
    entry: SeriesEntry, columns: Sequence[str] | None, look: Callable[[pl.LazyFrame], T]
) -> T:
    """Return what ``look`` makes of a series that need not fit into memory.

    Args:
        entry: Which.
        columns: The columns that are wanted; all where None.
        look: Is given the series, and collects what it needs of it.

    Raises:
        UnreadableSeries: As of :func:`read_series`.
    """
    # Loaded here: whether a file is the recorded one is known without it.
    import polars as pl

    require_recorded(entry)
    try:
        frame = pl.scan_parquet(entry.path, glob=False)
        return look(frame if columns is None else frame.select(columns))
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UnreadableSeries(f"{entry.path}: it cannot be read: {reason}") from error


def require_recorded(entry: SeriesEntry) -> None:
    """See that a series' file is the one that was recorded.

    Raises:
        UnreadableSeries: It is not.
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
        # A ValueError is of a path with a zero byte.
        raise UnreadableSeries(f"{entry.path}: it cannot be read: {error}") from error


@lru_cache(maxsize=4096)
def _sha256(path: Path, *version: int) -> str:
    """Return the SHA-256 of a file, once for each version of it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
