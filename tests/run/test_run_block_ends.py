"""A process is killed before a block's end was written: the next writes it, and repeats nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from run.run_driving import events, of_type, tare
from tare.events.chain import Sealer, parted

STUDY = """
study: ends
baseline: bare
blocks: {least: 2, most: 2}
arms:
  bare: {platform: bare}
  again: {twin-of: bare}
workloads:
  tick: {samples: 2000}
"""


def cut_before_the_end_of(block: int, folder: Path) -> None:
    """Leave a run as a kill does between the last cell of a block and the block's end."""
    path = folder / "events.jsonl"
    recorded = events(folder)
    end = recorded.index({"type": "block_finished", "block": block})
    lines = path.read_bytes().splitlines()[:end]
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    # Next to the stream is the hash of the last event that was written to the disk.
    last = max(number for number in range(end) if recorded[number]["type"] == "cell_finished")
    sealer = Sealer(path)
    sealer.keep(last, parted(lines[last])[1].hex())
    sealer.close()


@pytest.mark.parametrize("block", [1, 2])
def test_an_end_of_a_block_that_a_kill_took_is_written_by_the_resume(
    block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    study, folder = tmp_path / "ends.yaml", tmp_path / "run"
    study.write_text(STUDY)
    whole = tare("run", study, "--out", folder)
    assert whole.returncode == 0, whole.stdout + whole.stderr
    cut_before_the_end_of(block, folder)
    before = len(events(folder))
    resumed = tare("resume", folder)
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert [each["block"] for each in of_type(folder, "block_finished")] == [1, 2]
    after = [
        each["type"]
        for each in events(folder)[before:]
        if each["type"] in ("block_started", "cell_started", "block_finished", "run_finished")
    ]
    rest = ["block_started", "cell_started", "cell_started", "block_finished"] * (2 - block)
    assert after == ["block_finished", *rest, "run_finished"]
    assert "4 cells planned, 4 ok" in " ".join(resumed.stdout.split())
    names = [each["machine"] for each in of_type(folder, "machine_starting")]
    assert len(names) == 4 == len(set(names)), names
    verified = tare("verify", folder)
    assert verified.returncode == 0, verified.stdout
