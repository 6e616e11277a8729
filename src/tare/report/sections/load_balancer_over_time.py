"""A load balancer's rate, response times and probe, second by second over a load."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from tare.analysis.data.rundata import RunData
from tare.analysis.topics.proxied_cells import named
from tare.analysis.topics.response_times import SERIES, Timeline, TimeStep, timelines
from tare.report.figures.axes import linear_ticks, tick_label, value_axis
from tare.report.figures.canvas import Canvas
from tare.report.figures.frame import Figure, Spec
from tare.report.figures.palette import RULE, SOFT, ArmStyle
from tare.report.figures.plot import below_tick
from tare.report.page.links import Links, part_of
from tare.report.page.words import marked, short
from tare.units import format_quantity

WIDE, NARROW = 720.0, 360.0
HEIGHT, FOOT, LINE, LEFT = 170.0, 48.0, 17.0, 78.0
QUANTITIES = {"1/s": "requests per second", "s": "response time"}
"""Titles of the vertical axis, by unit."""


@dataclass(frozen=True)
class ArmCurve:
    """One arm's values: seconds since the start of the load, and the value then.

    The line has a gap where the value is 0: many axes are logarithmic, and no line may cross a time
    without answers. ``to`` is the link target on the page.
    """

    arm: str
    emulated: bool
    points: tuple[tuple[float, float], ...]
    to: str = ""


def over_time_figure(
    name: str, title: str, lines: Sequence[ArmCurve], looks: Mapping[str, ArmStyle], unit: str
) -> Figure:
    """Return the figure; at least one line with a point. Emulated arms are dashed.

    Args:
        name: The figure's name.
        title: The figure's title.
        lines: The values, each arm's in order of time.
        looks: The style of each arm.
        unit: The unit of the values.
    """
    words = "; ".join(
        f"{line.arm}: {format_quantity(min(values), unit)} to {format_quantity(max(values), unit)}"
        for line in lines
        if (values := [value for _, value in line.points])
    )
    return Figure(
        name=name,
        title=title,
        description=words,
        spec=_drawn(lines, looks, unit, WIDE),
        narrow=_drawn(lines, looks, unit, NARROW),
        emulated=any(line.emulated for line in lines),
        emulated_as="dashed",
    )


def _drawn(
    lines: Sequence[ArmCurve], looks: Mapping[str, ArmStyle], unit: str, width: float
) -> Spec:
    canvas = Canvas(width)
    drawn = [value for line in lines for _, value in line.points if value > 0]
    axis = value_axis(drawn, unit, most=5)
    end = max(time for line in lines for time, _ in line.points) or 1.0
    room = width - LEFT - 12

    def place(time: float, value: float) -> tuple[float, float]:
        return LEFT + room * time / end, 8 + (HEIGHT - 16) * (1 - axis.share(value))

    for tick, label in zip(axis.ticks, axis.labels, strict=True):
        _, y = place(0.0, tick)
        canvas.rule(LEFT, y, width, y, RULE)
        canvas.text(LEFT - 6, y, label, size=11, ink=SOFT, align="right")
    for tick in linear_ticks(0.0, end, 4 if width <= NARROW else 9):
        x, _ = place(tick, axis.low)
        below_tick(canvas, x, HEIGHT + 10, tick_label(tick, "s"))
    canvas.text(8, HEIGHT / 2, QUANTITIES.get(unit, unit), ink=SOFT, align="center", upwards=True)
    canvas.text(LEFT + room / 2, HEIGHT + 25, "time", size=11, ink=SOFT, align="center")
    for number, line in enumerate(lines):
        look = looks[line.arm]
        for stretch in _stretches(line.points):
            points = [place(*point) for point in stretch]
            if len(points) > 1:
                dash = "4,3" if line.emulated else ""
                canvas.path(points, look.ink, size=1.5, dash=dash, to=line.to)
            else:
                canvas.point(*points[0], look.ink, look.shape, to=line.to)
        top = HEIGHT + FOOT + number * LINE
        canvas.point(LEFT, top, look.ink, look.shape)
        name = short(marked(line.arm, line.emulated), int((width - LEFT) / 6.5))
        canvas.text(LEFT + 12, top, name, size=11)
        # A line is thin, so its name links there too.
        canvas.area(LEFT - 8, top - LINE / 2, width, top + LINE / 2, line.to)
    return canvas.spec(HEIGHT + FOOT + len(lines) * LINE)


def _stretches(points: Sequence[tuple[float, float]]) -> Iterator[list[tuple[float, float]]]:
    """Yield each series of consecutive points above 0."""
    for positive, stretch in groupby(points, key=lambda point: point[1] > 0):
        if positive:
            yield list(stretch)


PROBE_RESPONSES = "probe-responses"
MOST_POINTS = 120
FEW = 10
"""A point of the rate has at least this many requests on average."""
Points = tuple[tuple[float, float], ...]


def over_time_figures(
    runs: Sequence[RunData],
    arms: Sequence[str],
    looks: Mapping[str, ArmStyle],
    links: Links | None = None,
) -> tuple[tuple[Figure, str], ...]:
    """Return figures of the measured load and of its probe, second by second, with their notes.

    They show the last block and the smallest objects, where each request matters most.

    Args:
        runs: Runs of one study.
        arms: The arms in the order of the figures.
        looks: The style of each arm.
        links: Finds the link target of a line: the block of its cell.
    """
    names = named(runs)
    sizes = {
        (cell.run, cell.cell): cell.facts["proxy"].get("size", 0)
        for run in runs
        for cell in run.cells
        if (cell.run, cell.cell) in names
    }
    loads, probes = (
        _timelines_by_kind(timelines(runs, series), names) for series in (SERIES, PROBE_RESPONSES)
    )
    kinds = list(loads)
    figures: list[tuple[Figure, str]] = []
    for number, kind in enumerate(kinds):
        stem = "load-balancer" if len(kinds) == 1 else f"load-balancer-{number + 1}"
        where = "" if len(kinds) == 1 else f", {kind[0]} in {kind[1]}"
        load, probe = (_last(found.get(kind, []), sizes) for found in (loads, probes))
        for name, title, unit, points_of in _SHOWN:
            lines = _lines(load, arms, points_of, links)
            words = f"{title} at the proxy’s full load, over time{where}"
            figures += _figure(f"{stem}-{name}", words, lines, looks, unit, load)
        lines = _lines(probe, arms, _medians, links)
        words = f"Median response time of the probe during that load, over time{where}"
        figures += _figure(f"{stem}-probe-time", words, lines, looks, "s", probe)
    return tuple(figures)


def _figure(
    name: str,
    title: str,
    lines: Sequence[ArmCurve],
    looks: Mapping[str, ArmStyle],
    unit: str,
    found: Mapping[str, Timeline],
) -> list[tuple[Figure, str]]:
    if not lines:
        return []
    block = max(timeline.block for timeline in found.values())
    note = (
        f"The smallest objects, block {block}. A request counts when it was due. The rate's "
        "line has a gap where none was answered."
    )
    return [(over_time_figure(name, title, lines, looks, unit), note)]


def _timelines_by_kind(
    found: Iterable[Timeline], names: Mapping[tuple[str, str], str]
) -> dict[tuple[str, str], list[Timeline]]:
    """Return the timelines of proxied cells by workload and scenario, in their order."""
    kinds: dict[tuple[str, str], list[Timeline]] = {}
    for each in found:
        if name := names.get((each.run, each.cell)):
            kinds.setdefault((name, each.scenario), []).append(each)
    return kinds


def _last(own: Sequence[Timeline], sizes: Mapping[tuple[str, str], int]) -> dict[str, Timeline]:
    """Return each arm's timeline of the smallest objects from the last block."""
    least = min((sizes[timeline.run, timeline.cell] for timeline in own), default=0)
    small = (timeline for timeline in own if sizes[timeline.run, timeline.cell] == least)
    return {
        timeline.arm: timeline for timeline in sorted(small, key=lambda timeline: timeline.block)
    }


