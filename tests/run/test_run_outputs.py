"""What programs wrote is kept as they wrote it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tare.run.folder import RunFolder
from tare.run.outputs import save_output

CELL = "b001/qemu-pv/one-cpu/fio[mode=random-read]#2"


@pytest.mark.parametrize("said", [{"jobs": [{"read": {"bw": 1}}]}, "plain µ\ud800 text\n"])
def test_a_programs_words_are_kept_with_the_cell(tmp_path: Path, said: object) -> None:
    folder = RunFolder(tmp_path)
    key = "fio" if isinstance(said, dict) else "output"
    path = tmp_path / save_output(folder, CELL, {key: said, "wall_s": 1.0})
    assert path.parent == folder.outputs
    kept = path.read_text()
    assert json.loads(kept) == said if isinstance(said, dict) else kept == "plain µ? text\n"
    other = save_output(folder, CELL.replace("#2", ""), {key: said})
    assert tmp_path / other != path


def test_where_no_program_wrote_anything_nothing_is_kept(tmp_path: Path) -> None:
    assert save_output(RunFolder(tmp_path), CELL, {"wall_s": 1.0, "output": ""}) == ""
    assert list(tmp_path.iterdir()) == []
