"""Cells that have ended, and ended for good, in the fold of a run's events."""

from __future__ import annotations

import pytest

from tare.events import (
    BlockFinished,
    CellFinished,
    CellStarted,
    Event,
    Fold,
    Record,
    RunResumed,
    RunStarted,
)
from tare.events.fold import fold_records

CELL = "b001/bare/alone/tick"
BEGUN = RunStarted(run="r1", study={}, study_path="", study_sha256="", seed=1, host={}, versions={})
RESUMED = RunResumed(run="r1", versions={})


def started(attempt: int = 1) -> CellStarted:
    return CellStarted(
        cell=CELL, block=1, arm="bare", scenario="alone", workload="tick", parameters={},
        attempt=attempt,
    )  # fmt: skip


def failed(*, transient: bool) -> CellFinished:
    return CellFinished(cell=CELL, status="failed", reason="it died", transient=transient)


def folded(*events: Event) -> Fold:
    return fold_records(
        Record(seq=number, time=float(number), event=event)
        for number, event in enumerate([BEGUN, *events])
    )


def test_a_cell_interrupted_by_the_end_of_the_process_is_not_finished() -> None:
    done = CellFinished(cell=CELL, status="ok")
    assert list(folded(started(), done).finished) == [CELL]
    assert not folded(started(), RESUMED, done).finished


@pytest.mark.parametrize(
    ("events", "settled"),
    [
        # A passing fault is tried once more, by this process or by the one that resumes the run.
        ([started(), failed(transient=True)], False),
        ([started(), failed(transient=True), RESUMED], False),
        ([started(), failed(transient=True), started(2), failed(transient=True)], True),
        ([started(), failed(transient=True), started(2), failed(transient=False)], True),
        ([started(), failed(transient=False)], True),
        # In a block that has ended no cell is tried again.
        ([started(), failed(transient=True), BlockFinished(block=1)], True),
    ],
)
def test_a_cell_with_a_passing_fault_is_owed_one_more_try(
    events: list[Event], settled: bool
) -> None:
    assert (CELL in folded(*events).settled) == settled
