"""How a load balancer's rate, its response times and its probe went over the seconds of a load."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from tare.analysis.data.rundata import RunData
from tare.analysis.topics.proxied_cells import named
from tare.analysis.topics.response_times import SERIES, Step, Timeline, timelines
from tare.report.figures.frame import Figure
from tare.report.figures.over_time import Line, over_time_figure
from tare.report.figures.palette import Look
from tare.report.page.links import Links, part_of

PROBE_RESPONSES = "probe-responses"
MOST_POINTS = 120
FEW = 10
"""So many requests a point of the rate has on average, at least."""
Points = tuple[tuple[float, float], ...]


def over_time_figures(
    runs: Sequence[RunData],
    arms: Sequence[str],
    looks: Mapping[str, Look],
    links: Links | None = None,
) -> tuple[tuple[Figure, str], ...]:
    """Return figures of the measured load and of its probe, second by second, with their notes.

    They show the last block and the smallest objects, where each request counts most.

    Args:
        runs: Runs of one study.
        arms: The arms in the order they are to come.
        looks: How arms are drawn.
        links: What lines lead to: the blocks of their cells.
    """
    names = named(runs)
    sizes = {
        (cell.run, cell.cell): cell.facts["proxy"].get("size", 0)
        for run in runs
        for cell in run.cells
        if (cell.run, cell.cell) in names
    }
    loads, probes = (
        _by_kind(timelines(runs, series), names) for series in (SERIES, PROBE_RESPONSES)
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
    lines: Sequence[Line],
    looks: Mapping[str, Look],
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


def _by_kind(
    found: Iterable[Timeline], names: Mapping[tuple[str, str], str]
) -> dict[tuple[str, str], list[Timeline]]:
    """Return the timelines of proxied cells by workload and scenario, in their order."""
    kinds: dict[tuple[str, str], list[Timeline]] = {}
    for each in found:
        if name := names.get((each.run, each.cell)):
            kinds.setdefault((name, each.scenario), []).append(each)
    return kinds


def _last(own: Sequence[Timeline], sizes: Mapping[tuple[str, str], int]) -> dict[str, Timeline]:
    """Return the last timeline of each arm among those of the smallest objects."""
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
) -> list[Line]:
    return [
        Line(arm, found[arm].emulated, points, _lead(found[arm], links))
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


def _points(timeline: Timeline, value: Callable[[Step], float]) -> Points:
    """Return at most so many points, each the mean over as many steps."""
    width = max(1, -(-len(timeline.steps) // MOST_POINTS))
    begin, found = timeline.steps[0].begin_s, []
    for start in range(0, len(timeline.steps), width):
        part = timeline.steps[start : start + width]
        mean = sum(map(value, part)) / len(part)
        if mean > 0:
            found.append((part[0].begin_s - begin, mean))
    return tuple(found)


def _rates(timeline: Timeline) -> Points:
    """Return at most so many points of a load without a rate; 0: nothing was asked nor answered.

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
"""Figures over the seconds of a load; their bandwidth, packets and the sizes of these are among the
counters of each machine (`tare.report.sections.monitoring`)."""
