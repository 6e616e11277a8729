"""Bytes that the host's memory moves during a cell, if its processor counts them.

A machine's own counters only show its own share. The kernel's `resctrl` counts what all CPUs of the
host together read from memory and wrote to it. If it is not mounted, or the processor has no such
counters, the record has the reason. Tare does not mount it, because it may be in use to divide the
caches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tare.events.cell_facts import CellFacts, HardwareCounts
from tare.probes import Probe

if TYPE_CHECKING:
    from tare.agent.client import Outcome
    from tare.hosts import Host

ROOT = "/sys/fs/resctrl"
COUNTERS = "mon_L3_*/mbm_total_bytes"
NONE = f"the host has no {ROOT}/mon_data/{COUNTERS}"
UNAVAILABLE = "the host's counters of memory traffic were not available"


class MemoryTraffic(Probe):
    """Reads the host's counters before and after a cell's work.

    Args:
        host: The host whose memory the machines use.
        root: The mount point of `resctrl`.
        clock: Seconds.
    """

    def __init__(
        self, host: Host, root: str = ROOT, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._host = host
        # The counts of a group include those of the groups within it.
        self._patterns = [f"{root}/mon_data/{COUNTERS}", f"{root}/*/mon_data/{COUNTERS}"]
        self._clock = clock
        self._before: Mapping[str, int] = {}
        self._began = 0.0

    async def begin(self) -> None:
        """Read the counters just before the common start.

        Raises:
            MachineFault: The host does not answer.
        """
        self._before = await self._read()
        self._began = self._clock()

    async def end(self, outcome: Outcome) -> None:
        """Read the counters when the work has ended.

        Raises:
            MachineFault: The host does not answer.
        """
        seconds = self._clock() - self._began
        after = await self._read()
        self.facts = CellFacts(host_memory=_moved(self._before, after, seconds))

    async def _read(self) -> dict[str, int]:
        lines = await self._host.first_lines(self._patterns)
        return {path: int(text) if text.isdecimal() else -1 for path, text in lines.items()}


def _moved(before: Mapping[str, int], after: Mapping[str, int], seconds: float) -> HardwareCounts:
    """Return bytes and seconds, or the reason why there are none."""
    if not before or not after:
        return {"missing": NONE}
    grown = [after.get(path, -1) - count for path, count in before.items()]
    # A group that was created or removed changes the totals.
    if before.keys() != after.keys() or min(*before.values(), *after.values(), *grown) < 0:
        return {"missing": UNAVAILABLE}
    return {"bytes": sum(grown), "seconds": seconds}
