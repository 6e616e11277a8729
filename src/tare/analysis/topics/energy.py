"""The energy of a unit of work, from the host's power while a cell was measured.

The probe `energy` covers a cell from its start to its end, warm-up included. A metric covers only
the measured part. So the host's mean power is divided by the rate of the work, as for CPU time in
:mod:`tare.analysis.topics.unit_cost`.

The host's idle power is part of all values: nothing is subtracted.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Required

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from tare.analysis.data.rundata import SUBJECT, RunData
from tare.analysis.effects.results import Interval, Key
from tare.analysis.topics.unit_cost import CellWork, mean_over_blocks, work_of
from tare.events.cell_facts import Amount

PROBE = "energy"
PROCESSORS, MEMORY = "processors (RAPL)", "memory (RAPL)"
PLATFORM, COMPUTER = "platform (RAPL)", "whole computer (BMC)"
METERS = (PROCESSORS, MEMORY, PLATFORM, COMPUTER)
"""The parts of the host that meters cover. Do not add meters up: some contain others."""


class _Counter(TypedDict, total=False):
    joules: Required[Amount]
    resolution_j: Amount
    uncertainty_j: Amount


class _Bmc(TypedDict, total=False):
    missing: str
    source: str
    seconds: Amount
    joules: Amount
    uncertainty_j: Amount
    accuracy_w: Amount


class _Recorded(TypedDict, total=False):
    """The facts of the probe, as `tare.run.probes.energy` records them."""

    missing: str
    seconds: Amount
    domains: dict[str, _Counter]
    no_counters: str
    idle_w: dict[str, Amount]
    bmc: _Bmc


@cache
def _reader() -> TypeAdapter[_Recorded]:
    return TypeAdapter(_Recorded)


@dataclass(frozen=True)
class EnergyCost:
    """The energy of one arm's host by one meter, while one metric was measured.

    Args:
        key: What was measured; the metric is empty if none counts work.
        arm: The arm.
        emulated: Whether its processors are emulated.
        unit: The metric's unit; empty if there is none.
        meter: What the meter covers, one of `METERS`.
        watts: Mean power of the host, median over cells.
        idle_w: The host's power before the work, with the machine booted, median over cells. None
            if it was not measured.
        per_unit_j: Joules per unit of work (a byte, an operation, a run), geometric mean over
            blocks. None if no metric counts work, or if the meter is too coarse.
        uncertainty: The meter's uncertainty in one cell as a share of the energy, the largest of
            all cells; None if unknown.
        ratio: ``per_unit_j`` over the baseline's in the same block, geometric mean; None without.
        interval: The interval of the ratio, Student's t over blocks; None with fewer than two.
        blocks: The number of blocks.
    """

    key: Key
    arm: str
    emulated: bool
    unit: str
    meter: str
    watts: float
    idle_w: float | None
    per_unit_j: float | None
    uncertainty: float | None
    ratio: float | None
    interval: Interval | None
    blocks: int


@dataclass(frozen=True)
class _Reading:
    watts: float
    idle_w: float | None
    uncertainty: float | None


@dataclass
class _Group:
    readings: list[_Reading] = field(default_factory=list)
    per_unit: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    blocks: set[tuple[str, int]] = field(default_factory=set)


def energy_costs(
    runs: Sequence[RunData], baseline: str, confidence: float
) -> tuple[tuple[EnergyCost, ...], Mapping[str, tuple[str, ...]]]:
    """Return the energy of every arm for every headline metric that counts work.

    Args:
        runs: Runs of one study.
        baseline: The arm that the others are compared with.
        confidence: Nominal coverage of the intervals.

    Returns:
        The energies, and for each reason why energy was not measured, the arms that it applies to.
    """
    groups: dict[tuple[Key, str], dict[str, _Group]] = {}
    units: dict[Key, str] = {}
    missing: dict[str, dict[str, None]] = {}
    own = {arm: base for run in runs for arm, base in run.own_baselines.items()}
    emulated = frozenset[str]().union(*(run.emulated_arms for run in runs))
    for run in runs:
        work = work_of(run)
        for done in run.counted:
            cell = done.result
            facts = (cell.facts.get("probes") or {}).get(PROBE)
            if facts is None:
                continue
            recorded = _read(facts)
            for reason in _missing(recorded):
                missing.setdefault(reason, {})[cell.arm] = None
            for each in work.get(cell.cell) or [CellWork("", "", 0.0)]:
                key = Key(cell.scenario, cell.workload, cell.parameters, SUBJECT, each.metric)
                units[key] = each.unit
                for meter, reading in _readings(recorded):
                    group = groups.setdefault((key, meter), {}).setdefault(cell.arm, _Group())
                    _take(group, (cell.run, cell.block), reading, each)
    costs = tuple(
        _cost(
            key,
            meter,
            arm,
            group,
            by_arm.get(own.get(arm, baseline)),
            units[key],
            arm in emulated,
            confidence,
        )
        for (key, meter), by_arm in groups.items()
        for arm, group in by_arm.items()
    )
    return costs, {reason: tuple(arms) for reason, arms in missing.items()}


def _read(facts: Any) -> _Recorded:
    """Check and return the facts of a cell: a run's folder may come from anyone."""
    try:
        return _reader().validate_python(facts)
    except ValidationError:
        return {"missing": "the cell's facts are not those of energy"}


