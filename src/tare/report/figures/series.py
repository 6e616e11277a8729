"""Figures of long series: the scatter of duration against time, and the tails."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tare.analysis.model import SeriesSummary
from tare.report.figures.axes import Axis, linear_axis, linear_ticks, log_axis, tick_label
from tare.report.figures.canvas import Canvas
from tare.report.figures.frame import Figure
from tare.report.figures.palette import SOFT, TEXT, ArmStyle
from tare.report.figures.plot import TITLE, Plot, arm_labels, fitted, width_of
from tare.units import format_number

NANO = 1e-9
COLUMNS = 160
"""Time columns per arm in the scatter. Each shows the least and the greatest of its samples."""

STEPS = 160
"""Steps per arm in the tail figure."""

WIDTH = 350
PANEL = 64
HEADER = 16
"""The height of an arm's name above its panel, in pixels."""
BETWEEN = 7
TAILS = 220
UPRIGHT = 18
"""The width of a title that is written upwards, in pixels."""
LEGEND_ROW = 16
LEGEND_GAP = 44
"""The gap between two names in a row of the legend, in pixels."""


def scatter_figure(
    series: Mapping[str, SeriesSummary],
    looks: Mapping[str, ArmStyle],
    emulated: frozenset[str],
    *,
    name: str,
    part: str,
    links: Mapping[str, str] | None = None,
    linear: bool = False,
) -> Figure:
    """Return duration against time, one panel per arm, from interval extremes of one boot each.

    If there are gaps between samples, and every arm's samples are numbered, the figure shows
    duration
    against the sample's number instead.

    Args:
        series: Summaries by arm.
        looks: The style of each arm.
        emulated: The emulated arms.
        name: The figure's name.
        part: The name of the workload and its parameters.
        links: By arm the link target of its panel: a block of an effect.
        linear: Whether each arm has a linear axis of its own range. By default all share a
            logarithmic axis.
    """
    names = arm_labels(list(series), emulated, 36)
    labels = {arm: f"{names[arm]}, block {s.envelope_block}" for arm, s in series.items()}
    counted = all(summary.envelope_first for summary in series.values())
    columns = {arm: _columns(summary, counted) for arm, summary in series.items()}
    rows = [row for of_arm in columns.values() for row in of_arm]
    shared = log_axis(min(row.low for row in rows), max(row.high for row in rows), "s", most=4)
    up = {
        arm: linear_axis([end for row in of_arm for end in (row.low, row.high)], "s", most=4)
        if linear
        else shared
        for arm, of_arm in columns.items()
    }
    x = _across([row.at for row in rows], counted=counted, close=linear)
    labelled = (label for axis in up.values() for label in axis.labels)
    left = math.ceil(max(map(width_of, labelled), default=0)) + 12 + UPRIGHT
    canvas = Canvas(left + WIDTH + 2 + width_of(x.labels[-1]) / 2)
    top = 0.0
    for arm, of_arm in columns.items():
        canvas.text(left, top + 7, fitted(labels[arm], WIDTH))
        plot = Plot(canvas, left, top + HEADER, WIDTH, PANEL)
        plot.across_grid(x)
        y = up[arm]
        plot.up(y)
        middle = top + HEADER + PANEL / 2
        canvas.text(8, middle, "duration", ink=SOFT, align="center", upwards=True)
        for row in of_arm:
            column, high = plot.x(x, row.at), plot.y(y, row.high)
            canvas.rule(column, plot.y(y, row.low), column, high, looks[arm].ink, opacity=0.55)
            canvas.point(
                column,
                high,
                looks[arm].ink,
                "circle",
                hollow=arm in emulated,
                size=9,
                line=1,
            )
        canvas.area(left, top, left + WIDTH, top + HEADER + PANEL, (links or {}).get(arm, ""))
        top = plot.top + PANEL + BETWEEN
    plot.across(x, "sample" if counted else "time within the cell")
    return Figure(
        name=name,
        title=f"{part}: duration against {'sample number' if counted else 'time'}",
        description="; ".join(
            f"{labels[arm]}: {s.count} samples between {format_number(s.least * NANO, 4)} s and "
            f"{format_number(s.greatest * NANO, 4)} s"
            for arm, s in series.items()
        ),
        spec=canvas.spec(plot.top + PANEL + TITLE + 3),
        emulated=bool(emulated & set(series)),
    )


def _across(places: Sequence[float], *, counted: bool, close: bool) -> Axis:
    """Return the horizontal axis. It starts at 0, except in a close-up of times."""
    first, last = (min(places) if close else 0.0), max(places) or 1.0
    if close and last > first and not counted:
        ticks = linear_ticks(first, last, 4)
        return Axis(first, last, tuple(ticks), tuple(tick_label(tick, "s") for tick in ticks))
    ticks = linear_ticks(0, last, 6)
    unit = "" if counted else " s"
    return Axis(0, last, tuple(ticks), tuple(f"{tick:,.10g}{unit}" for tick in ticks))


class _Column(NamedTuple):
    """The samples of one column: their position, and the least and greatest, in seconds.

    The position is a time in seconds, or the number of a sample.
    """

    at: float
    low: float
    high: float


