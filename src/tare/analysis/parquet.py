"""Read series as arrays; the one place of the analysis that knows how they are stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Columns = dict[str, NDArray[Any]]
"""Columns of equal length by name."""


class UnreadableSeries(Exception):
    """A file of a series is missing, is not what was recorded, or cannot be read; says which."""


@contextmanager
def _told() -> Iterator[None]:
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
    # It takes long to load, and a run without series needs none of it.
    import polars as pl

    with _told():
        table = pl.read_parquet(path, columns=None if names is None else list(names), glob=False)
    return {column.name: column.to_numpy() for column in table}


def read_slices(path: Path, name: str, rows: int, step: int) -> Iterator[NDArray[Any]]:
    """Yield one column in pieces, so that never all of it is in memory.

    Args:
        path: The file.
        name: The column.
        rows: How many rows it has.
        step: How many rows a piece has; the last may have fewer.

    Raises:
        UnreadableSeries: As :func:`read_columns`.
    """
    import polars as pl

    with _told():
        lazy = pl.scan_parquet(path, glob=False).select(name)
    for start in range(0, rows, step):
        with _told():
            piece = lazy.slice(start, step).collect().to_series().to_numpy()
        yield piece


def floats(column: NDArray[Any]) -> NDArray[np.float64]:
    """Return a column as floating-point numbers."""
    return column.astype(np.float64)
