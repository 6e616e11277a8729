"""The top of the page: the cost of each arm by resource, in words and as bars."""

from __future__ import annotations

from dataclasses import dataclass

from tare.analysis.model import Comparison, ResourceCost
from tare.report.figures.overhead import overhead_figure, overview, shading_note
from tare.report.figures.svg import legible
from tare.report.page.data import ReportData
from tare.report.page.tables import Column, Table
from tare.report.page.verdicts import ArmLine, arm_lines, label_of, lead
from tare.report.page.words import NONE, counted, marked, metric_of, ratio, ratio_interval
from tare.report.sections.contract import Section, SectionData
from tare.report.sections.results import effects_table


@dataclass(frozen=True)
class OverviewData(SectionData):
    """The content of the top of the page."""

    lead: str
    arms: tuple[ArmLine, ...]
    note: str

    @property
    def absent(self) -> str:
        """The arms without values."""
        return ", ".join(line.arm for line in self.arms if line.absent)


class Overview(Section):
    """The cost of each arm, by resource."""

    name, title, template, open = "verdict", "Answer", "overview.html.j2", True

    def data(self, report: ReportData) -> OverviewData:
        """Return the answers in words and as bars, and the figure of all headline metrics."""
        found = report.comparison
        overhead = overhead_figure(found, report.looks)
        return OverviewData(
            lead=lead(found) or _no_lead(found),
            arms=arm_lines(found, report.looks),
            note=_bars_note(found) if found.resources else "",
            figures=((overhead, _overhead_note(found)),) if overhead else (),
            tables=(
                effects_table(found, "overhead", found.headlines),
                *([resources_table(found)] if found.resources else ()),
            ),
        )


def _no_lead(comparison: Comparison) -> str:
    if not comparison.summaries:
        return "Nothing was measured: no cell ended well."
    if comparison.baseline not in {summary.arm for summary in comparison.summaries}:
        return (
            f"No comparison: the baseline {legible(comparison.baseline)} has no values; each arm’s "
            "own values are below."
        )
    return "No comparison: only the baseline has values."


def _bars_note(comparison: Comparison) -> str:
    level = f"{100 * comparison.confidence:.4g} %"
    about = (
        "Cost is time for the same work: right of the line is slower. A mark is the geometric mean "
        "over a resource’s metrics"
    )
    if all(cost.interval is None for cost in comparison.resources):
        return f"{about} so far; with so few blocks it has no interval."
    return f"{about}, a bar its interval; all bars together hold with {level} confidence."


def resources_table(comparison: Comparison) -> Table[ResourceCost]:
    """Return the costs by resource, one row for each arm and resource."""

    def end(cost: ResourceCost, high: bool) -> float | None:
        if cost.interval is None:
            return None
        return cost.interval.high if high else cost.interval.low

    columns: tuple[Column[ResourceCost], ...] = (
        Column("arm", lambda c: c.arm, "Arm", lambda c: marked(c.arm, c.emulated)),
        Column("baseline", lambda c: c.baseline),
        Column("emulated", lambda c: c.emulated),
        Column("resource", lambda c: c.resource, "Resource", label_of),
        Column("metrics", lambda c: c.averaged, "Metrics", numeric=True),
        Column(
            "cost",
            lambda c: c.cost if c.averaged else None,
            "Cost",
            lambda c: ratio(c.cost) if c.averaged else NONE,
            numeric=True,
        ),
        Column("low", lambda c: end(c, False)),
        Column("high", lambda c: end(c, True)),
        Column(
            "interval",
            lambda c: None,
            "Simultaneous interval",
            lambda c: ratio_interval((c.interval.low, c.interval.high) if c.interval else None),
            numeric=True,
        ),
        Column("finding", lambda c: c.finding, "Finding"),
        Column(
            "worst",
            lambda c: metric_of(c.worst) if c.worst else None,
            "Worst metric",
            lambda c: (
                f"{metric_of(c.worst)} {ratio(1 + (c.worst.overhead or 0.0))}" if c.worst else NONE
            ),
        ),
        Column("blocks", lambda c: c.blocks, "Blocks", numeric=True),
    )
    caption = "Cost by resource: the mean over its headline metrics"
    tone = lambda c: "emulated" if c.emulated else ""  # noqa: E731
    return Table("resources", caption, columns, comparison.resources, tone=tone)


def _overhead_note(comparison: Comparison) -> str:
    level = f"{100 * comparison.confidence:.4g} %"
    text = (
        f"Each mark is an estimate over {counted(comparison.blocks, 'block')}, each bar its "
        f"{level} interval; marks in colour are differences that count, grey ones do not. "
    )
    text += shading_note(comparison)
    left_out = [effect for effect in comparison.headlines if effect.overhead is None]
    if left_out:
        text += f" {len(left_out)} effects without a ratio are only in the tables."
    shown = len(overview(comparison)) + len(left_out)
    if shown < len(comparison.headlines):
        text += (
            f" Of each workload only the first of its headline metrics is drawn here: "
            f"{len(comparison.headlines) - shown} more effects are below, workload by workload."
        )
    return text
