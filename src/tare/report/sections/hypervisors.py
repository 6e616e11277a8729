"""The section on counters that the platforms' own hypervisors keep for the machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tare.analysis.topics.hypervisors import ReportedFigure, counted_by_hypervisors
from tare.report.page.data import ReportData
from tare.report.page.tables import Column, ShownTable, Table
from tare.report.page.words import NONE, marked
from tare.report.sections.contract import Section, SectionData
from tare.units import format_duration, format_quantity

NOT_SHOWN = "not shown"
LEAD = (
    "What each platform reports about its machines, as its makers count it; platforms do not "
    "count the same things. Only intervals wholly within a cell are used, without interpolation. "
    "Each interval’s value is a mean and does not show the longest wait in it. The table has the "
    f"median over cells of each cell’s mean. “{NOT_SHOWN}” means that the platform reported "
    "nothing; it does not mean zero."
)


@dataclass(frozen=True)
class HypervisorsData(SectionData):
    """The content of the section on the hypervisors' own figures."""

    lead: str
    counted: ShownTable


class Hypervisors(Section):
    """Counters that the platforms' own hypervisors keep for the machines."""

    name, title, template = "hypervisor", "What the hypervisor counted", "hypervisors.html.j2"

    def data(self, report: ReportData) -> HypervisorsData | None:
        """Return all figures; None if no hypervisor reported any."""
        found = counted_by_hypervisors(report.runs)
        if not found:
            return None
        table = hypervisors_table(found)
        return HypervisorsData(LEAD, table.shown(), tables=(table,))


def hypervisors_table(found: Sequence[ReportedFigure]) -> Table[ReportedFigure]:
    """Return a row for each figure of each arm's hypervisor."""
    columns: tuple[Column[ReportedFigure], ...] = (
        Column("scenario", lambda c: c.scenario, "Scenario"),
        Column("arm", lambda c: c.arm, "Arm", lambda c: marked(c.arm, c.emulated)),
        Column("emulated", lambda c: c.emulated),
        Column("figure", lambda c: c.name or None),
        Column("words", lambda c: c.words or None, "Figure", lambda c: c.words or NOT_SHOWN),
        Column("source", lambda c: c.source or None, "Counted by"),
        Column("each", lambda c: c.each or None, "A value each"),
        Column(
            "resolution_s",
            lambda c: c.resolution_s,
            "Resolution",
            lambda c: NONE if c.resolution_s is None else format_duration(c.resolution_s),
            numeric=True,
        ),
        Column("value", lambda c: c.value, "Median", _value, numeric=True),
        Column("unit", lambda c: c.unit or None),
        Column(
            "cells_having",
            lambda c: c.having,
            "Cells",
            lambda c: f"{c.having} of {c.cells}",
            numeric=True,
        ),
        Column("cells", lambda c: c.cells),
    )
    tone = lambda c: "emulated" if c.emulated else ""  # noqa: E731
    caption = "What the hypervisor counted, by its own account"
    return Table("hypervisor", caption, columns, tuple(found), tone=tone)


def _value(row: ReportedFigure) -> str:
    return NOT_SHOWN if row.value is None else format_quantity(row.value, row.unit)
