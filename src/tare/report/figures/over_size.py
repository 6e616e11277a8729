"""Values of each arm over the size of objects, one line for each arm."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tare.report.figures.canvas import Canvas
from tare.report.figures.frame import Figure, Spec
from tare.report.figures.palette import RULE, SOFT, ArmStyle
from tare.report.figures.plot import apart
from tare.report.page.words import marked, short
from tare.units import format_quantity, format_size

WIDE, NARROW = 720.0, 360.0
HEIGHT, FOOT, LINE, LEFT = 230.0, 48.0, 17.0, 78.0
QUANTITIES = {"1/s": "requests per second", "B/s": "bandwidth", "%": "loss"}
"""Titles of the vertical axis, by unit."""
TICKS = 5
NOTHING = 1e-9
"""Values that differ by less than this count as equal: no request, byte or share is so small."""


@dataclass(frozen=True)
class Mark:
    """One arm's value at a size. ``least``: it is a lower bound; ``to``: the link target."""

    arm: str
    emulated: bool
    size: int
    value: float
    least: bool = False
    to: str = ""

    @property
    def is_least(self) -> bool:
        """Whether the value is a lower bound above 0; a bound of 0 says nothing."""
        return self.least and self.value > NOTHING


def over_size_figure(
    name: str, title: str, marks: Sequence[Mark], looks: Mapping[str, ArmStyle], unit: str
) -> Figure:
    """Return the figure; at least one mark. Hollow marks are *at least*; emulated arms are dashed.

    Args:
        name: The figure's name.
        title: The figure's title.
        marks: The values, each arm's by size.
        looks: The style of each arm.
        unit: The values' unit; ``%`` for shares.
    """
    words = "; ".join(
        f"{mark.arm}, {format_size(mark.size)}: {'at least ' * mark.is_least}"
        f"{_format_value(mark.value, unit)}"
        for mark in marks
    )
    return Figure(
        name=name,
        title=title,
        description=words,
        spec=_drawn(marks, looks, unit, WIDE),
        narrow=_drawn(marks, looks, unit, NARROW),
        emulated=any(mark.emulated for mark in marks),
        emulated_as="dashed line",
    )


def _format_value(value: float, unit: str) -> str:
    return f"{100 * value:.0f} %" if unit == "%" else format_quantity(value, unit)


def _drawn(marks: Sequence[Mark], looks: Mapping[str, ArmStyle], unit: str, width: float) -> Spec:
    canvas = Canvas(width)
    sizes = sorted({mark.size for mark in marks})
    room = (width - LEFT - 12) / max(1, len(sizes))
    ticks = _ticks([mark.value for mark in marks])
    low, high = ticks[0], ticks[-1]

    def across(size: int) -> float:
        return LEFT + (sizes.index(size) + 0.5) * room

    def up(value: float) -> float:
        return 8 + (HEIGHT - 16) * (high - value) / (high - low)

    for tick in ticks:
        canvas.rule(LEFT, up(tick), width, up(tick), RULE)
        canvas.text(LEFT - 6, up(tick), _format_value(tick, unit), size=11, ink=SOFT, align="right")
    for x, label in apart((across(size), format_size(size)) for size in sizes):
        canvas.text(x, HEIGHT + 10, label, size=10, ink=SOFT, align="center")
    canvas.text(8, HEIGHT / 2, QUANTITIES.get(unit, unit), ink=SOFT, align="center", upwards=True)
    middle = LEFT + (width - LEFT) / 2
    canvas.text(middle, HEIGHT + 25, "size of the objects", size=11, ink=SOFT, align="center")
    arms = list(dict.fromkeys((mark.arm, mark.emulated) for mark in marks))
    for number, (arm, emulated) in enumerate(arms):
        look = looks[arm]
        own = sorted((mark for mark in marks if mark.arm == arm), key=lambda mark: mark.size)
        for one, other in pairwise(own):
            ends = (across(one.size), up(one.value), across(other.size), up(other.value))
            canvas.rule(*ends, look.ink, size=1.5, dashed=emulated)
        for mark in own:
            tip = f"{arm}, {format_size(mark.size)}: {_format_value(mark.value, unit)}"
            place = (across(mark.size), up(mark.value))
            canvas.point(*place, look.ink, look.shape, hollow=mark.is_least, tip=tip, to=mark.to)
        top = HEIGHT + FOOT + number * LINE
        canvas.point(LEFT, top, look.ink, look.shape)
        name = short(marked(arm, emulated), int((width - LEFT) / 6.5))
        least = (
            " (hollow: at least)" if any(mark.is_least for mark in own) and width > NARROW else ""
        )
        canvas.text(LEFT + 12, top, f"{name}{least}", size=11)
    return canvas.spec(HEIGHT + FOOT + len(arms) * LINE)


def _ticks(values: Sequence[float]) -> list[float]:
    """Return round ticks from 0 or below to above the greatest value."""
    low, high = min(0.0, *values), max(0.0, *values)
    if high - low < NOTHING:
        return [0.0, 1.0]
    power = 10.0 ** math.floor(math.log10((high - low) / TICKS))
    step = next(digit * power for digit in (1, 2, 5, 10) if high - low <= TICKS * digit * power)
    return [step * n for n in range(math.floor(low / step), math.ceil(high / step) + 1)]
