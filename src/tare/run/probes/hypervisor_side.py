"""The hypervisor's reports on a cell: disturbances of the machines, and its own figures."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tare.events.cell_facts import CellFacts
from tare.probes import Probe

if TYPE_CHECKING:
    from tare.platforms.contract import Machine


class HypervisorSide(Probe):
    """Queries the machine's hypervisor before and after a cell.

    Args:
        machine: The machine that is measured.
        clock: Unix time in seconds.
        machines: All machines of the cell by role; a disturbance of any of them counts.
    """

    def __init__(
        self,
        machine: Machine,
        clock: Callable[[], float] = time.time,
        machines: Mapping[str, Machine] | None = None,
    ) -> None:
        self._machine = machine
        self._others = {
            role: each for role, each in (machines or {}).items() if each is not machine
        }
        self._clock = clock
        self._before: tuple[str, ...] = ()
        self._before_others: dict[str, tuple[str, ...]] = {}
        self._begun = 0.0

    async def open(self) -> None:
        """Record the disturbances that the hypervisor lists already."""
        self.doubt, self.facts = "", {}
        self._before_others = {
            role: await each.disturbances() for role, each in self._others.items()
        }
        self._before = await self._machine.disturbances()
        self._begun = self._clock()

    async def close(self) -> None:
        """Read new disturbances, and the hypervisor's figures.

        The doubt names the disturbances; the facts are the hypervisor's own figures, if it has any.
        """
        ended = self._clock()
        doubts = [await _new_disturbances(self._machine, self._before, "the machine")]
        for role, each in self._others.items():
            doubts.append(
                await _new_disturbances(each, self._before_others[role], f"that of the {role}")
            )
        self.doubt = "; ".join(filter(None, doubts))
        figures = await self._machine.hypervisor_figures(self._begun, ended)
        self.facts = CellFacts() if figures is None else CellFacts(hypervisor=figures.fact())


async def _new_disturbances(machine: Machine, before: tuple[str, ...], what: str) -> str:
    """Return the new disturbances of a machine as a phrase; empty: none."""
    fresh = [each for each in await machine.disturbances() if each not in before]
    return f"its hypervisor disturbed {what} meanwhile: {'; '.join(fresh)}" if fresh else ""
