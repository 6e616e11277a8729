"""On which kernel arms were compared, where it is not the one that the study's kind would have."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from report.report_synthetic import comparison_of, write_run
from tare.report.page.warnings import warnings_of
from tare.study.model.notes import ONE_KERNEL


def test_a_warning_names_the_general_kernel_that_all_were_compared_on(tmp_path: Path) -> None:
    comparison = comparison_of(write_run(tmp_path / "run"))
    (run,) = comparison.runs
    assert not any("general kernel" in each.text for each in warnings_of(comparison))
    note = f"{ONE_KERNEL}, not the real-time one, which xen-pv may not survive"
    adapted = replace(run, adapted=("all-to-all: 1 neighbour", note))
    texts = [each.text for each in warnings_of(replace(comparison, runs=(adapted,)))]
    assert f"{note[0].upper()}{note[1:]}." in texts
    assert not any("neighbour" in text for text in texts)
