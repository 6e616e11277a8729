"""The output of programs is kept unchanged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tare.hosts import LocalHost
from tare.registry import installed
from tare.run.cells.outputs import MOST_LOG_BYTES, save_logs, save_output
from tare.run.lifecycle.folder import RunFolder

WORKLOADS = installed().workloads
FILEBENCH = WORKLOADS["filebench"]
CELL = "b001/qemu-pv/one-cpu/fio[mode=random-read]#2"


@pytest.mark.parametrize("given_value", [{"jobs": [{"read": {"bw": 1}}]}, "plain µ\ud800 text\n"])
def test_a_programs_words_are_kept_with_the_cell(tmp_path: Path, given_value: object) -> None:
    folder = RunFolder(tmp_path)
    workload = WORKLOADS["fio"] if isinstance(given_value, dict) else FILEBENCH
    key = workload.own_words
    path = tmp_path / save_output(folder, CELL, workload, {key: given_value, "wall_s": 1.0})
    assert path.parent == folder.outputs
    kept = path.read_text()
    assert (
        json.loads(kept) == given_value
        if isinstance(given_value, dict)
        else kept == "plain µ? text\n"
    )
    other = save_output(folder, CELL.replace("#2", ""), workload, {key: given_value})
    assert tmp_path / other != path


def test_where_no_program_wrote_anything_nothing_is_kept(tmp_path: Path) -> None:
    assert save_output(RunFolder(tmp_path), CELL, FILEBENCH, {"wall_s": 1.0, "output": ""}) == ""
    assert list(tmp_path.iterdir()) == []


async def test_a_log_without_end_is_kept_from_its_end(tmp_path: Path, agent_program: Path) -> None:
    workdir, kept = tmp_path / "machine", tmp_path / "kept"
    workdir.mkdir()
    host = LocalHost(agent_program)
    await save_logs(host, workdir, kept)
    assert not kept.exists()
    (workdir / "console.log").write_bytes(b"x" * (3 * MOST_LOG_BYTES) + b"last words")
    (workdir / "qemu.log").write_bytes(b"short")
    (workdir / "link.log").symlink_to("/etc/hostname")
    await save_logs(host, workdir, kept)
    assert (kept / "console.log").stat().st_size == MOST_LOG_BYTES
    assert (kept / "console.log").read_bytes().endswith(b"last words")
    assert (kept / "qemu.log").read_bytes() == b"short"
    assert not (kept / "link.log").exists()
