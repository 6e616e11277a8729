"""Energy that the host's processors use during a cell, by RAPL through the kernel's powercap.

Source: the kernel's Documentation/power/powercap/powercap.rst. A counter is in microjoules and
starts again from 0 above ``max_energy_range_uj``. It covers everything that its part of the
computer does, not the machine alone.

The processor updates a counter at intervals, so each of the two readings may be late by what was
used within one interval. The step between two different readings shows that amount.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tare.errors import TareError
from tare.hosts import Host
from tare.probes import Probe, ProbedCell, ProbeKind

if TYPE_CHECKING:
    from tare.agent.client import Outcome

POWERCAP = "/sys/class/powercap"
READINGS = 20
"""The readings that show the step; on a host over SSH they are further apart, and the step larger.
"""


@dataclass(frozen=True)
class Domain:
    """One counter: its name, its file, and the value above which it starts again."""

    name: str
    counter: str
    most_uj: int


async def domains_of(host: Host) -> tuple[Domain, ...]:
    """Return the counters of a host that can be read.

    The parts of a package are listed as well. They are included in the package, except for memory
    on servers.

    Args:
        host: The host.

    Raises:
        TareError: There is none.
    """
    names = await host.first_lines([f"{POWERCAP}/*rapl:*/name"])
    if not names:
        raise TareError("the host has no energy counter (RAPL) that its kernel shows")
    files = ("energy_uj", "max_energy_range_uj")
    values = await host.first_lines([f"{POWERCAP}/*rapl:*/{file}" for file in files])
    found = []
    labels = {path.rpartition("/")[0]: name for path, name in names.items()}
    for folder, name in sorted(labels.items()):
        counter, most = (values.get(f"{folder}/{file}", "") for file in files)
        if counter.isdecimal() and most.isdecimal():
            parent = labels.get(folder.rpartition(":")[0])
            found.append(
                Domain(f"{parent}/{name}" if parent else name, f"{folder}/energy_uj", int(most))
            )
    if not found:
        raise TareError("the host's energy counters (RAPL) cannot be read", "run as root")
    return tuple(found)


class EnergyProbe(Probe):
    """Reads a host's energy counters before and after the work.

    Args:
        host: The host.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._domains: tuple[Domain, ...] = ()
        self._steps: dict[str, int] = {}
        self._before: Mapping[str, int] = {}
        self._began = 0.0

    async def open(self) -> None:
        """Find the counters, and the step of each."""
        self._domains = await domains_of(self._host)
        before = await self._read()
        for _ in range(READINGS):
            after = await self._read()
            for domain in self._domains:
                step = moved(before[domain.name], after[domain.name], domain.most_uj)
                if step:
                    known = self._steps.get(domain.name, step)
                    self._steps[domain.name] = min(step, known)
            before = after

    async def begin(self) -> None:
        """Read the counters."""
        self._before = await self._read()
        self._began = time.monotonic()

    async def end(self, outcome: Outcome) -> None:
        """Read the counters again.

        Args:
            outcome: The result of the work.
        """
        after = await self._read()
        seconds = time.monotonic() - self._began
        self.facts = {
            "seconds": seconds,
            "domains": {
                domain.name: self._facts(domain, after[domain.name]) for domain in self._domains
            },
        }

    def _facts(self, domain: Domain, after: int) -> dict[str, float]:
        joules = moved(self._before[domain.name], after, domain.most_uj) / 1e6
        step = self._steps.get(domain.name)
        # A counter that did not move while it was watched has an unknown resolution.
        if step is None:
            return {"joules": joules}
        return {"joules": joules, "resolution_j": step / 1e6, "uncertainty_j": 2 * step / 1e6}

    async def _read(self) -> dict[str, int]:
        return {domain.name: int(await self._host.read(domain.counter)) for domain in self._domains}


def moved(before: int, after: int, most: int) -> int:
    """Return by how much a counter moved, which may have started again from 0 once."""
    return after - before if after >= before else after + most - before


class EnergyKind(ProbeKind):
    """Records the energy that the subject's host uses, with its resolution."""

    name = "energy"
    on_request = True

    def probe(self, cell: ProbedCell) -> Probe | None:
        """Return the probe of a cell."""
        return EnergyProbe(cell.context.host)
