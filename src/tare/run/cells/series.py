"""An agent's binary series, written as Parquet into the run's folder."""

from __future__ import annotations

import hashlib
import re
import shutil
from typing import IO, TYPE_CHECKING

from tare.errors import WorkloadFault
from tare.events import SeriesSaved
from tare.outputs import aside
from tare.run.lifecycle.folder import LEAST_FREE_BYTES

if TYPE_CHECKING:
    import polars as pl

    from tare.agent.series import Series
    from tare.run.lifecycle.folder import RunFolder

LARGE_BYTES = 64 << 20


def save_series(folder: RunFolder, cell: str, role: str, series: Series) -> SeriesSaved:
    """Write ``series`` and return its event.

    Args:
        folder: The run's folder.
        cell: The identity of the cell that made the series.
        role: The role of the machine that made it.
        series: Equally long columns by name.

    Raises:
        OSError: It cannot be written, for example on a full disk.
        WorkloadFault: It is large, and would leave the run too little space.

    Returns:
        Path (relative to the folder), columns with their types, rows and SHA-256 of the file.
    """
    # Imported here, so that starting a machine does not wait for it.
    import polars as pl

    path = folder.series / f"{file_stem(cell, role, series.name)}.parquet"
    _require_room(folder, series)
    frame = pl.DataFrame(series.columns)
    with aside(path) as file:
        digest = _write(frame, file)
    return SeriesSaved(
        cell=cell,
        role=role,
        name=series.name,
        path=folder.relative(path),
        columns={name: str(dtype) for name, dtype in frame.schema.items()},
        rows=frame.height,
        sha256=digest,
    )


def _require_room(folder: RunFolder, series: Series) -> None:
    """Check that a machine's series does not end the run by filling its disk."""
    size = sum(column.nbytes for column in series.columns.values())
    free = shutil.disk_usage(folder.series).free
    if size > LARGE_BYTES and free - size < LEAST_FREE_BYTES:
        raise WorkloadFault(
            f"its series {series.name} has {size >> 20} MiB, and {free >> 20} MiB are free for "
            "the run",
            f"free space in {folder.path}, or take fewer samples, for example by a shorter "
            "`duration`",
        )


class _Hashed:
    """A file that is written sequentially, and hashed meanwhile."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.sha256()
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        """Write ``data``, and keep the system's error, which polars replaces by its own."""
        try:
            written = self._file.write(data)
        except OSError as error:
            self.error = error
            raise
        self.digest.update(data)
        return written

    def flush(self) -> None:
        """Flush the file."""
        self._file.flush()


def _write(frame: pl.DataFrame, file: IO[bytes]) -> str:
    """Write ``frame`` without copying it in memory; return the SHA-256 (hex) of the file."""
    hashed = _Hashed(file)
    try:
        frame.write_parquet(hashed, compression="zstd", compression_level=1)  # type: ignore[arg-type]
    except Exception:
        if hashed.error is not None:
            raise hashed.error from None
        raise
    return hashed.digest.hexdigest()


def file_stem(cell: str, role: str, name: str) -> str:
    """Return the file name, without suffix, of ``name`` by ``role`` of ``cell``."""
    readable = re.sub(r"[^A-Za-z0-9.-]+", "-", cell).strip("-")[:80]
    return f"{readable}-{_sha256(cell.encode())[:8]}-{role}-{name}"


def _sha256(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()
