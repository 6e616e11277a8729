"""Detection of CPUs that go offline or online, or leave the cpuset, between cells."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from tare.errors import MachineFault
from tare.events import CpusChanged
from tare.study.planning.host_cpus import cpu_words

if TYPE_CHECKING:
    from tare.events import EventLog
    from tare.hosts import Host
    from tare.study.planning.placement import Placement


class CpuWatch:
    """Remembers the usable CPUs of each host at the last reading.

    Args:
        log: The event log in which changes are recorded.
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._usable: dict[str, tuple[int, ...]] = {}
        self._changes: dict[str, list[str]] = {}
        self._first: dict[str, frozenset[int]] = {}

    async def changed(self, host: Host, named: str, block: int, cell: str = "") -> str:
        """Read a host's usable CPUs, and record a change since the last reading.

        Args:
            host: The host.
            named: The study's name for it; empty for a single host.
            block: The current block.
            cell: The cell that was measured meanwhile; empty: none.

        Returns:
            The change as a phrase; empty: none.

        Raises:
            MachineFault: The host cannot be reached.
        """
        self._usable.setdefault(host.name, host.topology().online)
        self._first.setdefault(host.name, frozenset(self._usable[host.name]))
        now = await host.usable_cpus()
        # Another arm that runs at the same time may have read them meanwhile.
        before = self._usable[host.name]
        if now == before:
            return ""
        self._usable[host.name] = now
        event = CpusChanged(
            host=named,
            block=block,
            cell=cell,
            before=cpu_words(before),
            after=cpu_words(now),
            gone=cpu_words(set(before) - set(now)),
            came=cpu_words(set(now) - set(before)),
        )
        self._log.append(event)
        self._changes.setdefault(host.name, []).append(event.words)
        # If no CPU is left, the host keeps the last topology: the machines fail, not the reading.
        if now:
            await host.look_again()
        return event.words

    def count(self, host: Host) -> int:
        """Return the number of changes of a host's CPUs so far."""
        return len(self._changes.get(host.name, ()))

    async def unchanged(self, host: Host, named: str, block: int, cell: str, since: int) -> None:
        """Check that a host's CPUs did not change during a cell.

        Args:
            host: The host.
            named: The study's name for it.
            block: The current block.
            cell: The cell.
            since: The result of :meth:`count` when the cell began.

        Raises:
            MachineFault: They changed; the cell does not count, and is measured again.
        """
        await self.changed(host, named, block, cell)
        if words := "; ".join(self._changes.get(host.name, [])[since:]):
            raise MachineFault(f"the host's CPUs changed during the cell: {words}", transient=True)

    async def require(self, host: Host, named: str, block: int, cpus: Collection[int]) -> None:
        """Check that CPUs are usable before machines are placed on them.

        Raises:
            MachineFault: Some are not usable any more.
        """
        await self.changed(host, named, block)
        # Under a hypervisor, machines run on CPUs that the host's own kernel does not see.
        own = set(cpus) & self._first[host.name]
        if missing := own - set(self._usable[host.name]):
            raise MachineFault(
                f"CPU {cpu_words(missing)}, needed for its machines, can no longer be used",
                "bring it online (echo 1 > /sys/devices/system/cpu/cpuN/online) or allow it in the "
                "control group, and resume; or start a new run, which is placed on other CPUs",
            )


def cpus_of(placement: Placement) -> frozenset[int]:
    """Return the CPUs of the arm's own host that a placement binds machines to."""
    if placement.carrier:
        return frozenset()
    own = [each.cpus for each in placement.companions if not each.host]
    return frozenset().union(placement.subject, *own, *(each.cpus for each in placement.neighbours))
