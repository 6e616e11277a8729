"""The tables of what a unit of each workload's work costs the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tare.analysis.model import Comparison
from tare.analysis.unit_cost import UnitCost, unit_costs
from tare.report.intervals import interval_columns
from tare.report.tables import Column, Table
from tare.report.words import (
    NONE,
    Names,
    Part,
    marked,
    metric_name,
    ratio,
)
from tare.units import format_quantity, format_size

_LARGE = {"B/s": (1e9, "/GB")}
"""Units whose single piece is too small to speak of: by how much, and how it is written."""


def costs_of(comparison: Comparison) -> tuple[UnitCost, ...]:
    """Return the costs of all arms in the study's order."""
    places = {arm: place for place, arm in enumerate(comparison.arms)}
    found = unit_costs(comparison.runs, comparison.baseline, comparison.confidence)
    return tuple(sorted(found, key=lambda cost: places.get(cost.arm, len(places))))


def by_part(costs: Sequence[UnitCost]) -> Mapping[Part, tuple[UnitCost, ...]]:
    """Return for each part one cost an arm, that of its first metric; tables have all."""
    first: dict[Part, str] = {}
    found: dict[Part, list[UnitCost]] = {}
    for cost in costs:
        part = Part.of(cost.key)
        if first.setdefault(part, cost.key.metric) == cost.key.metric:
            found.setdefault(part, []).append(cost)
    return {part: tuple(members) for part, members in found.items()}


def unit_cost_table(comparison: Comparison, costs: Sequence[UnitCost]) -> Table[UnitCost]:
    """Return host CPU time per unit of work and memory, one row an arm and metric."""
    names = Names(Part.of(cost.key) for cost in costs)
    columns: tuple[Column[UnitCost], ...] = (
        Column("what", lambda c: names.name(Part.of(c.key)), "What"),
        Column("scenario", lambda c: c.key.scenario),
        Column("workload", lambda c: c.key.workload),
        Column("parameters", lambda c: c.key.parameters),
        Column("arm", lambda c: c.arm, "Arm", lambda c: marked(c.arm, c.emulated)),
        Column("emulated", lambda c: c.emulated),
        Column("metric", lambda c: c.key.metric, "Work", lambda c: _work(c)),
        Column("unit", lambda c: c.unit),
        Column(
            "cpus",
            lambda c: c.cpus,
            "Host CPUs busy",
            lambda c: NONE if c.cpus is None else f"{c.cpus:.2f}",
            numeric=True,
        ),
        Column(
            "per_unit_s",
            lambda c: c.per_unit_s,
            "CPU time per unit",
            per_unit,
            numeric=True,
        ),
        Column(
            "ratio",
            lambda c: c.ratio,
            f"Against {comparison.against}",
            lambda c: NONE if c.ratio is None else ratio(c.ratio),
            numeric=True,
        ),
        *interval_columns(lambda c: c.interval, lambda c: c.blocks),
        Column(
            "rss_bytes",
            lambda c: c.rss_bytes,
            "Memory on the host",
            lambda c: NONE if c.rss_bytes is None else format_size(c.rss_bytes),
            numeric=True,
        ),
        Column("blocks", lambda c: c.blocks, "Blocks", numeric=True),
    )
    caption = (
        "What it cost the host: CPU time for a unit of work, and memory; of a cluster, of all "
        "its machines"
    )
    tone = lambda c: "emulated" if c.emulated else ""  # noqa: E731
    return Table("host-cost-per-unit", caption, columns, tuple(costs), tone=tone)


def _work(cost: UnitCost) -> str:
    if not cost.key.metric:
        return NONE
    name = metric_name(cost.key.metric)
    return name if cost.unit.endswith("/s") else f"one {cost.key.workload} ({name})"


def per_unit(cost: UnitCost) -> str:
    """Return CPU time per unit as people say it: ``1.2 µs``, ``0.31 s/GB``."""
    if cost.per_unit_s is None:
        return NONE
    times, per = _LARGE.get(cost.unit, (1.0, ""))
    return format_quantity(cost.per_unit_s * times, "s") + per
