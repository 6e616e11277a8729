"""Blocks that have ended are found without reading the cells of all others."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from benchmarks._stub_site import cell_events, opening
from tare.events import BlockFinished, BlockStarted, CellFinished, EventLog, Fold
from tare.events.results import FinishedCell
from tare.fleet.shared_cells import FinishedCells, newly_failed
from tare.fleet.wire import Assignment
from tare.run.catalog import build_catalog
from tare.study.reading.load import load_study

STUDY = Path(__file__).parents[2] / "studies" / "quick.yaml"
ARMS = ("bare", "other")


class Untouched(dict[str, FinishedCell]):
    """All cells of a run, which nobody looks through."""

    def _refuse(self) -> Any:
        raise AssertionError("looked through all cells of the run")

    __iter__ = values = items = keys = _refuse


class RecordedRun:
    """A run that is written down block by block."""

    def __init__(self, log: EventLog) -> None:
        study = load_study(STUDY, build_catalog()).model_dump(mode="json")
        self.given = Assignment(run="r", study=study, source_path="", source_sha256="", seed=1)
        self.log, self.fold = log, Fold()
        log.subscribe(self.fold.take)
        for event in opening(self.given):
            log.append(event)
        self.measured = FinishedCells(self.fold)
        log.subscribe(self.measured.take)

    def block(self, number: int, fails: str = "", host: str = "", cells: int = 2) -> None:
        """Begin a block, and measure cells of each arm."""
        draw = random.Random(number)
        self.log.append(BlockStarted(block=number, order=(), host=host))
        for arm in ARMS:
            for which in range(cells):
                cell = f"b{number:03}/{arm}/alone/numeric/{which}"
                *before, last = cell_events(self.given, number, cell, arm, draw)
                for event in before:
                    self.log.append(event)
                assert isinstance(last, CellFinished)
                wrong = {"status": "failed", "reason": "a fault"} if arm == fails else {}
                self.log.append(last.model_copy(update=wrong))

    def ended(self, *line: int) -> list[tuple[str, int, int]]:
        """Return the arms that end now, each with its tried and its failed cells."""
        found = newly_failed(self.measured, self.fold, ARMS, iter(line), "")
        return [(each.arm, each.tried, each.failed) for each in found]


def test_the_cells_of_a_block_are_those_that_count(tmp_path: Path) -> None:
    with EventLog(tmp_path / "events.jsonl") as log:
        scripted = RecordedRun(log)
        scripted.block(1, host="a")
        scripted.block(2, host="a", cells=1)
        assert [len(list(scripted.measured.of(block))) for block in (1, 2, 3)] == [4, 2, 0]
        # On another host the block is begun again: what the first one measured no longer counts.
        scripted.block(2, host="b", cells=0)
        assert list(scripted.measured.of(2)) == [] and scripted.measured.settled(2) == ()
        scripted.block(2, host="b")
        for block in (1, 2):
            found = set(scripted.measured.settled(block))
            assert found == {
                cell for cell in scripted.fold.settled if cell.startswith(f"b00{block}")
            }
            assert len(found) == 4
        # A resumed run finds the same.
        again = FinishedCells(scripted.fold)
        for block in (1, 2):
            assert set(again.settled(block)) == set(scripted.measured.settled(block))


def test_arm_ends_by_its_newest_blocks_and_reports_all_attempts(tmp_path: Path) -> None:
    with EventLog(tmp_path / "events.jsonl") as log:
        scripted = RecordedRun(log)
        scripted.block(1)
        scripted.block(2, fails="other")
        scripted.block(3, fails="other")
        assert scripted.ended(1) == scripted.ended(2, 1) == []
        # Another host's blocks count for themselves.
        assert scripted.ended(3, 1) == []
        assert scripted.ended(3, 2) == [("other", 4, 4)]
        assert scripted.ended(3, 2, 1) == [("other", 6, 4)]


def test_a_block_that_went_well_costs_the_same_however_many_there_were(tmp_path: Path) -> None:
    with EventLog(tmp_path / "events.jsonl") as log:
        scripted = RecordedRun(log)
        for block in (1, 2, 3):
            scripted.block(block)
            log.append(BlockFinished(block=block))
        scripted.fold.finished = Untouched(scripted.fold.finished)
        assert scripted.ended(3, 2, 1) == []
        assert len(scripted.measured.settled(3)) == 4
