"""The workloads' sections: the figures and tables of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tare.analysis.data.rundata import SUBJECT
from tare.analysis.model import ArmSummary, Comparison, Effect, Flag, Key
from tare.analysis.topics.kernels import tick_rates
from tare.analysis.topics.unit_cost import UnitCost, unit_costs
from tare.report.figures.distribution import distribution_figure
from tare.report.figures.frame import Captioned
from tare.report.figures.overhead import metrics_figure
from tare.report.figures.svg import legible
from tare.report.page.data import ReportData
from tare.report.page.links import links_of
from tare.report.page.tables import Column, ShownTable, Table, interval_columns
from tare.report.page.words import (
    NONE,
    Names,
    Part,
    joined,
    marked,
    metric_name,
    parameter_text,
    parameters_of,
    ratio,
)
from tare.report.sections.contract import Section, SectionData
from tare.report.sections.long_series import (
    far_tail_tables,
    series_figures,
    series_flags,
    tails_table,
)
from tare.report.sections.results import summaries_table
from tare.units import format_quantity, format_size

FEW = 14
"""Up to this number of effects, all are shown at once. Otherwise only headline effects are open."""

DISTRIBUTIONS = 2
"""The number of metrics of one workload whose values per block are drawn."""


HIDDEN = ("what", "noise_floor")
"""Columns that the part shows elsewhere: the name in its heading, A/A in its figure."""


@dataclass(frozen=True)
class WorkloadPart:
    """The page's part on one workload with its parameters in one scenario.

    Args:
        id: The part's id in links, with which its figures' names begin.
        name: The heading.
        about: The scenario and parameters in words.
        subject: Whether the workload ran on the subject (the measured machine), not on a neighbour.
        scenario: The scenario.
        workload: The workload.
        flags: Warnings about the effects.
        figures: The figures, each with the text below it.
        effects: The effects; if there are many, only those of headline metrics.
        costs: The cost of the work to the host.
        more: The other effects.
        values: Each arm's own values.
        tails: Quantiles of the long series.
        far: Estimates beyond the samples of the long series.
    """

    id: str
    name: str
    about: str
    subject: bool
    scenario: str
    workload: str
    flags: tuple[str, ...]
    figures: tuple[Captioned, ...]
    effects: ShownTable | None
    costs: ShownTable | None
    more: ShownTable | None
    values: ShownTable
    tails: ShownTable | None
    far: tuple[ShownTable, ...]


@dataclass(frozen=True)
class WorkloadsData(SectionData):
    """All workloads' parts of the page."""

    parts: tuple[WorkloadPart, ...]


class Workloads(Section):
    """Each workload's effects and values, one part for each scenario and set of parameters."""

    name, title, template = "workloads", "Workload by workload", "workloads.html.j2"

    def data(self, report: ReportData) -> WorkloadsData:
        """Return one part for each workload, set of parameters and scenario that has any value."""
        comparison, series = report.comparison, report.series
        costs = costs_of(comparison)
        values = summaries_table(comparison)
        parts = tuple(_parts(report, values, costs_by_part(costs)))
        return WorkloadsData(
            parts,
            figures=tuple(figure for part in parts for figure in part.figures),
            tables=(
                report.effects,
                values,
                tails_table(comparison, series),
                *far_tail_tables(comparison, series),
                unit_cost_table(comparison, costs),
            ),
        )


def _parts(
    report: ReportData,
    values: Table[ArmSummary],
    costs: Mapping[Part, Sequence[UnitCost]],
) -> Iterator[WorkloadPart]:
    comparison = report.comparison
    summaries: dict[Part, list[ArmSummary]] = {}
    for summary in comparison.summaries:
        summaries.setdefault(Part.of(summary.key), []).append(summary)
    of_part: dict[Part, list[Effect]] = {}
    for effect in comparison.effects:
        of_part.setdefault(Part.of(effect.key), []).append(effect)
    names, rates = Names(summaries, comparison.shown_as), tick_rates(report.runs)
    for part, rows in summaries.items():
        name, stem = names.name(part), report.stems[part]
        effects, series = of_part.get(part, []), report.series.get(part, {})
        first, last = _figures(report, part, name, rows, effects)
        between = series_figures(
            series,
            report.looks,
            report.emulated,
            name=name,
            stem=stem,
            rates=rates,
            links=report.links,
            about=part,
        )
        headlines = [effect for effect in effects if effect.headline]
        shown = effects if len(effects) <= FEW or not headlines else headlines
        rest = [e for e in effects if not e.headline] if len(shown) < len(effects) else []
        cost = costs.get(part, ())
        tails = tails_table(comparison, {part: series}) if series else None
        yield WorkloadPart(
            id=stem,
            name=name,
            about=_part_text(part),
            subject=part.role == SUBJECT,
            scenario=legible(part.scenario),
            workload=legible(part.workload),
            flags=_flags(effects, series_flags(series, report.emulated)),
            figures=(*first, *between, *last),
            effects=report.effects.shown(hide=HIDDEN, rows=shown, named=True) if shown else None,
            costs=unit_cost_table(comparison, cost).shown(hide=["what", "blocks"])
            if cost
            else None,
            more=report.effects.shown(hide=HIDDEN, rows=rest, named=True) if rest else None,
            values=values.shown(hide=["what"], rows=rows),
            tails=tails.shown(hide=["what"]) if tails and tails.rows else None,
            far=tuple(t.shown(hide=["what"]) for t in far_tail_tables(comparison, {part: series})),
        )


