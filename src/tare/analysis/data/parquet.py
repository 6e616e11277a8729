"""Read series as arrays; the one place of the analysis that knows how they are stored."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Columns = dict[str, NDArray[Any]]
"""Columns of equal length by name."""


GREATEST = float(1 << 62)
"""Numbers and sums must be smaller, so that no sum overflows; in nanoseconds it is 146 years."""
_NEVER_NEGATIVE = frozenset(
    {"count", "samples", "first", "completed", "failed", "low_ns", "width_ns", "time_ns"}
)
_SUMMED = frozenset({"count", "samples", "completed", "failed"})
STRANGE = (LookupError, ValueError, TypeError, AttributeError, ArithmeticError)
"""Exceptions that are raised when a series holds data of an unexpected form."""


class UnreadableSeries(Exception):
    """A file of a series is missing, differs from the record, or cannot be read.

    The message names the file.
    """


@contextmanager
def understood(path: Path) -> Iterator[None]:
    """Report errors that the contents of a series cause as a series that cannot be read.

    Args:
        path: Its file, for the message.

    Raises:
        UnreadableSeries: The code inside raised one of `STRANGE`.
    """
    try:
        yield
    except STRANGE as error:
        raise UnreadableSeries(
            f"{path}: it does not hold what its columns are called ({type(error).__name__})"
        ) from error


def require_numbers(path: Path, columns: Columns) -> None:
    """Check that columns hold finite numbers.

    Args:
        path: The file, for the message.
        columns: The file's columns.

    Raises:
        UnreadableSeries: A column does not.
    """
    for name, values in columns.items():
        if values.ndim != 1 or values.dtype.kind not in "uif":
            raise UnreadableSeries(f"{path}: {name} holds no numbers")
        if values.size == 0:
            continue
        least, greatest = float(values.min()), float(values.max())
        if not (math.isfinite(least) and math.isfinite(greatest)):
            raise UnreadableSeries(f"{path}: {name} holds a value that is not a number")
        if name in _SUMMED:
            greatest = max(greatest, float(values.sum(dtype=np.float64)))
        if max(-least, greatest) >= GREATEST or (least < 0 and name in _NEVER_NEGATIVE):
            raise UnreadableSeries(f"{path}: {name} is from {least:g} to {greatest:g}")


@contextmanager
def _damage_reported() -> Iterator[None]:
    import polars as pl

    try:
        yield
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UnreadableSeries(reason) from error


def read_columns(path: Path, names: Sequence[str] | None = None) -> Columns:
    """Return the columns of a Parquet file.

    Args:
        path: The file.
        names: The columns; all of them when not given.

    Raises:
        UnreadableSeries: There is no such file or column, or the file is damaged.
    """
    # Polars takes long to load, and a run without series does not need it.
    import polars as pl

    with understood(path), _damage_reported():
        table = pl.read_parquet(path, columns=None if names is None else list(names), glob=False)
        found = {column.name: column.to_numpy() for column in table}
    require_numbers(path, found)
    return found


def read_slices(path: Path, name: str, rows: int, step: int) -> Iterator[NDArray[Any]]:
    """Yield one column in pieces, so that it is never in memory as a whole.

    Args:
        path: The file.
        name: The column.
        rows: The number of rows in the column.
        step: The number of rows in a piece; the last may have fewer.

    Raises:
        UnreadableSeries: As :func:`read_columns`.
    """
    import polars as pl

    with _damage_reported():
        lazy = pl.scan_parquet(path, glob=False).select(name)
    for start in range(0, rows, step):
        with understood(path), _damage_reported():
            piece = lazy.slice(start, step).collect().to_series().to_numpy()
        require_numbers(path, {name: piece})
        if not piece.size:
            raise UnreadableSeries(f"{path}: it has fewer rows than were recorded")
        yield piece


def floats(column: NDArray[Any]) -> NDArray[np.float64]:
    """Return a column as floating-point numbers."""
    return column.astype(np.float64)
