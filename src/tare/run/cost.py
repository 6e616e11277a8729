"""What a cell's machines cost their host, from the common start to the end of the work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tare.agent.client import Outcome
    from tare.platforms.contract import Machine

MEMORY = "rss_bytes"
WALL = "wall_s"
"""For how long the cost was taken: shorter than the cell, which also prepares and ends."""


async def cost_together(machines: Sequence[Machine]) -> dict[str, float]:
    """Return what some machines cost their hosts so far; see ``Machine.host_cost``."""
    costs = await asyncio.gather(*(machine.host_cost() for machine in machines))
    names = {name: None for cost in costs for name in cost}
    return {name: sum(cost.get(name, 0.0) for cost in costs) for name in names}


@dataclass
class CellCost:
    """Reads the cost of ``machines``, which carry the work, on both sides of it."""

    machines: Sequence[Machine]
    _before: Mapping[str, float] = field(default_factory=dict)
    _after: Mapping[str, float] = field(default_factory=dict)
    _began: float = 0.0
    _ended: float = 0.0

    async def begin(self) -> None:
        """Read what they have cost so far; when all is prepared, just before the start.

        Raises:
            MachineFault: One has ended.
        """
        self._before = await cost_together(self.machines)
        self._began = time.monotonic()

    async def end(self) -> None:
        """Read what they have cost; when the work has ended, before anything else is done.

        Raises:
            MachineFault: One has ended.
        """
        self._ended = time.monotonic()
        self._after = await cost_together(self.machines)

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
