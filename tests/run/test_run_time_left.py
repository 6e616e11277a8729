"""The time left is right after a resume too, and a Ctrl-C at any moment says how to go on."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from run.test_run_account import PLAN, Course
from tare.cli.ending import says_how_to_go_on
from tare.events import (
    BlockFinished,
    BlockStarted,
    EventLog,
    Planned,
    RunFinished,
    RunResumed,
    RunStarted,
)
from tare.run.progress import Tally

BLOCKS = 4
EXPECTED_S = 100.0
CELLS = [cell for batch in PLAN.block(2) for cell in batch.cells]


def begun() -> Course:
    course = Course()
    planned = Planned(blocks_most=BLOCKS, cells_per_block=len(CELLS), expected_block_s=EXPECTED_S)
    course.happen(planned)
    return course


@given(st.integers(0, len(CELLS)))
def test_a_resumed_block_counts_by_its_cells_and_is_no_measure_of_a_block(done: int) -> None:
    course = begun()
    course.block(1, dict.fromkeys(PLAN.arms, "ok"))
    took = list(course.fold.block.took_s)
    course.happen(BlockStarted(block=2, order=()))
    for cell in CELLS[:done]:
        course.cell(cell.id, cell.arm, 2, "ok")
    course.happen(RunResumed(run="ab12", versions={}))
    tally = Tally(course.fold, BLOCKS, clock=lambda: 1e9)
    per_block = took[0]
    left = (BLOCKS - 2) * per_block + per_block * (1 - done / len(CELLS))
    assert tally.left_s is not None
    assert math.isclose(tally.left_s, left)
    course.happen(BlockStarted(block=2, order=()))
    assert math.isclose(tally.left_s, left)
    course.happen(BlockFinished(block=2))
    assert course.fold.block.took_s == took
    assert course.fold.block.last_took_s is None
    assert math.isclose(tally.left_s, (BLOCKS - 2) * per_block)
    course.happen(BlockStarted(block=3, order=()), BlockFinished(block=3))
    assert len(course.fold.block.took_s) == 2


STARTED = RunStarted(
    run="r", study={}, study_path="", study_sha256="", seed=1, host={}, versions={}
)


@pytest.mark.parametrize(
    ("ended", "said"),
    [
        (None, "go on with: tare resume"),
        (RunFinished(status="failed"), "go on with: tare resume"),
        (RunFinished(status="complete"), "the run is complete"),
    ],
)
def test_a_ctrl_c_while_nothing_listens_says_how_to_go_on(
    ended: RunFinished | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with EventLog(tmp_path / "events.jsonl") as log:
        log.append(STARTED)
        if ended is not None:
            log.append(ended)
    with pytest.raises(typer.Exit) as status, says_how_to_go_on(tmp_path):
        raise KeyboardInterrupt
    assert status.value.exit_code == 130
    assert said in capsys.readouterr().out


def test_a_ctrl_c_before_a_run_began_has_nothing_to_go_on_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit), says_how_to_go_on(tmp_path / "none"):
        raise KeyboardInterrupt
    assert not capsys.readouterr().out