def _figures(
    report: ReportData,
    part: Part,
    name: str,
    summaries: Sequence[ArmSummary],
    effects: Sequence[Effect],
) -> tuple[list[Captioned], list[Captioned]]:
    """Return figures of values over blocks, and a figure of all metrics."""
    first: list[Captioned] = []
    last: list[Captioned] = []
    if part.role != SUBJECT:
        # Neighbours' values prove that the load ran; they are not results, so tables suffice.
        return first, last
    comparison, stem = report.comparison, report.stems[part]
    for number, key in enumerate(_drawn_keys(summaries)):
        rows = [summary for summary in summaries if summary.key == key]
        figure = distribution_figure(
            rows, report.looks, name=f"{stem}-blocks-{number + 1}", part=name,
            links=links_of([effect for effect in effects if effect.key == key], rows),
            runs=[run.run for run in comparison.runs],
        )  # fmt: skip
        first.append((figure, _distribution_note(comparison, rows, figure.panels)))
    if len({effect.key for effect in effects}) > 1:
        metrics = metrics_figure(
            comparison, report.looks, effects, name=f"{stem}-metrics", part=name
        )
        last += [(metrics, "")] if metrics else []
    return first, last


def _drawn_keys(summaries: Sequence[ArmSummary]) -> list[Key]:
    keys = dict.fromkeys(summary.key for summary in summaries if summary.headline)
    return list(keys or dict.fromkeys(summary.key for summary in summaries))[:DISTRIBUTIONS]


def _distribution_note(comparison: Comparison, rows: Sequence[ArmSummary], panels: int) -> str:
    about = "median" if rows[0].kind != "typical" else "mean"
    direction = {"lower": "lower is better", "higher": "higher is better"}.get(rows[0].better, "")
    level = f"{100 * comparison.confidence:.4g} %"
    text = f"One dot for each block; bar: {about} with its {level} interval"
    if direction:
        text += f"; {direction}"
    return f"{text}; arms far apart have axes of their own." if panels > 1 else f"{text}."


def _part_text(part: Part) -> str:
    words = [f"Scenario {part.scenario}"]
    given = parameters_of(part.parameters)
    if given:
        words.append(f"parameters {parameter_text(given)}")
    return legible("; ".join(words) + ".")


def _flags(effects: Sequence[Effect], others: Sequence[tuple[str, Flag]]) -> tuple[str, ...]:
    named = [(marked(e.arm, e.emulated), flag) for e in effects for flag in e.flags]
    arms: dict[str, list[str]] = {}
    for name, flag in [*named, *others]:
        who = arms.setdefault(flag.text, [])
        if name not in who:
            who.append(name)
    return tuple(legible(f"{joined(who)}: {text}") for text, who in arms.items())


_LARGE = {"B/s": (1e9, "/GB")}
"""Units that are too small for costs per unit: the factor, and the label of the larger unit."""


def costs_of(comparison: Comparison) -> tuple[UnitCost, ...]:
    """Return the costs of all arms in the study's order."""
    places = {arm: place for place, arm in enumerate(comparison.arms)}
    found = unit_costs(comparison.runs, comparison.baseline, comparison.confidence)
    return tuple(sorted(found, key=lambda cost: places.get(cost.arm, len(places))))


def costs_by_part(costs: Sequence[UnitCost]) -> Mapping[Part, tuple[UnitCost, ...]]:
    """Return for each part one cost of each arm, that of its first metric."""
    first: dict[Part, str] = {}
    found: dict[Part, list[UnitCost]] = {}
    for cost in costs:
        part = Part.of(cost.key)
        if first.setdefault(part, cost.key.metric) == cost.key.metric:
            found.setdefault(part, []).append(cost)
    return {part: tuple(members) for part, members in found.items()}


def unit_cost_table(comparison: Comparison, costs: Sequence[UnitCost]) -> Table[UnitCost]:
    """Return host CPU time per unit of work and memory, one row for each arm and metric."""
    names = Names(Part.of(cost.key) for cost in costs)
    columns: tuple[Column[UnitCost], ...] = (
        Column("what", lambda c: names.name(Part.of(c.key)), "What"),
        Column("scenario", lambda c: c.key.scenario),
        Column("workload", lambda c: c.key.workload),
        Column("parameters", lambda c: c.key.parameters),
        Column("arm", lambda c: c.arm, "Arm", lambda c: marked(c.arm, c.emulated)),
        Column("emulated", lambda c: c.emulated),
        Column("metric", lambda c: c.key.metric, "Work", lambda c: work_name(c.key, c.unit)),
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


def work_name(key: Key, unit: str) -> str:
    """Return the name of the unit of work; a dash if no metric counts work.

    Args:
        key: The metric, its workload, parameters and scenario.
        unit: The metric's unit.
    """
    if not key.metric:
        return NONE
    name = metric_name(key.metric)
    return name if unit.endswith("/s") else f"one {key.workload} ({name})"


def per_unit(cost: UnitCost) -> str:
    """Return CPU time per unit for reading: ``1.2 µs``, ``0.31 s/GB``."""
    return quantity_per_unit(cost.per_unit_s, "s", cost.unit)


def quantity_per_unit(value: float | None, quantity: str, unit: str) -> str:
    """Return the cost of a unit of work for reading: ``1.2 µs``, ``3.1 J/GB``.

    Args:
        value: The cost; None if it is unknown.
        quantity: The cost's unit, such as ``s``.
        unit: The unit of the metric that counts the work.
    """
    if value is None:
        return NONE
    times, per = _LARGE.get(unit, (1.0, ""))
    return format_quantity(value * times, quantity) + per
