"""Reasons why an arm of a run lacks a value that a source, or another arm of the run, has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

from tare.analysis.data.rundata import RunData
from tare.analysis.model import PlatformResult


def why_it_did_not_run(runs: Iterable[RunData], arm: str, *, to_do: bool = False) -> str:
    """Return why nothing of an arm was measured; empty if any measurement was tried.

    Args:
        runs: The runs. The first one with a reason counts.
        arm: An arm of the runs.
        to_do: Whether to add what to do about it, if that is known.
    """
    reasons = (
        reason
        for run in runs
        for reason in (*_unusable(run, arm, to_do=to_do), *_skipped_whole(run, arm))
    )
    return next(filter(None, reasons), "")


def why_usable_or_not(platform: PlatformResult) -> str:
    """Return why an arm is usable, or why it is not and what to do; empty if that is unknown."""
    if platform.usable or not platform.hint:
        return platform.reason
    return f"{platform.reason.rstrip('.')}. To do: {platform.hint}"


def why_no_value(
    runs: Sequence[RunData], arm: str, scenario: str, workloads: Collection[str]
) -> str:
    """Return why an arm has no value that counts, in words; empty if the reason is unknown.

    Args:
        runs: The runs.
        arm: An arm of the runs.
        scenario: The scenario in which other arms have a value.
        workloads: The study's names of the workloads for which other arms have a value.
    """
    if whole := why_it_did_not_run(runs, arm):
        return whole
    for run in runs:
        for part in run.skipped:
            there = part.scenario in (None, scenario)
            if part.arm == arm and there and part.workload in (None, *workloads):
                return part.reason
    return _why_no_cell_counts(runs, arm, scenario, workloads)


def _skipped_whole(run: RunData, arm: str) -> Iterator[str]:
    for part in run.skipped:
        if part.arm == arm and part.scenario is None and part.workload is None:
            yield part.reason


def _unusable(run: RunData, arm: str, *, to_do: bool) -> Iterator[str]:
    for each in run.platforms:
        if each.arm == arm and not each.usable:
            yield why_usable_or_not(each) if to_do else each.reason


def _why_no_cell_counts(
    runs: Iterable[RunData], arm: str, scenario: str, workloads: Collection[str]
) -> str:
    tried = [
        cell
        for run in runs
        for cell in run.cells
        if cell.arm == arm and cell.scenario == scenario and cell.workload in workloads
    ]
    lost = Counter((cell.status, cell.reason) for cell in tried if cell.status != "ok")
    if not lost or any(cell.status == "ok" for cell in tried):
        return ""
    (status, reason), _ = lost.most_common(1)[0]
    return f"all its cells there were lost, {status} as {reason.rstrip('.')}"