def _missing(recorded: _Recorded) -> Iterator[str]:
    bmc = recorded.get("bmc", {})
    reasons = recorded.get("missing"), recorded.get("no_counters"), bmc.get("missing")
    yield from filter(None, reasons)


def _readings(recorded: _Recorded) -> Iterator[tuple[str, _Reading]]:
    """Return what each meter measured in a cell."""
    seconds, domains = recorded.get("seconds", 0.0), recorded.get("domains", {})
    idle = recorded.get("idle_w", {})
    by_meter: dict[str, list[str]] = {}
    for name in domains:
        if meter := _meter_of(name):
            by_meter.setdefault(meter, []).append(name)
    for meter, names in by_meter.items():
        joules = sum(domains[name]["joules"] for name in names)
        if joules <= 0 or seconds <= 0:
            continue
        errors = [domains[name].get("uncertainty_j") for name in names]
        known = [each for each in errors if each is not None]
        yield (
            meter,
            _Reading(
                joules / seconds,
                sum(idle[name] for name in names) if idle.keys() >= set(names) else None,
                sum(known) / joules if len(known) == len(names) else None,
            ),
        )
    bmc = recorded.get("bmc", {})
    joules, lasted = bmc.get("joules", 0.0), bmc.get("seconds", 0.0)
    if joules > 0 and lasted > 0:
        error = bmc.get("uncertainty_j")
        share = None if error is None else error / joules
        yield COMPUTER, _Reading(joules / lasted, None, share)


def _meter_of(domain: str) -> str:
    """Return the meter of a RAPL counter; empty for a part that another counter contains.

    The memory of a package is not part of it on servers, so it has a meter of its own.
    """
    package, _, part = domain.partition("/")
    if package == "psys":
        return "" if part else PLATFORM
    if not package.startswith("package"):
        return ""
    return MEMORY if part == "dram" else "" if part else PROCESSORS


def _take(group: _Group, block: tuple[str, int], reading: _Reading, done: CellWork) -> None:
    group.readings.append(reading)
    group.blocks.add(block)
    if done.value > 0 and (reading.uncertainty is None or reading.uncertainty < 1):
        each = math.log(done.per_unit(reading.watts))
        group.per_unit.setdefault(block, []).append(each)


def _cost(
    key: Key,
    meter: str,
    arm: str,
    group: _Group,
    base: _Group | None,
    unit: str,
    emulated: bool,
    confidence: float,
) -> EnergyCost:
    others = base.per_unit if base is not None and base is not group else {}
    mean = mean_over_blocks(group.per_unit, others, confidence)
    idle = [each.idle_w for each in group.readings if each.idle_w is not None]
    errors = [each.uncertainty for each in group.readings if each.uncertainty is not None]
    return EnergyCost(
        key=key,
        arm=arm,
        emulated=emulated,
        unit=unit,
        meter=meter,
        watts=statistics.median(each.watts for each in group.readings),
        idle_w=statistics.median(idle) if idle else None,
        per_unit_j=mean.per_unit,
        uncertainty=max(errors) if len(errors) == len(group.readings) else None,
        ratio=mean.ratio,
        interval=mean.interval,
        blocks=len(group.blocks),
    )
