"""Response time over time, one panel for each arm, with the phases of its neighbours shaded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tare.analysis.topics.response_times import Timeline, TimeStep
from tare.report.figures.axes import linear_ticks, tick_label
from tare.report.figures.canvas import Canvas
from tare.report.figures.frame import SMALL_LETTER, Figure, Spec, log_ticks, name_within
from tare.report.figures.palette import ARMS, MARGIN, RULE, SOFT
from tare.report.figures.plot import below_tick
from tare.report.page.links import Links, part_of
from tare.report.page.words import marked, short
from tare.units import format_number

WIDE, NARROW = 720.0, 360.0
LEFT, HEIGHT, SPACE, TOP = 62.0, 108.0, 44.0, 22.0
MOST_POINTS = 240
MEDIAN, P99, MAX, FAILED = ARMS[0], ARMS[1], ARMS[3], ARMS[6]
LEGEND = (("median", MEDIAN), ("99th percentile", P99))


@dataclass(frozen=True)
class Ends:
    """The common axes of a figure's panels: time and range of response times, in seconds."""

    length_s: float
    low_s: float
    high_s: float


def timeline_figure(
    timelines: Sequence[Timeline], *, name: str, title: str, links: Links | None = None
) -> Figure:
    """Return the timelines of several arms, all with the same axes.

    Args:
        timelines: The timelines, one for each arm; at least one.
        name: The figure's name.
        title: The figure's title.
        links: Finds the link target of each panel: the block of its cell.
    """
    return Figure(
        name=name,
        title=title,
        description="; ".join(_describe_timeline(timeline) for timeline in timelines),
        spec=_drawn(timelines, WIDE, links),
        narrow=_drawn(timelines, NARROW, links),
        emulated=any(timeline.emulated for timeline in timelines),
        panels=len(timelines),
    )


