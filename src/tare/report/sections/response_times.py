"""The section on response times over time, with phases shaded, and the effect of each phase."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tare.analysis.data.rundata import SUBJECT
from tare.analysis.effects.verdict import LEVEL
from tare.analysis.statistics.maxt import least_blocks
from tare.analysis.topics.response_times import QUIET, PhaseEffect, Timeline, latest
from tare.report.figures.response_times import timeline_figure
from tare.report.page.data import ReportData
from tare.report.page.tables import Column, ShownTable, Table, interval_columns
from tare.report.page.words import (
    NONE,
    Names,
    Part,
    counted,
    marked,
    percent,
    probability,
    ratio,
)
from tare.report.sections.contract import Section, SectionData
from tare.units import format_quantity

MOST_FIGURES = 8
NOTE = (
    "Each request counts in the interval in which it was due, with the time from then to its end. "
    "Shaded: what the neighbours did. All panels of a figure have the same axes; the vertical one "
    "is logarithmic. ✕ marks intervals with requests that came to nothing."
)


@dataclass(frozen=True)
class ResponseTimesData(SectionData):
    """The content of the section on response times: a sentence, and the effect of each phase."""

    lead: str
    effects: ShownTable | None


class ResponseTimes(Section):
    """Response times over time, with the neighbours' phases and their effects."""

    name, title, template = "course", "Response time over time", "response_times.html.j2"

    def data(self, report: ReportData) -> ResponseTimesData | None:
        """Return all phases' effects; None if no workload recorded response times over time."""
        if not report.timelines:
            return None
        shown = latest(report.timelines)
        # If any workload has phases, only such workloads get a figure.
        phased = {
            key: each for key, each in shown.items() if any(timeline.phases for timeline in each)
        }
        chosen = list((phased or shown).items())[:MOST_FIGURES]
        names = Names(Part(*key, SUBJECT) for key in shown)
        places = {arm: place for place, arm in enumerate(report.comparison.arms)}
        table = phases_table(report.phases)
        same = table.unvaried("scenario", "workload")
        figures = (
            timeline_figure(
                sorted(each, key=lambda timeline: places.get(timeline.arm, len(places))),
                name=f"course-{number}",
                title=f"{names.name(Part(*key, SUBJECT))}: response time over time, "
                f"block {max(timeline.block for timeline in each)}",
                links=report.links,
            )
            for number, (key, each) in enumerate(chosen, start=1)
        )
        return ResponseTimesData(
            _lead(report.phases, chosen),
            table.shown(hide=same) if report.phases else None,
            figures=tuple((figure, NOTE) for figure in figures),
            tables=(table,),
        )


def _lead(
    effects: Sequence[PhaseEffect],
    chosen: Sequence[tuple[tuple[str, str, str], tuple[Timeline, ...]]],
) -> str:
    sure = [effect for effect in effects if effect.decided]
    which = f"Shown is the last block of {counted(len(chosen), 'workload')}."
    if not effects:
        return which
    most = max(effect.blocks for effect in effects)
    if most < least_blocks(LEVEL):
        few = f"{counted(most, 'block')}; {least_blocks(LEVEL)} are the least for a verdict"
        return f"What phases do is preliminary ({few}). {which}"
    if not sure:
        return f"No phase’s response times differ from those of the quiet time. {which}"
    worst = max(sure, key=lambda effect: effect.slowdown or 0.0)
    return (
        f"Response times suffer most in {marked(worst.arm, worst.emulated)} under {worst.phase}: "
        f"{ratio(worst.slowdown or 0.0)} of those in the quiet time. {which}"
    )


def phases_table(effects: Sequence[PhaseEffect]) -> Table[PhaseEffect]:
    """Return the effect of each phase, one row for each arm and phase."""
    columns: tuple[Column[PhaseEffect], ...] = (
        Column("scenario", lambda e: e.scenario, "Scenario"),
        Column("workload", lambda e: e.workload, "Workload"),
        Column("parameters", lambda e: e.parameters),
        Column("arm", lambda e: e.arm, "Arm", lambda e: marked(e.arm, e.emulated)),
        Column("emulated", lambda e: e.emulated),
        Column("phase", lambda e: e.phase, "Phase"),
        Column(
            "mean_s",
            lambda e: e.mean_s,
            "Mean response",
            lambda e: format_quantity(e.mean_s, "s"),
            numeric=True,
        ),
        Column(
            "p99_s",
            lambda e: e.p99_s,
            "Highest p99 of an interval",
            lambda e: format_quantity(e.p99_s, "s"),
            numeric=True,
        ),
        Column(
            "failed_share",
            lambda e: e.failed_share,
            "Failed",
            lambda e: percent(e.failed_share) if e.failed_share else "0",
            numeric=True,
        ),
        Column(
            "slowdown",
            lambda e: e.slowdown,
            "Against quiet",
            lambda e: NONE if e.slowdown is None else ratio(e.slowdown),
            numeric=True,
        ),
        *interval_columns(lambda e: e.interval, lambda e: e.blocks),
        Column("p", lambda e: e.p, "p", lambda e: probability(e.p), numeric=True),
        Column("decided", lambda e: e.decided),
        Column("blocks", lambda e: e.blocks, "Blocks", numeric=True),
    )
    caption = "Response times by phase of the neighbours, against the quiet time of the same cell"
    return Table("phases", caption, columns, tuple(effects), tone=_tone)


def _tone(effect: PhaseEffect) -> str:
    words = ["emulated"] if effect.emulated else []
    return " ".join([*words, *(["quiet"] if effect.phase == QUIET else [])])
