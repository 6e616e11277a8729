"""The cost of a cell's machines on their host, from the common start to the end of the work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from tare.errors import TareError
from tare.events.cell_facts import CellFacts
from tare.probes import Probe

if TYPE_CHECKING:
    from tare.agent.client import Outcome
    from tare.platforms.contract import Machine

MEMORY = "rss_bytes"
WALL = "wall_s"
"""The time over which the cost was measured; preparation and end of the cell are excluded."""
LOOK_S = 1.0


async def cost_together(machines: Sequence[Machine]) -> dict[str, float]:
    """Return the total cost of machines on their hosts so far; see ``Machine.host_cost``."""
    costs = await asyncio.gather(*(machine.host_cost() for machine in machines))
    names = {name: None for cost in costs for name in cost}
    return {name: sum(cost.get(name, 0.0) for cost in costs) for name in names}


class CellCost(Probe):
    """Reads the cost of the machines that carry the work, before and after it.

    Args:
        machines: These machines.
        looks: Whether to read their memory once a second meanwhile, too: processes that a workload
            starts have ended at the end of the cell, and their memory is free again.
    """

    def __init__(self, machines: Sequence[Machine], *, looks: bool) -> None:
        self._machines = machines
        self._looks = looks and bool(machines)
        self._looking: asyncio.Task[None] | None = None
        self._resident = 0.0
        self._before: Mapping[str, float] = {}
        self._began = 0.0
        self._cost: dict[str, float] = {}

    async def open(self) -> None:
        """Start to sample the resident memory."""
        if self._looks:
            self._looking = asyncio.create_task(self._look())

    async def begin(self) -> None:
        """Read the machines' cost so far.

        Raises:
            MachineFault: A machine has ended.
        """
        self._before = await cost_together(self._machines)
        self._began = time.monotonic()

    async def end(self, outcome: Outcome) -> None:
        """Read the machines' cost, before anything else is done.

        Args:
            outcome: The result of the work, with the wait of its own thread.

        Raises:
            MachineFault: A machine has ended.
        """
        ended, before = time.monotonic(), self._before
        after = await cost_together(self._machines)
        cost = {name: after[name] - before.get(name, 0.0) for name in after if name.endswith("_s")}
        cost |= {name: after[name] for name in after if name.endswith("_bytes")}
        # The measuring thread of a process has ended by now, so it reports its own wait.
        cost.pop("threads_cpu_s", None)
        if cost.pop("threads_run_delay_s", None) is not None:
            witness = outcome.value.get("witness")
            if isinstance(witness, Mapping) and "run_delay_s" in witness:
                cost["thread_run_delay_s"] = float(witness["run_delay_s"])
        cost[WALL] = ended - self._began
        self._cost = cost

    async def close(self) -> None:
        """Stop sampling, and record the cost: seconds of CPU time, bytes of resident memory."""
        await self._look_away()
        if MEMORY in self._cost or self._resident:
            self._cost[MEMORY] = max(self._cost.get(MEMORY, 0.0), self._resident)
        self.facts = CellFacts(host_cost=self._cost)

    async def abandon(self, limit_s: float) -> None:
        """Stop sampling."""
        await self._look_away()

    async def _look(self) -> None:
        with suppress(TareError, OSError):
            while True:
                # The total rate of readings does not depend on the number of machines.
                await asyncio.sleep(LOOK_S * len(self._machines))
                cost = await cost_together(self._machines)
                self._resident = max(self._resident, cost.get(MEMORY, 0.0))

    async def _look_away(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
