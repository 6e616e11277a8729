"""How long tasks of the host waited for CPUs, memory and disks while a cell was measured."""

from __future__ import annotations

from tare.agent.client import Outcome
from tare.hosts import Host
from tare.probes import Probe, ProbedCell, ProbeKind

RESOURCES = ("cpu", "memory", "io")


class Pressure(ProbeKind):
    """Reads the pressure stall information of the host's kernel (PSI)."""

    name = "pressure"

    def probe(self, cell: ProbedCell) -> Probe | None:
        """Return a probe of the host that the arm of the cell runs on."""
        return _Waits(cell.context.host)


class _Waits(Probe):
    def __init__(self, host: Host) -> None:
        self._host = host
        self._before: dict[str, float] = {}

    async def begin(self) -> None:
        self._before = await self._read()

    async def end(self, outcome: Outcome) -> None:
        after = await self._read()
        self.facts = {f"{name}_s": after[name] - self._before[name] for name in RESOURCES}

    async def _read(self) -> dict[str, float]:
        files = {name: await self._host.read(f"/proc/pressure/{name}") for name in RESOURCES}
        return {name: waited_s(content) for name, content in files.items()}


def waited_s(content: bytes) -> float:
    """Return for how many seconds since the boot at least one task waited.

    The kernel's format is in Documentation/accounting/psi.rst: the first line begins with ``some``
    and ends with ``total=`` and a number of microseconds.
    """
    some = content.decode().splitlines()[0]
    return int(some.rpartition("total=")[2]) / 1e6
