"""Counts of the tries of a batch's cells, and of freezes of their emulated host."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tare.events import LabFroze

if TYPE_CHECKING:
    from tare.errors import HostFroze
    from tare.run.cells.cell_context import CellContext
    from tare.study.planning.cells import Batch, Cell

TRIES = 2
"""The most tries of a cell that fails for a transient reason."""
FREEZES = 2
"""This many freezes of its emulated host end a batch; after fewer the host is booted again."""


class Tries:
    """Counts the tries of one batch, or of two that are measured at once.

    A freeze is a fault of the emulation, so it does not count as a try of the interrupted cell.
    """

    def __init__(self) -> None:
        self._begun: Counter[str] = Counter()
        self._excused: Counter[str] = Counter()
        self._freezes: list[HostFroze] = []

    def begin(self, cell: Cell) -> int:
        """Count a try of a cell; return its number, from 1."""
        self._begun[cell.id] += 1
        return self._begun[cell.id]

    def began(self, cell: Cell) -> int:
        """Return the number of tries of a cell."""
        return self._begun[cell.id]

    def at_least(self, cell: Cell, number: int) -> None:
        """Count at least this many tries of a cell that could not start."""
        self._begun[cell.id] = max(self._begun[cell.id], number)

    def may_again(self, cell: Cell) -> bool:
        """Return whether a cell that failed for a transient reason is tried once more."""
        return self._begun[cell.id] - self._excused[cell.id] < TRIES

    @property
    def spoilt(self) -> bool:
        """Whether the host froze too often for the batch to be repeated."""
        return len(self._freezes) >= FREEZES

    def freeze(self, fault: HostFroze, batch: Batch, cell: Cell, context: CellContext) -> None:
        """Count a freeze during a cell, or before its start, and log it once."""
        self._excused[cell.id] += 1
        if any(fault is known for known in self._freezes):
            # Two batches that are measured at once lose the same host.
            return
        self._freezes.append(fault)
        context.log.append(
            LabFroze(
                block=batch.block,
                arm=batch.arm,
                scenario=batch.scenario,
                reason=str(fault),
                repeated=not self.spoilt,
                console_tail=fault.console_tail,
            )
        )
