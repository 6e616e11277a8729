"""The section on what neighbours do: the interference matrix as a figure and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tare.analysis.effects.verdict import LEVEL
from tare.analysis.statistics.maxt import least_blocks
from tare.analysis.topics.interference import Hurt, interference
from tare.report.figures.heat import MOST_ROWS, heat_figure, heat_rows
from tare.report.figures.svg import legible
from tare.report.page.data import ReportData
from tare.report.page.tables import Column, Shown, Table, interval_columns
from tare.report.page.words import counted, joined, marked, metric_name, probability, ratio
from tare.report.sections.contract import Answer, Section, SectionData

NOTE = (
    "Each arm’s own value beside neighbours, against its own without, in the same block: above "
    "1× is worse, and what the platform itself costs is not in it. Small: the confidence interval "
    "over blocks; for tails and maxima that of the median. Only what is told from 1×, over all "
    "slowdowns of the arm, is coloured."
)


@dataclass(frozen=True)
class InterferenceData(SectionData):
    """What the page shows of neighbours: the worst in a sentence, and all slowdowns."""

    lead: str
    slowdowns: Shown


class Interference(Section):
    """What neighbours do to the machine that is measured."""

    name, title, template = "interference", "What neighbours do", "interference.html.j2"

    def data(self, report: ReportData) -> InterferenceData | None:
        """Return all slowdowns; None if every scenario has neighbours, or none has."""
        hurts = interference(report.runs, report.comparison.arms, report.comparison.confidence)
        if not hurts:
            return None
        table = slowdowns_table(hurts)
        return InterferenceData(
            _lead(hurts),
            table.shown(),
            figures=((heat_figure(hurts, name=self.name, links=report.links), NOTE),),
            tables=(table,),
            answer=Answer(neighbours_answer(hurts), "All slowdowns"),
        )


def _lead(hurts: Sequence[Hurt]) -> str:
    few = _few(hurts)
    sure = [hurt for hurt in hurts if hurt.decided or few]
    if not sure:
        return "No slowdown is told from none, over all of an arm’s slowdowns."
    worst = max(sure, key=lambda hurt: hurt.slowdown)
    whose = marked(worst.arm, worst.emulated)
    opening = f"Preliminary ({few}): so far worst" if few else "Worst"
    text = (
        f"{opening} hurt is {worst.key.workload} ({metric_name(worst.key.metric)}) in {whose} "
        f"beside {worst.key.scenario}, {worst.neighbours}: {ratio(worst.slowdown)} of its value "
        "without."
    )
    rows = len(heat_rows(hurts))
    if rows > MOST_ROWS:
        text += f" The figure has {MOST_ROWS} of {counted(rows, 'row')}, the table has all."
    return text


def _few(hurts: Sequence[Hurt]) -> str:
    """Return in words that there are too few blocks for any verdict; empty where there are not."""
    most, least = max(hurt.blocks for hurt in hurts), least_blocks(LEVEL)
    return f"{counted(most, 'block')}; {least} are the least for a verdict" if most < least else ""


def neighbours_answer(hurts: Sequence[Hurt]) -> str:
    """Return what neighbours cost each arm at most, in one sentence.

    Args:
        hurts: All slowdowns, at least one. With too few blocks for verdicts their sizes are named.
    """
    few = _few(hurts)
    worst: dict[str, Hurt | None] = {}
    for hurt in hurts:
        before = worst.setdefault(marked(hurt.arm, hurt.emulated), None)
        if (hurt.decided or few) and (before is None or hurt.slowdown > before.slowdown):
            worst[marked(hurt.arm, hurt.emulated)] = hurt
    hurting = sorted(
        ((hurt.slowdown, arm, hurt) for arm, hurt in worst.items() if hurt and hurt.slowdown > 1),
        key=lambda one: -one[0],
    )
    costs = [
        f"{legible(arm)} up to {ratio(slowdown)} ({legible(hurt.key.workload)} "
        f"{metric_name(hurt.key.metric)}, {legible(hurt.key.scenario)})"
        for slowdown, arm, hurt in hurting
    ]
    spared = [legible(arm) for arm in worst if arm not in {arm for _, arm, _ in hurting}]
    if few:
        none = f"nothing so far that slows {joined(spared)}" if spared else ""
        sizes = "; ".join(each for each in (joined(costs), none) if each)
        return f"Neighbours, preliminary ({few}): {sizes}."
    if not costs:
        return f"Neighbours: nothing that they take from {joined(spared)} is told from none."
    rest = f"; nothing that is told from none: {joined(spared)}" if spared else ""
    return f"Neighbours cost {joined(costs)}{rest}."


def slowdowns_table(
    hurts: Sequence[Hurt],
    name: str = "interference",
    caption: str = "How many times worse each metric is beside neighbours",
) -> Table[Hurt]:
    """Return every slowdown with its interval."""
    columns: tuple[Column[Hurt], ...] = (
        Column("arm", lambda h: h.arm, "Arm", lambda h: marked(h.arm, h.emulated)),
        Column("emulated", lambda h: h.emulated),
        Column("workload", lambda h: h.key.workload, "Workload"),
        Column("parameters", lambda h: h.key.parameters),
        Column("metric", lambda h: h.key.metric, "Metric", lambda h: metric_name(h.key.metric)),
        Column("scenario", lambda h: h.key.scenario, "Beside"),
        Column("neighbours", lambda h: h.neighbours, "Neighbours"),
        Column("quiet", lambda h: h.quiet, "Against"),
        Column(
            "slowdown", lambda h: h.slowdown, "Slowdown", lambda h: ratio(h.slowdown), numeric=True
        ),
        *interval_columns(lambda h: h.interval, lambda h: h.blocks),
        Column("p", lambda h: h.p, "p", lambda h: probability(h.p), numeric=True),
        Column("decided", lambda h: h.decided),
        Column("blocks", lambda h: h.blocks, "Blocks", numeric=True),
    )
    tone = lambda h: "emulated" if h.emulated else ""  # noqa: E731
    return Table(name, caption, columns, tuple(hurts), tone=tone)