def _columns(summary: SeriesSummary, counted: bool) -> list[_Column]:
    places = summary.envelope_first if counted else summary.envelope_time_s
    count = len(places)
    width = max(1, math.ceil(count / COLUMNS))
    rows: list[_Column] = []
    for start in range(0, count, width):
        stop = start + width
        low = min(summary.envelope_least_ns[start:stop])
        high = max(summary.envelope_greatest_ns[start:stop])
        if high > 0:
            rows.append(_Column(places[start], max(low, 0.1) * NANO, high * NANO))
    return rows


def tail_figure(
    series: Mapping[str, SeriesSummary],
    looks: Mapping[str, ArmStyle],
    emulated: frozenset[str],
    *,
    name: str,
    part: str,
    links: Mapping[str, str] | None = None,
) -> Figure:
    """Return the share of samples longer than a duration, with both axes logarithmic.

    Args:
        series: Summaries by arm.
        looks: The style of each arm.
        emulated: The emulated arms.
        name: The figure's name.
        part: The name of the workload and its parameters.
        links: By arm the link target of its line: an effect.
    """
    labels = arm_labels(list(series), emulated)
    points = {arm: exceedance(summary) for arm, summary in series.items()}
    lengths = [length for of_arm in points.values() for length, _ in of_arm]
    x = log_axis(min(lengths), max(lengths), "s", most=6)
    least = min(share for of_arm in points.values() for _, share in of_arm)
    decades = list(range(math.floor(math.log10(least)), 1))
    # If all samples are alike, the axis still spans one decade.
    lowest = min(decades[0], -1)
    shown = decades[:: -max(1, math.ceil(len(decades) / 7))]
    y = Axis(
        10.0**lowest,
        1.0,
        tuple(10.0**d for d in shown),
        tuple(map(_share, shown)),
        logarithmic=True,
    )
    left = math.ceil(max(map(width_of, y.labels), default=0)) + 12 + UPRIGHT
    canvas = Canvas(left + WIDTH + 2 + width_of(x.labels[-1]) / 2)
    top = _legend(
        canvas, left, [(labels[arm], looks[arm], _dash(arm in emulated)) for arm in series]
    )
    plot = Plot(canvas, left, top, WIDTH, TAILS)
    plot.frame()
    plot.across_grid(x)
    plot.up(y)
    plot.across(x, "duration longer than")
    canvas.text(8, top + TAILS / 2, "share of samples", ink=SOFT, align="center", upwards=True)
    for arm, of_arm in points.items():
        places = [(plot.x(x, length), plot.y(y, share)) for length, share in of_arm]
        canvas.path(
            list(_steps(places)),
            looks[arm].ink,
            dash=_dash(arm in emulated),
            to=(links or {}).get(arm, ""),
        )
    return Figure(
        name=name,
        title=f"{part}: how many samples were longer",
        description="; ".join(
            f"{labels[arm]}: {_quantiles(summary)}" for arm, summary in series.items()
        ),
        spec=canvas.spec(top + TAILS + TITLE + 3),
        emulated=bool(emulated & set(series)),
    )


def _dash(emulated: bool) -> str:
    return "5,3" if emulated else ""


def _steps(places: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Yield the corners of a step line: horizontal to each place, then vertical to its height."""
    level = None
    for x, y in places:
        if level is not None:
            yield x, level
        yield x, y
        level = y


def _legend(canvas: Canvas, left: float, entries: Sequence[tuple[str, ArmStyle, str]]) -> float:
    """Draw the arms' names and lines, two in a row; return the top of the plot in pixels."""
    column = math.ceil(max(width_of(label) for label, _, _ in entries[::2])) + LEGEND_GAP
    for place, (label, look, dash) in enumerate(entries):
        x, y = left + place % 2 * column, 7 + place // 2 * LEGEND_ROW
        canvas.path([(x + 1, y), (x + 11, y)], look.ink, size=2.5, dash=dash)
        canvas.text(x + 17, y, label, ink=TEXT)
    return 7 + math.ceil(len(entries) / 2) * LEGEND_ROW


def exceedance(summary: SeriesSummary) -> list[tuple[float, float]]:
    """Return points (seconds, share of samples at least so long), thinned to a few hundred.

    Args:
        summary: A summary with histogram bins in ascending order.
    """
    total = sum(summary.counts)
    if not total:
        return []
    below = itertools.accumulate(summary.counts, initial=0)
    points = [
        (max(low, 0.1) * NANO, 1 - before / total)
        for low, before in zip(summary.bin_low_ns, below, strict=False)
        if before < total
    ]
    points.append((max(summary.greatest, 0.1) * NANO, points[-1][1]))
    return _thinned(points)


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return both ends, and the points that differ visibly in either logarithm."""
    if len(points) <= STEPS:
        return list(points)
    first, last = points[0], points[-1]
    across = math.log(last[0] / first[0]) or 1.0
    down = math.log(first[1] / last[1]) or 1.0
    kept = [first]
    for point in points[1:-1]:
        right = math.log(point[0] / kept[-1][0]) / across
        fall = math.log(kept[-1][1] / point[1]) / down
        if right + fall >= 2 / STEPS:
            kept.append(point)
    return [*kept, last]


def _share(decade: int) -> str:
    if decade == 0:
        return "all"
    return f"1 in {10**-decade:,}" if decade > -7 else f"1 in 10^{-decade}"


def _quantiles(summary: SeriesSummary) -> str:
    return ", ".join(
        f"{100 * quantile.q:.6g} % within {format_number(quantile.value * NANO, 4)} s"
        for quantile in summary.quantiles
    )
