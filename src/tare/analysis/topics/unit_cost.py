"""The host's cost of a unit of a machine's work: CPU time of the host, and memory.

A cell's cost covers it from its start to its end, warm-up included. A metric covers only the
measured part. So the CPU time is not divided by the work. Instead, the mean number of host CPUs
that were busy for the machine (CPU seconds per second) is divided by the work per second.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tare.analysis.data.rundata import SUBJECT, RunData
from tare.analysis.effects.comparison import HostCost
from tare.analysis.effects.results import Interval, Key
from tare.analysis.statistics.logratio import mean_interval
from tare.events.results import CellResult, MachineResult

CPU, MEMORY, WALL = "cpu_s", "rss_bytes", "wall_s"
LEAST_CPU_S = 0.02
"""The least CPU time for a ratio: two clock ticks of 10 ms, in which the kernel may count it."""


@dataclass(frozen=True)
class UnitCost:
    """The host's cost of one arm's machine while one metric was measured.

    Args:
        key: What was measured; the metric is empty if none counts work.
        unit: The metric's unit; empty if there is none.
        cpus: Host CPUs busy for the machine on average, median over cells.
        per_unit_s: CPU seconds of the host per unit of work (a byte, an operation, a run),
            geometric mean over blocks; None if no metric counts work, or there is too little CPU
            time.
        ratio: ``per_unit_s`` over the baseline's in the same block, geometric mean; None without.
        interval: The interval of the ratio, Student's t over blocks; None with fewer than two.
        rss_bytes: Peak resident memory of the machine on the host, median over cells.
        blocks: The number of blocks.
    """

    key: Key
    arm: str
    emulated: bool
    unit: str
    cpus: float | None
    per_unit_s: float | None
    ratio: float | None
    interval: Interval | None
    rss_bytes: float | None
    blocks: int


@dataclass
class _Group:
    cpus: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    per_unit: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    blocks: set[tuple[str, int]] = field(default_factory=set)


@dataclass(frozen=True)
class CellWork:
    """The work of a cell, by one headline metric.

    Args:
        metric: The metric; empty if none counts work.
        unit: Its unit.
        value: Its value: units of work per second, or seconds of one unit.
    """

    metric: str
    unit: str
    value: float

    def per_unit(self, per_second: float) -> float:
        """Return the cost of a unit of work.

        Args:
            per_second: The cost of a second, such as CPU seconds or joules.
        """
        return per_second / self.value if self.unit.endswith("/s") else per_second * self.value


def unit_costs(runs: Sequence[RunData], baseline: str, confidence: float) -> tuple[UnitCost, ...]:
    """Return the host cost of every arm for every headline metric that counts work.

    Args:
        runs: Runs of one study.
        baseline: The arm that the others are compared with.
        confidence: Nominal coverage of the intervals.
    """
    groups: dict[Key, dict[str, _Group]] = {}
    units: dict[Key, str] = {}
    own = {arm: base for run in runs for arm, base in run.own_baselines.items()}
    emulated = frozenset[str]().union(*(run.emulated_arms for run in runs)) if runs else frozenset()
    for run in runs:
        costed = [cell for cell in run.cells if cell.status == "ok" and "host_cost" in cell.facts]
        work = work_of(run) if costed else {}
        for cell in costed:
            for done in work.get(cell.cell) or [CellWork("", "", 0.0)]:
                key = Key(cell.scenario, cell.workload, cell.parameters, SUBJECT, done.metric)
                units[key] = done.unit
                group = groups.setdefault(key, {}).setdefault(cell.arm, _Group())
                _take(group, cell, done)
    return tuple(
        _cost(
            key,
            arm,
            group,
            by_arm.get(own.get(arm, baseline)),
            units[key],
            arm in emulated,
            confidence,
        )
        for key, by_arm in groups.items()
        for arm, group in by_arm.items()
        if group.cpus or group.memory
    )


def work_of(run: RunData) -> dict[str, list[CellWork]]:
    """Return the headline metrics of each cell that count work: rates, or else durations."""
    found: dict[str, list[CellWork]] = {}
    for cell in run.counted:
        for role, metric, value in cell.observed:
            if role == SUBJECT and metric.headline and metric.kind == "typical" and value > 0:
                work = CellWork(metric.name, metric.unit, value)
                found.setdefault(cell.result.cell, []).append(work)
    return {cell: _counting(work) for cell, work in found.items()}


def _counting(work: Sequence[CellWork]) -> list[CellWork]:
    rates = [done for done in work if done.unit.endswith("/s")]
    return rates or [done for done in work if done.unit == "s"]


def _take(group: _Group, cell: CellResult, done: CellWork) -> None:
    cost = cell.facts["host_cost"]
    block = (cell.run, cell.block)
    group.blocks.add(block)
    if MEMORY in cost:
        group.memory.append(float(cost[MEMORY]))
    cpu_s = float(cost.get(CPU, 0.0))
    # Old runs recorded only the time of the whole cell.
    wall_s = float(cost.get(WALL) or cell.measured_s)
    if CPU not in cost or wall_s <= 0:
        return
    cpus = cpu_s / wall_s
    group.cpus.append(cpus)
    if done.value > 0 and cpu_s >= LEAST_CPU_S:
        group.per_unit.setdefault(block, []).append(math.log(done.per_unit(cpus)))


Logs = Mapping[tuple[str, int], Sequence[float]]
"""Logarithms of the cost of a unit of work, one for each cell, by run and block."""


@dataclass(frozen=True)
class MeanCost:
    """The cost of a unit of work over all blocks.

    Args:
        per_unit: Geometric mean over blocks; None without values.
        ratio: ``per_unit`` over the baseline's in the same block, geometric mean; None without.
        interval: The interval of the ratio, Student's t over blocks; None with fewer than two.
    """

    per_unit: float | None
    ratio: float | None
    interval: Interval | None


def mean_over_blocks(mine: Logs, others: Logs, confidence: float) -> MeanCost:
    """Return the mean cost of a unit of work, and its ratio to the baseline's.

    Args:
        mine: Costs of the arm.
        others: Costs of the baseline; empty for the baseline itself.
        confidence: Nominal coverage of the interval.
    """
    logs = {block: statistics.fmean(values) for block, values in mine.items()}
    ratios = [logs[block] - statistics.fmean(others[block]) for block in logs if block in others]
    interval = None
    if len(ratios) > 1:
        ends = mean_interval(ratios, confidence)
        interval = Interval(math.exp(ends.low), math.exp(ends.high), "student-t", confidence)
    return MeanCost(
        math.exp(statistics.fmean(logs.values())) if logs else None,
        math.exp(statistics.fmean(ratios)) if ratios else None,
        interval,
    )


def _cost(
    key: Key,
    arm: str,
    group: _Group,
    base: _Group | None,
    unit: str,
    emulated: bool,
    confidence: float,
) -> UnitCost:
    others = base.per_unit if base is not None and base is not group else {}
    mean = mean_over_blocks(group.per_unit, others, confidence)
    return UnitCost(
        key=key,
        arm=arm,
        emulated=emulated,
        unit=unit,
        cpus=statistics.median(group.cpus) if group.cpus else None,
        per_unit_s=mean.per_unit,
        ratio=mean.ratio,
        interval=mean.interval,
        rss_bytes=statistics.median(group.memory) if group.memory else None,
        blocks=len(group.blocks),
    )


def host_costs(runs: Sequence[RunData], emulated: frozenset[str]) -> tuple[HostCost, ...]:
    """Return the cost of machines for the host, by arm and scenario (medians over machines)."""
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
