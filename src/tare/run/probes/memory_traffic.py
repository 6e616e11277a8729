"""How many bytes the host's memory moved during a cell, where its processor counts that.

What a machine's own counters tell is its own share. The kernel's `resctrl` tells what all CPUs of
the host together brought from memory and wrote to it, whoever ran there. Where nobody mounted it,
or the processor has no such counters, that is said; Tare does not mount it, for whoever does may
have divided the caches by it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from tare.events.cell_facts import HardwareCounts
from tare.probes import Probe

if TYPE_CHECKING:
    from tare.agent.client import Outcome
    from tare.hosts import Host

FACT: Final = "host_memory"
"""Where a cell's record holds what was counted."""
ROOT = "/sys/fs/resctrl"
COUNTERS = "mon_L3_*/mbm_total_bytes"
NONE = f"the host has no {ROOT}/mon_data/{COUNTERS}"
UNAVAILABLE = "the host's counters of memory traffic were not available"


class MemoryTraffic(Probe):
    """Reads the host's counters before and after a cell's work.

    Args:
        host: The host whose memory the machines use.
        root: Where `resctrl` is mounted.
        clock: Seconds.
    """

    def __init__(
        self, host: Host, root: str = ROOT, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._host = host
        # A group holds what its own tasks moved, with those of the groups within it.
        self._patterns = [f"{root}/mon_data/{COUNTERS}", f"{root}/*/mon_data/{COUNTERS}"]
        self._clock = clock
        self._before: Mapping[str, int] = {}
        self._began = 0.0

    async def begin(self) -> None:
        """Read them just before the common start.

        Raises:
            MachineFault: The host does not answer.
        """
        self._before = await self._read()
        self._began = self._clock()

    async def end(self, outcome: Outcome) -> None:
        """Read them when the work has ended.

        Raises:
            MachineFault: The host does not answer.
        """
        seconds = self._clock() - self._began
        after = await self._read()
        self.facts = {FACT: _moved(self._before, after, seconds)}

    async def _read(self) -> dict[str, int]:
        lines = await self._host.first_lines(self._patterns)
        return {path: int(text) if text.isdecimal() else -1 for path, text in lines.items()}


def _moved(before: Mapping[str, int], after: Mapping[str, int], seconds: float) -> HardwareCounts:
    """Return bytes and seconds, or why there are none."""
    if not before or not after:
        return {"missing": NONE}
    grown = [after.get(path, -1) - count for path, count in before.items()]
    # A group that came or went took some of the counts with it.
    if before.keys() != after.keys() or min(*before.values(), *after.values(), *grown) < 0:
        return {"missing": UNAVAILABLE}
    return {"bytes": sum(grown), "seconds": seconds}
