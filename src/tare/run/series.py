"""Write an agent's binary series as Parquet into the run's folder."""

from __future__ import annotations

import hashlib
import io
import re
from typing import TYPE_CHECKING

from tare.events import SeriesSaved
from tare.outputs import put

if TYPE_CHECKING:
    from tare.agent.series import Series
    from tare.run.folder import RunFolder


def save_series(folder: RunFolder, cell: str, role: str, series: Series) -> SeriesSaved:
    """Write ``series`` and return the event that tells of it.

    Args:
        folder: The run's folder.
        cell: The identity of the cell that made the series.
        role: The role of the machine that made it.
        series: Equally long columns by name.

    Raises:
        OSError: It cannot be written, as on a full disk.

    Returns:
        Path (relative to the folder), columns with their types, rows and SHA-256 of the file.
    """
    # Loaded here: a machine should not wait for it to boot.
    import polars as pl

    path = folder.series / f"{file_stem(cell, role, series.name)}.parquet"
    frame = pl.DataFrame(series.columns)
    # Not straight into the file: polars has an error of its own for a full disk.
    written = io.BytesIO()
    frame.write_parquet(written, compression="zstd", compression_level=1)
    put(path, written.getbuffer())
    return SeriesSaved(
        cell=cell,
        role=role,
        name=series.name,
        path=folder.relative(path),
        columns={name: str(dtype) for name, dtype in frame.schema.items()},
        rows=frame.height,
        sha256=_sha256(written.getbuffer()),
    )


def file_stem(cell: str, role: str, name: str) -> str:
    """Return a file's name, without its ending, for what ``role`` of ``cell`` calls ``name``."""
    readable = re.sub(r"[^A-Za-z0-9.-]+", "-", cell).strip("-")[:80]
    return f"{readable}-{_sha256(cell.encode())[:8]}-{role}-{name}"


def _sha256(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()
