"""What machines cost the host, as the host saw them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from tare.analysis.comparison import HostCost
from tare.analysis.rundata import RunData
from tare.events.results import MachineResult


def host_costs(runs: Sequence[RunData], emulated: frozenset[str]) -> tuple[HostCost, ...]:
    """Return what machines cost the host, per arm and scenario (medians over machines)."""
    groups: dict[tuple[str, str], list[MachineResult]] = {}
    for run in runs:
        for machine in run.machines:
            if machine.role == "subject":
                groups.setdefault((machine.arm, machine.scenario), []).append(machine)

    def median(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return statistics.median(known) if known else None

    return tuple(
        HostCost(
            arm=arm,
            scenario=scenario,
            machines=len(machines),
            boot_s=median([machine.boot_s for machine in machines]),
            cpu_s=median([machine.host_cost.get("cpu_s") for machine in machines]),
            rss_bytes=median([machine.host_cost.get("rss_bytes") for machine in machines]),
            emulated=arm in emulated,
        )
        for (arm, scenario), machines in groups.items()
    )
