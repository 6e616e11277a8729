"""An agent's series as files of the run's folder."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tare.agent.series import Series
from tare.run.cells.series import file_stem, save_series
from tare.run.lifecycle.folder import RunFolder

CELL = "b001/bare/alone/tick"


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path)
    made.series.mkdir()
    return made


def test_saved_series_is_described_as_written(folder: RunFolder) -> None:
    series = Series("gaps", {"time_ns": np.arange(5), "excess_ns": np.arange(5) * 2})
    saved = save_series(folder, CELL, "subject", series)
    data = (folder.path / saved.path).read_bytes()
    assert saved.sha256 == hashlib.sha256(data).hexdigest()
    assert saved.rows == 5
    assert pl.read_parquet(folder.path / saved.path)["excess_ns"].to_list() == [0, 2, 4, 6, 8]


def test_full_disk_is_reported_as_such(folder: RunFolder) -> None:
    series = Series("raw", {"duration": np.arange(100_000)})
    (folder.series / f"{file_stem(CELL, 'subject', 'raw')}.parquet").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device"):
        save_series(folder, CELL, "subject", series)
