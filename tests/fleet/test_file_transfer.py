"""Files of a host's part arrive as they are, and nowhere but in the run's folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tare.fleet.file_transfer import Shipper, receive
from tare.fleet.wire import CHUNK_BYTES, FROM_HOST, FilePiece, safe_path


def test_files_of_any_size_arrive_once_and_again_when_they_grow(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    (here / "series").mkdir(parents=True)
    big = bytes(range(256)) * (CHUNK_BYTES // 100)
    (here / "series" / "a.parquet").write_bytes(big)
    (here / "empty").write_bytes(b"")
    (here / "events.jsonl").write_text("not to be sent")
    shipper = Shipper(here)
    for piece in shipper.news():
        receive(piece, there)
    assert (there / "series" / "a.parquet").read_bytes() == big
    assert (there / "empty").read_bytes() == b""
    assert not (there / "events.jsonl").exists()
    assert list(shipper.news()) == []
    (here / "series" / "a.parquet").write_bytes(b"grown" + big)
    for piece in shipper.news():
        receive(piece, there)
    assert (there / "series" / "a.parquet").read_bytes() == b"grown" + big


@given(path=st.text(max_size=40))
def test_no_path_leads_out_of_the_folder(path: str) -> None:
    try:
        found = safe_path(path)
    except ValueError:
        return
    assert not found.is_absolute() and ".." not in found.parts


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "", "a\0b"])
def test_paths_out_of_the_folder_are_refused(path: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a path inside"):
        receive(FilePiece(path=path, first=True, data=b"x"), tmp_path)


@pytest.mark.fuzz
@given(
    settings=st.dictionaries(st.text(max_size=8), st.text(max_size=8) | st.integers(), max_size=5)
)
def test_invalid_messages_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        FROM_HOST.validate_python(settings)
