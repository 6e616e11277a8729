"""How a cell used the disk of its machine: as the host counted, and as the agent reports it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tare.probes import Probe

if TYPE_CHECKING:
    from tare.agent.client import Outcome
    from tare.platforms.contract import Machine

REPORTED = ("disk", "caches_dropped", "file_set_bytes", "memory_bytes", "direct", "scaled")
"""Of a result of the agent, what says how the disk was used rather than how well it did."""


class DiskUse(Probe):
    """Counts on the host what a machine's own disk moved while the work was under way.

    Args:
        machine: The machine.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._host_cache: Mapping[str, Any] = {}
        self._before: Mapping[str, float] = {}
        self.moved: Mapping[str, float] = {}
        """Bytes that the host counted; empty: nobody counted."""

    async def forget(self) -> None:
        """Drop what the host's cache holds of the disk: all files are made, none is measured yet.

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
        """Read it once more.

        Raises:
            MachineFault: The host does not answer.
        """
        after = await self._machine.disk_moved()
        self.moved = {what: after[what] - self._before.get(what, 0.0) for what in after}
        facts = {"host_cache": dict(self._host_cache), "disk_moved_bytes": dict(self.moved)}
        self.facts = {name: fact for name, fact in facts.items() if fact}


def disk_facts(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a cell's record keeps of how the disk was used, by the agent's result."""
    if "disk" not in result:
        return {}
    return {"files": {name: result[name] for name in REPORTED if name in result}}
