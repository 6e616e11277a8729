"""Hardware counters of the host during a cell: by thread, and of the whole host's memory traffic.

A guest rarely has hardware counters, and those of neighbours are never read. Their host has them,
and counts for any of its threads (perf_event_open(2)): this includes the work of a machine's vCPUs
in the guest and on its behalf.

A machine's own counters only show its own share of the memory bus. The kernel's `resctrl` counts
what all CPUs of the host together read from memory and wrote to it. If it is not mounted, or the
processor has no such counters, the record has the reason. Tare does not mount it, because it may be
in use to divide the caches.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from tare.errors import TareError
from tare.events.cell_facts import CellFacts, HardwareCounts
from tare.hosts import OwnedProcess, start_owned
from tare.probes import Probe

if TYPE_CHECKING:
    from tare.agent.client import Outcome
    from tare.hosts import Host
    from tare.platforms.contract import Context, Machine

READY = b"counting\n"
PATIENCE_S = 20.0
GRACE_S = 2.0
NO_THREADS = "its vCPUs are not threads of the host's kernel"


class HostHardware(Probe):
    """Counts for the machines of a cell, from its start to its end.

    Args:
        context: The host of the machines.
        machines: The machines of the cell, by role.
        apart: CPUs that the counting process avoids, as far as there are others.
    """

    def __init__(
        self, context: Context, machines: Mapping[str, Machine], apart: Sequence[int] = ()
    ) -> None:
        self._context = context
        self._machines = machines
        self._apart = apart
        self._process: OwnedProcess | None = None
        self._roles: tuple[str, ...] = ()
        self._counted: dict[str, HardwareCounts] = {}
        self.facts = CellFacts(host_hardware=self._counted)

    async def begin(self) -> None:
        """Start to count for each machine; record the reason if that is impossible."""
        lists: dict[str, str] = {}
        for role, machine in self._machines.items():
            threads = await machine.vcpu_threads() or tuple(await machine.threads())
            if threads:
                lists[role] = ",".join(map(str, threads))
            else:
                self._counted[role] = {"missing": NO_THREADS}
        self._roles = tuple(lists)
        if not lists:
            return
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._start(self._context, tuple(lists.values()))
        except (TareError, OSError, ValueError) as error:
            await self._lose(str(error) or type(error).__name__)

    async def _start(self, context: Context, lists: Sequence[str]) -> None:
        host = context.host.topology()
        cpus = host.apart_from(self._apart) or host.online
        self._process = await start_owned(
            context.host, context.ledger, [str(context.host_agent), "count", *lists], cpus=cpus
        )
        if await self._process.stdout.readline() != READY:
            raise ValueError("the host's agent did not begin to count")

    async def end(self, outcome: Outcome) -> None:
        """Stop counting, and keep the counts."""
        process = self._process
        if process is None:
            return
        try:
            async with asyncio.timeout(PATIENCE_S):
                process.stdin.close()
                counts = json.loads(await process.stdout.readline())
            counted = dict(zip(self._roles, counts, strict=True))
        except (TareError, OSError, ValueError, TypeError) as error:
            await self._lose(str(error) or type(error).__name__)
            return
        self._counted.update(counted)
        await self._stop()

    async def _lose(self, why: str) -> None:
        missing: HardwareCounts = {"missing": f"the host could not count: {why}"}
        self._counted.update(dict.fromkeys(self._roles, missing))
        await self._stop()

    async def abandon(self, limit_s: float) -> None:
        """End the counting process, if there is one."""
        await self._stop()

    async def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with suppress(TareError, OSError):
                process.stdin.close()
                await process.end(GRACE_S)


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
