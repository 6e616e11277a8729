"""The section on the effect of neighbours: the interference matrix as a figure and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tare.analysis.effects.verdict import LEVEL
from tare.analysis.statistics.maxt import least_blocks
from tare.analysis.topics.interference import NeighbourEffect, interference
from tare.report.figures.heat import MOST_ROWS, heat_figure, heat_rows
from tare.report.figures.svg import legible
from tare.report.page.data import ReportData
from tare.report.page.tables import Column, ShownTable, Table, interval_columns
from tare.report.page.words import counted, joined, marked, metric_name, probability, ratio
from tare.report.sections.contract import Answer, Section, SectionData

NOTE = (
    "Each arm’s value with neighbours, divided by its own value without them in the same block: "
    "above 1× is worse. The platform’s own cost is not included. The small figures are the "
    "confidence interval over blocks; for tails and maxima, that of the median. Only values that "
    "differ from 1×, corrected for all slowdowns of the arm, are coloured."
)


@dataclass(frozen=True)
class InterferenceData(SectionData):
    """The content of the section: the worst slowdown in a sentence, and all slowdowns."""

    lead: str
    slowdowns: ShownTable


class Interference(Section):
    """The effect of neighbours on the measured machine."""

    name, title, template = "interference", "What neighbours do", "interference.html.j2"

    def data(self, report: ReportData) -> InterferenceData | None:
        """Return all slowdowns; None if all scenarios have neighbours, or none has."""
        effects = interference(report.runs, report.comparison.arms, report.comparison.confidence)
        if not effects:
            return None
        table = slowdowns_table(effects)
        return InterferenceData(
            _lead(effects),
            table.shown(),
            figures=((heat_figure(effects, name=self.name, links=report.links), NOTE),),
            tables=(table,),
            answer=Answer(neighbours_answer(effects), "All slowdowns"),
        )


def _lead(effects: Sequence[NeighbourEffect]) -> str:
    few = _few_blocks_text(effects)
    sure = [effect for effect in effects if effect.decided or few]
    if not sure:
        return "No slowdown was detected, corrected for all slowdowns of an arm."
    worst = max(sure, key=lambda effect: effect.slowdown)
    whose = marked(worst.arm, worst.emulated)
    opening = f"Preliminary ({few}): the largest slowdown so far" if few else "The largest slowdown"
    text = (
        f"{opening} is {ratio(worst.slowdown)}: {worst.key.workload} "
        f"({metric_name(worst.key.metric)}) in {whose} with the neighbours of "
        f"{worst.key.scenario}, {worst.neighbours}."
    )
    rows = len(heat_rows(effects))
    if rows > MOST_ROWS:
        text += f" The figure has {MOST_ROWS} of {counted(rows, 'row')}, the table has all."
    return text


def _few_blocks_text(effects: Sequence[NeighbourEffect]) -> str:
    """Return a note that there are too few blocks for any verdict; empty if there are enough."""
    most, least = max(effect.blocks for effect in effects), least_blocks(LEVEL)
    return f"{counted(most, 'block')}; {least} are the least for a verdict" if most < least else ""


def neighbours_answer(effects: Sequence[NeighbourEffect]) -> str:
    """Return the largest slowdown of each arm by its neighbours, in one sentence.

    Args:
        effects: All slowdowns, at least one. With too few blocks, the sentence names only sizes.
    """
    few = _few_blocks_text(effects)
    worst: dict[str, NeighbourEffect | None] = {}
    for effect in effects:
        before = worst.setdefault(marked(effect.arm, effect.emulated), None)
        if (effect.decided or few) and (before is None or effect.slowdown > before.slowdown):
            worst[marked(effect.arm, effect.emulated)] = effect
    slowed = sorted(
        (
            (effect.slowdown, arm, effect)
            for arm, effect in worst.items()
            if effect and effect.slowdown > 1
        ),
        key=lambda one: -one[0],
    )
    costs = [
        f"{ratio(slowdown)} in {legible(arm)} ({legible(effect.key.workload)} "
        f"{metric_name(effect.key.metric)}, {legible(effect.key.scenario)})"
        for slowdown, arm, effect in slowed
    ]
    spared = [legible(arm) for arm in worst if arm not in {arm for _, arm, _ in slowed}]
    if few:
        largest = f"the largest slowdown so far is {joined(costs)}" if costs else ""
        none = f"no slowdown so far in {joined(spared)}" if spared else ""
        sizes = "; ".join(filter(None, (largest, none)))
        return f"Neighbours, preliminary ({few}): {sizes}."
    if not costs:
        return f"Neighbours: no slowdown was detected in {joined(spared)}."
    rest = f"; none was detected in {joined(spared)}" if spared else ""
    # The largest of several estimates is not a bound, and is not stated as one.
    return f"Neighbours: the largest slowdown measured is {joined(costs)}{rest}."


def slowdowns_table(
    effects: Sequence[NeighbourEffect],
    name: str = "interference",
    caption: str = "How many times worse each metric is with neighbours",
) -> Table[NeighbourEffect]:
    """Return every slowdown with its interval."""
    columns: tuple[Column[NeighbourEffect], ...] = (
        Column("arm", lambda h: h.arm, "Arm", lambda h: marked(h.arm, h.emulated)),
        Column("emulated", lambda h: h.emulated),
        Column("workload", lambda h: h.key.workload, "Workload"),
        Column("parameters", lambda h: h.key.parameters),
        Column("metric", lambda h: h.key.metric, "Metric", lambda h: metric_name(h.key.metric)),
        Column("scenario", lambda h: h.key.scenario, "Scenario"),
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
    return Table(name, caption, columns, tuple(effects), tone=tone)