def _describe_timeline(timeline: Timeline) -> str:
    medians = sorted(step.median_s for step in timeline.steps if step.median_s > 0)
    middle = medians[len(medians) // 2] if medians else math.nan
    longest = max(step.max_s for step in timeline.steps)
    failed = sum(step.failed for step in timeline.steps)
    return (
        f"{marked(timeline.arm, timeline.emulated)}: median {format_number(middle)} s, "
        f"longest {format_number(longest)} s, {failed} failed"
    )


def thinned(timeline: Timeline, most: int = MOST_POINTS) -> tuple[tuple[TimeStep, float], ...]:
    """Return at most ``most`` steps, each with its end in seconds.

    Several steps merge into one with the mean of the medians, the worst percentile and the longest
    response, so that no long response is lost.

    Args:
        timeline: The timeline.
        most: The most steps.
    """
    width = max(1, -(-len(timeline.steps) // most))
    found = []
    for start in range(0, len(timeline.steps), width):
        part = timeline.steps[start : start + width]
        count = len(part)
        step = TimeStep(
            part[0].begin_s,
            sum(one.completed for one in part),
            sum(one.failed for one in part),
            sum(one.mean_s for one in part) / count,
            sum(one.median_s for one in part) / count,
            max(one.p99_s for one in part),
            max(one.max_s for one in part),
        )
        found.append((step, part[-1].begin_s + timeline.interval_s))
    return tuple(found)


def ends_of(timelines: Sequence[Timeline]) -> Ends:
    """Return the axes that fit all of ``timelines``."""
    lows = [step.median_s for timeline in timelines for step in timeline.steps if step.median_s > 0]
    highs = [step.max_s for timeline in timelines for step in timeline.steps if step.max_s > 0]
    low, high = min(lows, default=1e-3), max(highs, default=1.0)
    return Ends(
        max(timeline.length_s for timeline in timelines), low / 1.3, max(high, low * 2) * 1.6
    )


def _drawn(timelines: Sequence[Timeline], width: float, links: Links | None) -> Spec:
    canvas, ends = Canvas(width), ends_of(timelines)
    room = width - LEFT
    x = LEFT
    for word, ink in LEGEND:
        canvas.rule(x, 8, x + 14, 8, ink, size=2)
        canvas.text(x + 18, 8, word, size=11, ink=SOFT)
        x += 34 + 6.4 * len(word)
    canvas.point(x + 6, 8, MAX, "circle", size=8)
    canvas.text(x + 14, 8, "longest", size=11, ink=SOFT)
    top = TOP
    for timeline in timelines:
        base = top + 18 + HEIGHT
        canvas.text(
            LEFT, top + 6, marked(short(timeline.arm, 40), timeline.emulated), size=12, bold=True
        )
        middle = base - HEIGHT / 2
        canvas.text(6, middle, "response time", ink=SOFT, size=10, align="center", upwards=True)
        failed = sum(step.failed for step in timeline.steps)
        if failed:
            words = f"✕ {failed:,} failed"
            canvas.text(width, top + 6, words, size=10, ink=SOFT, align="right")
        _phases(canvas, timeline, ends, room, base)
        _levels(canvas, ends, width, base)
        _steps(canvas, timeline, ends, room, base, few=width <= NARROW)
        _time_axis(canvas, ends, room, base, few=width <= NARROW)
        if links is not None:
            to = links.cell(part_of(timeline), timeline.arm, timeline.run, timeline.block)
            canvas.area(LEFT, top, width, base, to)
        top = base + SPACE - 18
    return canvas.spec(top + 4)


def _phases(canvas: Canvas, timeline: Timeline, ends: Ends, room: float, base: float) -> None:
    taken = 0.0
    for phase in timeline.phases:
        x, x2 = (_x(time, ends, room) for time in (phase.begin_s, phase.end_s))
        if x2 - x < 1:
            continue
        canvas.rect(x, base - HEIGHT, x2, base, MARGIN)
        name = name_within(phase.name.removesuffix("-load"), x, x2, taken)
        if name:
            canvas.text((x + x2) / 2, base - HEIGHT + 7, name, size=9, ink=SOFT, align="center")
            taken = (x + x2 + len(name) * SMALL_LETTER) / 2


def _levels(canvas: Canvas, ends: Ends, width: float, base: float) -> None:
    for tick in log_ticks(ends.low_s, ends.high_s, 4):
        y = _y(tick, ends, base)
        canvas.rule(LEFT, y, width, y, RULE)
        canvas.text(LEFT - 6, y, tick_label(tick, "s"), size=10, ink=SOFT, align="right")


def _steps(
    canvas: Canvas, timeline: Timeline, ends: Ends, room: float, base: float, *, few: bool
) -> None:
    canvas.rule(LEFT, base, LEFT + room, base, RULE)
    before: tuple[float, float, float] | None = None
    for step, end in thinned(timeline, MOST_POINTS // 2 if few else MOST_POINTS):
        x, x2 = (_x(time, ends, room) for time in (step.begin_s, end))
        if step.failed:
            canvas.text((x + x2) / 2, base - HEIGHT + 17, "✕", size=8, ink=FAILED, align="center")
        if step.median_s <= 0:
            before = None
            continue
        middle, high = (_y(value, ends, base) for value in (step.median_s, step.p99_s))
        canvas.point((x + x2) / 2, _y(step.max_s, ends, base), MAX, "circle", size=3)
        # Lines have a gap where nothing was measured.
        if before is not None and x - before[0] < 2:
            canvas.rule(x, before[2], x, high, P99, size=1)
            canvas.rule(x, before[1], x, middle, MEDIAN, size=1.5)
        canvas.rule(x, high, x2, high, P99, size=1)
        canvas.rule(x, middle, x2, middle, MEDIAN, size=1.5)
        before = (x2, middle, high)


def _time_axis(canvas: Canvas, ends: Ends, room: float, base: float, *, few: bool) -> None:
    for tick in linear_ticks(0.0, ends.length_s, 4 if few else 9):
        x = _x(tick, ends, room)
        canvas.rule(x, base, x, base + 4, RULE)
        below_tick(canvas, x, base + 12, tick_label(tick, "s"))


def _x(time_s: float, ends: Ends, room: float) -> float:
    return LEFT + min(max(time_s / ends.length_s, 0.0), 1.0) * room


def _y(value_s: float, ends: Ends, base: float) -> float:
    share = math.log(max(value_s, ends.low_s) / ends.low_s) / math.log(ends.high_s / ends.low_s)
    return base - min(share, 1.0) * (HEIGHT - 22)
