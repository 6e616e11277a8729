"""What each machine lost beside the others: a square matrix of loads, and a table of machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tare.analysis.comparison import Comparison
from tare.analysis.fates import Fate, fates, matrix
from tare.analysis.rundata import RunData
from tare.report.drawing import Drawn, Noted
from tare.report.figures.frame import Figure
from tare.report.figures.heat import heat_figure
from tare.report.intervals import interval_columns
from tare.report.leads import Leads
from tare.report.tables import Column, Shown, Table
from tare.report.words import marked, probability, ratio

FIGURE = "fates"
NOTE = (
    "Rows: what a machine did; columns: what disturbed it. Each machine’s rate beside the others "
    "against the rate of the same load undisturbed, on the same arm in the same block: above 1× "
    "it lost. The subject and all of its neighbours count alike; which machines were together is "
    "in the table."
)


@dataclass(frozen=True)
class FatesSection:
    """What the page shows: the matrix, if it was drawn, and every machine’s loss."""

    table: Shown
    figure: Noted | None = None


@dataclass(frozen=True)
class Fates:
    """Everything of the section before its figure is drawn."""

    table: Table[Fate]
    figure: Figure | None

    def section(self, drawn: Mapping[str, Drawn]) -> FatesSection:
        """Return what the page shows, with the matrix as ``drawn``."""
        figure = Noted(drawn[FIGURE], NOTE) if FIGURE in drawn else None
        return FatesSection(self.table.shown(), figure)


def fates_of(
    runs: Sequence[RunData], comparison: Comparison, leads: Leads | None = None
) -> Fates | None:
    """Return the section; None where no load was measured both beside others and undisturbed.

    Args:
        runs: The runs.
        comparison: Their comparison.
        leads: What the matrix's fields lead to.
    """
    found = fates(runs, comparison.arms, comparison.confidence)
    if not found:
        return None
    square = matrix(found)
    title = "What each machine lost"
    figure = heat_figure(square, name=FIGURE, title=title, leads=leads) if square else None
    return Fates(fates_table(found), figure)


def fates_table(found: Sequence[Fate]) -> Table[Fate]:
    """Return what machines of every load lost beside every mixture of others."""
    columns: tuple[Column[Fate], ...] = (
        Column("arm", lambda f: f.hurt.arm, "Arm", lambda f: marked(f.hurt.arm, f.hurt.emulated)),
        Column("emulated", lambda f: f.hurt.emulated),
        Column("load", lambda f: f.hurt.key.workload, "Machines that do"),
        Column("parameters", lambda f: f.hurt.key.parameters),
        Column("others", lambda f: f.others, "Beside"),
        Column("cause", lambda f: f.hurt.key.scenario),
        Column(
            "slowdown",
            lambda f: f.hurt.slowdown,
            "Slowdown",
            lambda f: ratio(f.hurt.slowdown),
            numeric=True,
        ),
        *interval_columns(lambda f: f.hurt.interval, lambda f: f.hurt.blocks),
        Column("each", _each, "Machine by machine"),
        Column("p", lambda f: f.hurt.p, "p", lambda f: probability(f.hurt.p), numeric=True),
        Column("decided", lambda f: f.hurt.decided),
        Column("blocks", lambda f: f.hurt.blocks, "Blocks", numeric=True),
    )
    caption = "What each machine lost beside the others, against the same load undisturbed"
    tone = lambda f: "emulated" if f.hurt.emulated else ""  # noqa: E731
    return Table("fates", caption, columns, tuple(found), tone=tone)


def _each(fate: Fate) -> str:
    return ", ".join(f"{role} {ratio(slowdown)}" for role, slowdown in fate.each.items())
