"""What a cell's machines ask of the host's caches and memory bus, as the host counts it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tare.events.cell_facts import CellFacts
from tare.run.host_hardware import HostHardware
from tare.run.memory_traffic import MemoryTraffic

if TYPE_CHECKING:
    from tare.platforms.contract import Context, Machine


class HostBus:
    """Counts for each machine, and what all the host's CPUs together move to and from memory.

    Args:
        context: Where the machines run; None where nobody asked for it.
        apart: CPUs that what counts is to keep off.
    """

    def __init__(self, context: Context | None, apart: Sequence[int] = ()) -> None:
        self._traffic = MemoryTraffic(None if context is None else context.host)
        self._hardware = HostHardware(context, apart)

    @property
    def facts(self) -> CellFacts:
        """For the cell's record; empty where nothing was asked for."""
        return {**self._traffic.facts, **self._hardware.facts}

    async def begin(self, machines: Mapping[str, Machine]) -> None:
        """Begin when all is prepared.

        Args:
            machines: By role.

        Raises:
            MachineFault: The host does not answer.
        """
        await self._hardware.begin(machines)
        await self._traffic.begin()

    async def end(self) -> None:
        """Count no further: the work has ended.

        Raises:
            MachineFault: The host does not answer.
        """
        await self._traffic.end()
        await self._hardware.end()

    async def abandon(self) -> None:
        """End what counts after the cell has failed."""
        await self._hardware.abandon()
