"""Losses of each machine to the others: a square matrix of loads, and a table of machines."""

from __future__ import annotations

from collections.abc import Sequence

from tare.analysis.topics.machine_losses import MachineLoss, machine_losses, matrix
from tare.report.figures.frame import Captioned
from tare.report.figures.heat import heat_figure
from tare.report.page.data import ReportData
from tare.report.page.tables import Column, Table, interval_columns
from tare.report.page.words import marked, probability, ratio
from tare.report.sections.contract import Section, SectionData

NOTE = (
    "Rows: what a machine did; columns: what disturbed it. Each machine’s rate alone, divided by "
    "its rate with the others, on the same arm in the same block: above 1× it lost. The subject "
    "and all of its neighbours are counted in the same way; the table shows which machines ran "
    "together."
)


class MachineLosses(Section):
    """Losses of every machine of a scenario to the others, of subject and neighbours alike."""

    name, title = "fates", "What each machine lost"

    def data(self, report: ReportData) -> SectionData | None:
        """Return all losses; None if no load was measured both next to others and undisturbed."""
        found = machine_losses(report.runs, report.comparison.arms, report.comparison.confidence)
        if not found:
            return None
        square = matrix(found)
        figures: tuple[Captioned, ...] = ()
        if square:
            figure = heat_figure(square, name=self.name, title=self.title, links=report.links)
            figures = ((figure, NOTE),)
        return SectionData(figures=figures, tables=(losses_table(found),))


def losses_table(found: Sequence[MachineLoss]) -> Table[MachineLoss]:
    """Return the losses of machines, by load and by the mixture of other machines."""
    columns: tuple[Column[MachineLoss], ...] = (
        Column(
            "arm", lambda f: f.effect.arm, "Arm", lambda f: marked(f.effect.arm, f.effect.emulated)
        ),
        Column("emulated", lambda f: f.effect.emulated),
        Column("load", lambda f: f.effect.key.workload, "Machines that do"),
        Column("parameters", lambda f: f.effect.key.parameters),
        Column("others", lambda f: f.others, "Beside"),
        Column("cause", lambda f: f.effect.key.scenario),
        Column(
            "slowdown",
            lambda f: f.effect.slowdown,
            "Slowdown",
            lambda f: ratio(f.effect.slowdown),
            numeric=True,
        ),
        *interval_columns(lambda f: f.effect.interval, lambda f: f.effect.blocks),
        Column("each", _slowdowns_text, "Machine by machine"),
        Column("p", lambda f: f.effect.p, "p", lambda f: probability(f.effect.p), numeric=True),
        Column("decided", lambda f: f.effect.decided),
        Column("blocks", lambda f: f.effect.blocks, "Blocks", numeric=True),
    )
    caption = "What each machine lost with the others, against the same load undisturbed"
    tone = lambda f: "emulated" if f.effect.emulated else ""  # noqa: E731
    return Table("fates", caption, columns, tuple(found), tone=tone)


def _slowdowns_text(loss: MachineLoss) -> str:
    return ", ".join(f"{role} {ratio(slowdown)}" for role, slowdown in loss.each.items())
