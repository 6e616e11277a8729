"""The command line's changes of a study are in the run's record, as typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from run.run_driving import of_type, tare

STUDY = """
study: changed
baseline: bare
blocks: {least: 2, most: 2}
arms:
  bare: {platform: bare}
  box: {platform: oci}
scenarios:
  alone: {}
  pinned: {subject: {cpus: pinned}}
workloads:
  tick: {samples: 1000}
  numeric-sort: {}
"""
TYPED = (
    *("--host", "local", "--set", "workloads.tick.samples=2000", "--arm", "bare"),
    *("--workload", "tick", "--scenario", "alone", "--blocks", "3"),
)


@pytest.mark.slow
@pytest.mark.boots
def test_a_run_records_what_its_command_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    study, folder = tmp_path / "changed.yaml", tmp_path / "run"
    study.write_text(STUDY)
    done = tare("run", study, "--out", folder, *TYPED)
    assert done.returncode == 0, done.stdout + done.stderr
    (begun,) = of_type(folder, "run_started")
    assert begun["changes"] == [
        " ".join(pair) for pair in zip(TYPED[::2], TYPED[1::2], strict=True)
    ]
    assert list(begun["study"]["arms"]) == ["bare"]
    cells = of_type(folder, "cell_started")
    assert [(cell["block"], cell["parameters"]["samples"]) for cell in cells] == [
        (1, 2000),
        (2, 2000),
        (3, 2000),
    ]
