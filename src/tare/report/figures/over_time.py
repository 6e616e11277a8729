"""Values of each arm over the seconds of a load: one line an arm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from tare.report.figures.axes import linear_ticks, tick_label, value_axis
from tare.report.figures.canvas import Canvas
from tare.report.figures.frame import Figure, Spec
from tare.report.figures.palette import RULE, SOFT, Look
from tare.report.page.words import marked, short
from tare.units import format_quantity

WIDE, NARROW = 720.0, 360.0
HEIGHT, FOOT, LINE, LEFT = 170.0, 48.0, 17.0, 78.0
QUANTITIES = {"1/s": "requests per second", "s": "response time"}
"""Titles of the vertical axis, by unit."""


@dataclass(frozen=True)
class Line:
    """One arm's values: seconds since the start of the load, and the value then.

    Where that is 0, the line has a gap: many axes are logarithmic, and no line may lead across a
    time in which nothing was answered. ``to`` is what it links to on the page.
    """

    arm: str
    emulated: bool
    points: tuple[tuple[float, float], ...]
    to: str = ""


def over_time_figure(
    name: str, title: str, lines: Sequence[Line], looks: Mapping[str, Look], unit: str
) -> Figure:
    """Return the figure; at least one line with a point. Emulated arms are dashed.

    Args:
        name: Of the figure.
        title: What it shows.
        lines: The values, each arm's in order of time.
        looks: How arms are drawn.
        unit: Of the values.
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


def _drawn(lines: Sequence[Line], looks: Mapping[str, Look], unit: str, width: float) -> Spec:
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
        canvas.text(x, HEIGHT + 10, tick_label(tick, "s"), size=10, ink=SOFT, align="center")
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
        # A line is thin: its name links there too.
        canvas.area(LEFT - 8, top - LINE / 2, width, top + LINE / 2, line.to)
    return canvas.spec(HEIGHT + FOOT + len(lines) * LINE)


def _stretches(points: Sequence[tuple[float, float]]) -> Iterator[list[tuple[float, float]]]:
    """Yield the points between those that are 0, as far as there are any."""
    for positive, stretch in groupby(points, key=lambda point: point[1] > 0):
        if positive:
            yield list(stretch)
