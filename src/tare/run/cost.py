"""What a cell's machine cost its host, from the common start to the end of the work."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tare.agent.client import Outcome
    from tare.platforms.contract import Machine

MEMORY = "rss_bytes"
WALL = "wall_s"
"""For how long the cost was taken: shorter than the cell, which also prepares and ends."""


@dataclass
class CellCost:
    """Reads the cost of ``subject`` on both sides of its work."""

    subject: Machine
    _before: Mapping[str, float] = field(default_factory=dict)
    _after: Mapping[str, float] = field(default_factory=dict)
    _began: float = 0.0
    _ended: float = 0.0

    async def begin(self) -> None:
        """Read what it has cost so far; when all is prepared, just before the start.

        Raises:
            MachineFault: It has ended.
        """
        self._before = await self.subject.host_cost()
        self._began = time.monotonic()

    async def end(self) -> None:
        """Read what it has cost; when the work has ended, before anything else is done.

        Raises:
            MachineFault: It has ended.
        """
        self._ended = time.monotonic()
        self._after = await self.subject.host_cost()

    def of(self, outcome: Outcome, resident: float) -> dict[str, float]:
        """Return the cost: seconds that were used, bytes that are resident.

        Args:
            outcome: What the work found; says how long its own thread waited.
            resident: The most bytes that were seen resident meanwhile.
        """
        before, after = self._before, self._after
        cost = {name: after[name] - before.get(name, 0.0) for name in after if name.endswith("_s")}
        cost |= {name: after[name] for name in after if name.endswith("_bytes")}
        if MEMORY in cost or resident:
            cost[MEMORY] = max(cost.get(MEMORY, 0.0), resident)
        # The measuring thread of a process has ended by now, so it tells of itself.
        cost.pop("threads_cpu_s", None)
        if cost.pop("threads_run_delay_s", None) is not None:
            witness = outcome.value.get("witness")
            if isinstance(witness, Mapping) and "run_delay_s" in witness:
                cost["thread_run_delay_s"] = float(witness["run_delay_s"])
        cost[WALL] = self._ended - self._began
        return cost
