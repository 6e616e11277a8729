"""On which kernel arms were compared, where it is not the one that the study's kind would have."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from report.report_synthetic import comparison_of, write_run
from tare.report.page.verdicts import lead
from tare.study.model.notes import ONE_KERNEL


def test_the_lead_says_that_all_were_compared_on_the_general_kernel(tmp_path: Path) -> None:
    comparison = comparison_of(write_run(tmp_path / "run"))
    (run,) = comparison.runs
    assert ONE_KERNEL not in lead(comparison) and "general kernel" not in lead(comparison)
    note = f"{ONE_KERNEL}, not the real-time one, which xen-pv may not survive"
    adapted = replace(run, adapted=("all-to-all: 1 neighbour", note))
    told = lead(replace(comparison, runs=(adapted,)))
    assert told.endswith(f"{note[0].upper()}{note[1:]}.")
    assert "neighbour" not in told
