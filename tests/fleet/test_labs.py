"""Two deterministic labs side by side find what one finds after the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from run.run_driving import assert_no_ledger_is_left, tare
from tare.events import read_fold

pytestmark = [pytest.mark.slow, pytest.mark.guest, pytest.mark.acceptance]

COUNTED = """
study: counted
host: lab
lab: deterministic
baseline: bare
blocks: {least: 2, most: 2}
shape: {vcpus: 1, memory: 192MiB}
kernel: generic
arms:
  bare: {platform: bare}
workloads:
  tick: {duration: 500ms}
  numeric-sort: {duration: 200ms}
"""


@pytest.mark.boots
@pytest.mark.timeout(3000)
def test_labs_side_by_side_find_the_same_to_the_last_digit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    study = tmp_path / "counted.yaml"
    study.write_text(COUNTED)
    found: list[dict[str, float]] = []
    for name, options in (("one", ()), ("two", ("--cluster", "local:2"))):
        folder = tmp_path / name
        done = tare("run", study, "--out", folder, "--seed", "7", *options, limit_s=1400)
        assert done.returncode == 0, done.stdout + done.stderr
        fold = read_fold(folder / "events.jsonl")
        for block in (1, 2):
            found.append(
                {
                    f"{cell.result.workload} {seen.metric.name}": seen.value
                    for cell in fold.counted_cells()
                    if cell.result.block == block
                    for seen in cell.observed
                }
            )
    assert set(fold.block.hosts.values()) == {"lab-1", "lab-2"}
    assert len(found[0]) > 10
    assert all(each == found[0] for each in found)
    assert_no_ledger_is_left(tmp_path)
