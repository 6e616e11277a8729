"""Series as arrays: whole, in pieces, and of files that are damaged or gone."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.analysis.data.parquet import UnreadableSeries, floats, read_columns, read_slices


@given(st.lists(st.integers(0, 2**32 - 1), max_size=60), st.integers(1, 70))
def test_pieces_are_the_column_in_order(values: list[int], step: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "s.parquet")
        pl.DataFrame(
            {"v": values, "w": values}, schema={"v": pl.UInt32, "w": pl.Int64}
        ).write_parquet(path)
        whole = read_columns(path)
        pieces = list(read_slices(path, "v", len(values), step))
        assert list(whole) == ["v", "w"] and list(read_columns(path, ["w"])) == ["w"]
        assert whole["v"].tolist() == values
        assert [v for piece in pieces for v in piece.tolist()] == values
        assert all(piece.size == step for piece in pieces[:-1])
        assert floats(whole["w"]).dtype == np.float64


def test_missing_file_or_column_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UnreadableSeries, match="gone"):
        read_columns(tmp_path / "gone.parquet")
    path = tmp_path / "s.parquet"
    pl.DataFrame({"v": [1]}).write_parquet(path)
    with pytest.raises(UnreadableSeries):
        read_columns(path, ["absent"])
    with pytest.raises(UnreadableSeries):
        list(read_slices(path, "absent", 1, 1))


@pytest.mark.fuzz
@given(st.binary(max_size=200), st.integers(0, 400))
def test_a_damaged_file_is_unreadable_or_read_but_nothing_else(damage: bytes, at: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "s.parquet")
        pl.DataFrame({"v": [1, 2, 3]}).write_parquet(path)
        whole = path.read_bytes()
        path.write_bytes(whole[: at % len(whole)] + damage)
        try:
            read_columns(path)
        except UnreadableSeries as error:
            assert str(error)
