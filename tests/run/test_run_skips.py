"""Arms that are skipped for one reason share one line, in the run as in the report."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from references.references_run import comparison_of_run, write_realtime_run
from report.report_page_reader import read
from tare.events import Event, Fold, Planned, Record, Skipped
from tare.events.results import PlatformResult, SkippedPart
from tare.report import build_report
from tare.run.ui.progress import ProgressView, Tally

WHY = "there is no /dev/kvm"
SKIPS = (
    Skipped(arm="kvm", reason=WHY),
    Skipped(arm="kvm-em", reason=WHY),
    Skipped(arm="xen-pv", reason="needs Xen"),
    Skipped(arm="bare", scenario="alone", workload="tick", reason="no clock"),
)


def shown(*events: Event) -> list[str]:
    text = io.StringIO()
    with ProgressView(Console(file=text, width=200), Tally(Fold(), most=2)) as view:
        for number, event in enumerate(events):
            view.take(Record(seq=number, time=0.0, event=event))
    return [line.strip() for line in text.getvalue().splitlines()]


def test_run_shows_arms_with_one_reason_in_one_line() -> None:
    after = Planned(blocks_most=2, cells_per_block=1, expected_block_s=1.0, notes=("so it goes",))
    assert shown(*SKIPS, after) == [
        f"– kvm, kvm-em skipped: {WHY}",
        "– xen-pv skipped: needs Xen",
        "– bare/alone/tick skipped: no clock",
        "so it goes",
    ]


def test_skipped_arms_are_shown_even_as_the_last_event() -> None:
    assert shown(*SKIPS[:2]) == [f"– kvm, kvm-em skipped: {WHY}"]


def test_report_shows_arms_with_one_reason_in_one_line(tmp_path: Path) -> None:
    comparison = comparison_of_run(write_realtime_run(tmp_path / "run"))
    (run,) = comparison.runs
    absent = tuple(
        PlatformResult(
            arm=arm,
            platform="qemu",
            options={},
            usable=False,
            reason=WHY,
            hint="",
            emulated=False,
            versions={},
            capabilities={},
            description="",
        )
        for arm in ("kvm", "kvm-em")
    )
    skipped = tuple(SkippedPart(arm.arm, None, None, WHY) for arm in absent)
    run = replace(run, platforms=(*run.platforms, *absent), skipped=skipped)
    changed = replace(comparison, runs=(run,))
    page = read(build_report([run], changed, tmp_path / "out").read_text(encoding="utf-8"))
    # One line for both, one row of what was skipped, and each arm's own row under What ran.
    assert page.words.count(WHY) == 4
    assert f"kvm, kvm-em have no values: {WHY}." in page.words