def _lines(
    found: Mapping[str, Timeline],
    arms: Sequence[str],
    points_of: Callable[[Timeline], Points],
    links: Links | None,
) -> list[ArmCurve]:
    return [
        ArmCurve(arm, found[arm].emulated, points, _lead(found[arm], links))
        for arm in arms
        if arm in found and (points := points_of(found[arm]))
    ]


def _lead(timeline: Timeline, links: Links | None) -> str:
    return (
        links.cell(part_of(timeline), timeline.arm, timeline.run, timeline.block) if links else ""
    )


def _medians(timeline: Timeline) -> Points:
    return _points(timeline, lambda step: step.median_s)


def _tails(timeline: Timeline) -> Points:
    return _points(timeline, lambda step: step.p99_s)


def _points(timeline: Timeline, value: Callable[[TimeStep], float]) -> Points:
    """Return at most `MOST_POINTS` points above 0, each the mean over equally many steps."""
    width = max(1, -(-len(timeline.steps) // MOST_POINTS))
    begin, found = timeline.steps[0].begin_s, []
    for start in range(0, len(timeline.steps), width):
        part = timeline.steps[start : start + width]
        mean = sum(map(value, part)) / len(part)
        if mean > 0:
            found.append((part[0].begin_s - begin, mean))
    return tuple(found)


def _rates(timeline: Timeline) -> Points:
    """Return at most `MOST_POINTS` points of an unlimited load; 0: nothing was answered.

    The timeline lacks a step in which nothing was due, for example while a full proxy is blocked.
    """
    begin, length = timeline.steps[0].begin_s, timeline.interval_s
    answered = {round((step.begin_s - begin) / length): step.completed for step in timeline.steps}
    count, total = max(answered) + 1, sum(answered.values())
    if not total:
        return ()
    width = max(1, -(-count // MOST_POINTS), math.ceil(FEW * count / total))
    found = []
    for start in range(0, count, width):
        end = min(count, start + width)
        here = sum(answered.get(number, 0) for number in range(start, end))
        found.append((start * length, here / (length * (end - start))))
    return tuple(found)


_SHOWN: tuple[tuple[str, str, str, Callable[[Timeline], Points]], ...] = (
    ("rate-time", "Requests per second", "1/s", _rates),
    ("response-time", "Median response time", "s", _medians),
    ("p99-time", "99th percentile of response times", "s", _tails),
)
"""The figures over the seconds of a load.

Bandwidth, packets and packet sizes are among the counters of each machine
(`tare.report.sections.monitoring`).
"""
