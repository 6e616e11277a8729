"""The cells of each block that ended: asked after every block of a run that has thousands."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from tare.events import CellFinished

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tare.events import Fold, Record
    from tare.events.results import FinishedCell


class Measured:
    """Finds the cells of a block without a look at those of all others.

    Args:
        fold: The run's events so far; it takes each further one before this does.
    """

    def __init__(self, fold: Fold) -> None:
        self._fold = fold
        self._cells: defaultdict[int, dict[str, None]] = defaultdict(dict)
        for cell, done in fold.finished.items():
            self._cells[done.result.block][cell] = None

    def take(self, record: Record) -> None:
        """Account for one more record."""
        event = record.event
        if isinstance(event, CellFinished) and (done := self._fold.finished.get(event.cell)):
            self._cells[done.result.block][event.cell] = None

    def of(self, block: int) -> Iterator[FinishedCell]:
        """Yield the cells of a block that ended, and count."""
        for cell in self._cells.get(block, ()):
            # What a former host of the block measured counts no more.
            if (done := self._fold.finished.get(cell)) is not None:
                yield done

    def settled(self, block: int) -> tuple[str, ...]:
        """Return the cells of a block that ended for good."""
        found = (done.result.cell for done in self.of(block))
        return tuple(cell for cell in found if self._fold.is_settled(cell))
