"""A cell's use of its machine's disk, as the host counts it and as the agent reports it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tare.events.cell_facts import CellFacts
from tare.probes import Probe

if TYPE_CHECKING:
    from tare.agent.client import Outcome
    from tare.platforms.contract import Machine

REPORTED = ("disk", "caches_dropped", "file_set_bytes", "memory_bytes", "direct", "scaled")
"""The fields of an agent's result on how the disk was used, not on how fast it was."""


class DiskUse(Probe):
    """Counts on the host the bytes that a machine's own disk moves during the work.

    Args:
        machine: The machine.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._host_cache: Mapping[str, Any] = {}
        self._before: Mapping[str, float] = {}
        self.moved: Mapping[str, float] = {}
        """Bytes that the host counted; empty: the host does not count."""

    async def forget(self) -> None:
        """Drop the disk from the host's cache, once all files exist and none is measured yet.

        Raises:
            MachineFault: The host does not answer.
        """
        self._host_cache = await self._machine.forget_disk()

    async def begin(self) -> None:
        """Read the host's count.

        Raises:
            MachineFault: The host does not answer.
        """
        self._before = await self._machine.disk_moved()

    async def end(self, outcome: Outcome) -> None:
        """Read the host's count again.

        Raises:
            MachineFault: The host does not answer.
        """
        after = await self._machine.disk_moved()
        self.moved = {what: after[what] - self._before.get(what, 0.0) for what in after}
        facts = CellFacts()
        if self._host_cache:
            facts["host_cache"] = dict(self._host_cache)
        if self.moved:
            facts["disk_moved_bytes"] = dict(self.moved)
        self.facts = facts


def disk_facts(result: Mapping[str, Any]) -> CellFacts:
    """Return the facts on the use of the disk, from the agent's result."""
    if "disk" not in result:
        return {}
    return CellFacts(files={name: result[name] for name in REPORTED if name in result})
