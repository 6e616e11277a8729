"""Why an arm that could run has no values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from report.report_page_reader import read
from report.report_synthetic import write_run
from tare.analysis import load_run
from tare.analysis.data.rundata import RunData
from tare.analysis.effects.compare import compare
from tare.events.results import SkippedPart
from tare.report import build_report


def test_an_arm_that_could_run_but_has_no_values_is_reported_with_the_reason(
    tmp_path: Path,
) -> None:
    """Its run was interrupted before, its parts were left out, or its cells failed."""
    names = ("tick", "switch", "memory-bandwidth", "numeric-sort")
    lost: Any = {block: {("qemu-em", name): "failed" for name in names} for block in range(1, 7)}
    run = load_run(write_run(tmp_path / "run", blocks=6, statuses=lost, series=False))

    def first_screen(run: RunData) -> str:
        folder = tmp_path / f"page{len(run.cells)}{len(run.skipped)}"
        return read(build_report([run], compare([run]), folder).read_text(encoding="utf-8")).words

    assert "qemu-em has no values: no cell of 30 counts (the guest panicked)." in first_screen(run)
    kept = tuple(cell for cell in run.cells if cell.arm != "qemu-em")
    unbegun = replace(run, cells=kept)
    assert "qemu-em has no values: none of its cells has been measured." in first_screen(unbegun)
    left_out = SkippedPart("qemu-em", "alone", None, "needs two CPUs")
    part = replace(unbegun, skipped=(*run.skipped, left_out))
    assert "qemu-em has no values: needs two CPUs." in first_screen(part)
