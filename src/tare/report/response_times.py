"""The section on response times over time: courses with phases shaded, and what each phase did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tare.analysis.course import QUIET, Course, PhaseEffect, courses, latest, phase_effects
from tare.analysis.formatting import format_quantity
from tare.analysis.model import Comparison
from tare.analysis.rundata import SUBJECT, RunData
from tare.analysis.statistics.maxt import least_blocks
from tare.analysis.verdict import LEVEL
from tare.report.figures.frame import Figure
from tare.report.figures.response_times import course_figure
from tare.report.intervals import interval_columns
from tare.report.leads import Leads
from tare.report.tables import Column, Shown, Table
from tare.report.words import (
    NONE,
    Names,
    Part,
    counted,
    marked,
    percent,
    probability,
    ratio,
)

MOST_FIGURES = 8
NOTE = (
    "Each request counts in the interval in which it was due, with the time from then to its end. "
    "Shaded: what the neighbours did. All panels of a figure have the same axes; the vertical one "
    "is logarithmic. ✕ marks intervals with requests that came to nothing."
)


@dataclass(frozen=True)
class CourseSection:
    """What the page shows of courses: a sentence, and the effect of each phase."""

    lead: str
    effects: Shown | None


@dataclass(frozen=True)
class CourseParts:
    """Everything of the section before its figures are drawn."""

    section: CourseSection
    figures: tuple[Figure, ...]
    table: Table[PhaseEffect]
    note = NOTE


def courses_of(
    runs: Sequence[RunData], comparison: Comparison, leads: Leads | None = None
) -> CourseParts | None:
    """Return the section; None where no workload told of response times over time.

    Args:
        runs: The runs.
        comparison: Their comparison.
        leads: What each panel leads to.
    """
    found = courses(runs)
    if not found:
        return None
    shown = latest(found)
    # Where there are phases, the others are only their background.
    phased = {key: each for key, each in shown.items() if any(course.phases for course in each)}
    chosen = list((phased or shown).items())[:MOST_FIGURES]
    names = Names(Part(*key, SUBJECT) for key in shown)
    places = {arm: place for place, arm in enumerate(comparison.arms)}
    effects = sorted(
        phase_effects(found, comparison.confidence),
        key=lambda e: (e.scenario, e.workload, e.parameters, places.get(e.arm, len(places))),
    )
    table = effects_table(effects)
    same = table.unvaried("scenario", "workload")
    return CourseParts(
        CourseSection(_lead(effects, chosen), table.shown(hide=same) if effects else None),
        tuple(
            course_figure(
                sorted(each, key=lambda course: places.get(course.arm, len(places))),
                name=f"course-{number}",
                title=f"{names.name(Part(*key, SUBJECT))}: response time over time, "
                f"block {max(course.block for course in each)}",
                leads=leads,
            )
            for number, (key, each) in enumerate(chosen, start=1)
        ),
        table,
    )


def _lead(
    effects: Sequence[PhaseEffect],
    chosen: Sequence[tuple[tuple[str, str, str], tuple[Course, ...]]],
) -> str:
    sure = [effect for effect in effects if effect.decided]
    told = f"Shown is the last block of {counted(len(chosen), 'workload')}."
    if not effects:
        return told
    most = max(effect.blocks for effect in effects)
    if most < least_blocks(LEVEL):
        few = f"{counted(most, 'block')}; {least_blocks(LEVEL)} are the least for a verdict"
        return f"What phases do is preliminary ({few}). {told}"
    if not sure:
        return f"No phase’s response times are told from those of the quiet time. {told}"
    worst = max(sure, key=lambda effect: effect.slowdown or 0.0)
    return (
        f"Response times suffer most in {marked(worst.arm, worst.emulated)} under {worst.phase}: "
        f"{ratio(worst.slowdown or 0.0)} of those in the quiet time. {told}"
    )


def effects_table(effects: Sequence[PhaseEffect]) -> Table[PhaseEffect]:
    """Return what each phase did, one row an arm and phase."""
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
