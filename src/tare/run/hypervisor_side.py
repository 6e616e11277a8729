"""What a hypervisor says of a cell: whether it disturbed the machine, and its own figures."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tare.events.hypervisor import FACT

if TYPE_CHECKING:
    from tare.platforms.contract import Machine


class HypervisorSide:
    """Asks the machine's hypervisor before and after a cell.

    Args:
        machine: The machine that is measured.
        clock: Unix time in seconds.
    """

    def __init__(self, machine: Machine, clock: Callable[[], float] = time.time) -> None:
        self._machine = machine
        self._clock = clock
        self._before: tuple[str, ...] = ()
        self._begun = 0.0
        self.doubt = ""
        """Why what was measured is of no use; empty if it is."""
        self.facts: Mapping[str, Any] = {}
        """The hypervisor's own figures, for the cell's record; empty: it told none."""

    async def begin(self) -> None:
        """Note what befell the machine already."""
        self.doubt, self.facts = "", {}
        self._before = await self._machine.disturbances()
        self._begun = self._clock()

    async def end(self) -> None:
        """Find out what befell it since, and what its hypervisor counted."""
        ended = self._clock()
        known = frozenset(self._before)
        fresh = [what for what in await self._machine.disturbances() if what not in known]
        if fresh:
            self.doubt = "its hypervisor disturbed the machine meanwhile: " + "; ".join(fresh)
        figures = await self._machine.hypervisor_figures(self._begun, ended)
        self.facts = {FACT: figures.fact()} if figures is not None else {}
