"""The section on energy: the energy that the host used for a unit of work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tare.analysis.topics.energy import COMPUTER, METERS, EnergyCost, energy_costs
from tare.report.figures.svg import legible
from tare.report.page.data import ReportData
from tare.report.page.tables import Column, Table, interval_columns
from tare.report.page.words import NONE, Names, Part, joined, marked, percent, ratio
from tare.report.sections.contract import Section, SectionData
from tare.report.sections.workloads import quantity_per_unit, work_name
from tare.units import format_quantity

INCLUDED = (
    "The energy is that of the whole host during a cell, not that of the machine alone. The host’s "
    "idle power is part of it: nothing is subtracted."
)
UNSTATED = (
    "The uncertainty is that of one cell, from the resolution of the meter and its delay. The "
    "accuracy of the meter itself is part of it only if a BMC states it."
)
COARSE = 0.1
"""The text mentions a meter's uncertainty above this share of a cell's energy."""


@dataclass(frozen=True)
class EnergyData(SectionData):
    """The content of the section on energy: sentences and one table."""

    lead: tuple[str, ...]


class Energy(Section):
    """Joules per unit of work, by arm and meter."""

    name, title, template = "energy", "Energy per unit of work", "energy.html.j2"

    def data(self, report: ReportData) -> EnergyData | None:
        """Return the energy of all cells; None if no study asked for it."""
        comparison = report.comparison
        costs, missing = energy_costs(report.runs, comparison.baseline, comparison.confidence)
        if not costs and not missing:
            return None
        arms = {arm: place for place, arm in enumerate(comparison.arms)}
        rows = sorted(
            costs,
            key=lambda c: (tuple(c.key), METERS.index(c.meter), arms.get(c.arm, len(arms))),
        )
        lead = [*_sentences(rows)] if rows else []
        lead += [
            f"In {joined(list(of))} energy was not measured: {why}." for why, of in missing.items()
        ]
        tables = (energy_table(rows, comparison.against),) if rows else ()
        return EnergyData(tuple(map(legible, lead)), tables=tables)


def _sentences(costs: Sequence[EnergyCost]) -> list[str]:
    lines = [INCLUDED]
    idle: Mapping[tuple[str, str], float] = {
        (each.meter, each.arm): each.idle_w for each in costs if each.idle_w is not None
    }
    if idle:
        shown = (f"{arm} {format_quantity(w, 'W')} ({meter})" for (meter, arm), w in idle.items())
        lines.append(
            "Idle power, measured for some seconds with the machine booted and nothing running: "
            f"{joined(list(shown))}."
        )
    if any(each.meter == COMPUTER and each.idle_w is None for each in costs):
        lines.append("The idle power of whole computers was not measured.")
    lines.append(UNSTATED)
    coarse = [each for each in costs if each.uncertainty is not None and each.uncertainty > COARSE]
    if coarse:
        worst = max(each.uncertainty or 0.0 for each in coarse)
        lines.append(
            f"In {joined(sorted({each.arm for each in coarse}))} the meter’s uncertainty reaches "
            f"{percent(worst)} of a cell’s energy: longer cells lower it."
        )
    return lines


def energy_table(costs: Sequence[EnergyCost], against: str) -> Table[EnergyCost]:
    """Return the energy per unit of work, one row for each arm, metric and meter.

    Args:
        costs: The energies.
        against: The name of the ratio's denominator.
    """
    names = Names(Part.of(cost.key) for cost in costs)

    def watts(value: float | None) -> str:
        return NONE if value is None else format_quantity(value, "W")

    columns: tuple[Column[EnergyCost], ...] = (
        Column("what", lambda c: names.name(Part.of(c.key)), "What"),
        Column("scenario", lambda c: c.key.scenario),
        Column("workload", lambda c: c.key.workload),
        Column("parameters", lambda c: c.key.parameters),
        Column("arm", lambda c: c.arm, "Arm", lambda c: marked(c.arm, c.emulated)),
        Column("emulated", lambda c: c.emulated),
        Column("meter", lambda c: c.meter, "Meter"),
        Column("metric", lambda c: c.key.metric, "Work", lambda c: work_name(c.key, c.unit)),
        Column("unit", lambda c: c.unit),
        Column("watts", lambda c: c.watts, "Mean power", lambda c: watts(c.watts), numeric=True),
        Column("idle_w", lambda c: c.idle_w, "Idle", lambda c: watts(c.idle_w), numeric=True),
        Column(
            "per_unit_j",
            lambda c: c.per_unit_j,
            "Energy per unit",
            lambda c: quantity_per_unit(c.per_unit_j, "J", c.unit),
            numeric=True,
        ),
        Column(
            "uncertainty",
            lambda c: c.uncertainty,
            "Uncertainty of the meter",
            lambda c: "unknown" if c.uncertainty is None else f"±{percent(c.uncertainty)}",
            numeric=True,
        ),
        Column(
            "ratio",
            lambda c: c.ratio,
            f"Against {against}",
            lambda c: NONE if c.ratio is None else ratio(c.ratio),
            numeric=True,
        ),
        *interval_columns(lambda c: c.interval, lambda c: c.blocks),
        Column("blocks", lambda c: c.blocks, "Blocks", numeric=True),
    )
    caption = "Energy of the host for a unit of work, its idle power included"
    tone = lambda c: "emulated" if c.emulated else ""  # noqa: E731
    return Table("energy-per-unit", caption, columns, tuple(costs), tone=tone)
