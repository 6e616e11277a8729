"""The cells of a shared run: those of each block, arms that always fail, and their counts."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import islice
from typing import TYPE_CHECKING

from tare.events import CellFinished, Fold
from tare.run.lifecycle.cell_counts import BLOCKS, CellCounts, always_failed, arm_ended, tallied
from tare.study.model.study import Study

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tare.events import ArmEnded, Record
    from tare.events.results import FinishedCell


class FinishedCells:
    """An index of finished cells by block, because a run may have thousands.

    Args:
        fold: The run's events so far; it takes each further one before this does.
    """

    def __init__(self, fold: Fold) -> None:
        self._fold = fold
        self._cells: defaultdict[int, dict[str, None]] = defaultdict(dict)
        for cell, done in fold.finished.items():
            self._cells[done.result.block][cell] = None

    def take(self, record: Record) -> None:
        """Index one more record."""
        event = record.event
        if isinstance(event, CellFinished) and (done := self._fold.finished.get(event.cell)):
            self._cells[done.result.block][event.cell] = None

    def of(self, block: int) -> Iterator[FinishedCell]:
        """Yield the finished cells of a block that count."""
        for cell in self._cells.get(block, ()):
            # Cells that a former host of the block measured do not count any more.
            if (done := self._fold.finished.get(cell)) is not None:
                yield done

    def settled(self, block: int) -> tuple[str, ...]:
        """Return the cells of a block that need no further attempt."""
        found = (done.result.cell for done in self.of(block))
        return tuple(cell for cell in found if self._fold.is_settled(cell))


def ended_on(fold: Fold, host: str) -> frozenset[str]:
    """Return the arms that have ended on a host.

    Args:
        fold: The run's events so far.
        host: The host.
    """
    return frozenset(each.arm for each in fold.arms_ended if each.host in ("", host))


def newly_failed(
    measured: FinishedCells, fold: Fold, arms: Sequence[str], line: Iterator[int], host: str
) -> list[ArmEnded]:
    """Return the arms that end now, because all their cells failed in the newest blocks.

    Args:
        measured: The cells of each block.
        fold: The run's events so far.
        arms: All arms of the study, in its order.
        line: The blocks to consider, the newest first: those of one host if each host measures all
            arms, otherwise all.
        host: That host; empty for the blocks of all hosts.
    """
    newest = tuple(islice(line, BLOCKS))
    if len(newest) < BLOCKS:
        return []
    over = {each.arm for each in fold.arms_ended if each.host in ("", host)}
    cells = [done.result for block in newest for done in measured.of(block)]
    failed = [arm for arm in arms if arm not in over and always_failed(arm, cells, newest)]
    if not failed:
        return []
    blocks = {*newest, *line}
    tried = [done.result for done in fold.finished.values() if done.result.block in blocks]
    return [
        arm_ended(arm, newest[0], [cell for cell in tried if cell.arm == arm], host)
        for arm in failed
    ]


def shared_account(fold: Fold, study: Study) -> CellCounts:
    """Count the results of the cells of all blocks that were begun.

    Args:
        fold: The run's events so far.
        study: The study.
    """
    measured: Counter[tuple[int, str]] = Counter()
    for done in fold.finished.values():
        measured[done.result.block, _host_of(fold, study, done.result.block, done.result.arm)] += 1
    planned, skipped = 0, 0
    for block, host in _parts(fold):
        cells = fold.joined[host].cells_per_block
        planned += cells
        # All other cells of a finished block were tried.
        ended = ended_on(fold, host)
        if study.hosts:
            ended = frozenset(arm for arm in ended if study.host_of(arm) == host)
        if block in fold.block.finished and ended:
            skipped += cells - measured[block, host]
    results = (done.result for done in fold.finished.values())
    return tallied(results, planned, study.baseline, skipped)


def _parts(fold: Fold) -> list[tuple[int, str]]:
    """Return the blocks that were begun, each with each host that measures a part of it."""
    if fold.block.hosts:
        return [each for each in fold.block.hosts.items() if each[1] in fold.joined]
    return [(block, host) for block in range(1, fold.block.number + 1) for host in fold.joined]


def _host_of(fold: Fold, study: Study, block: int, arm: str) -> str:
    return fold.block.hosts.get(block) or study.host_of(arm)
