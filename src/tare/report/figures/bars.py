"""Values of arms as bars with intervals, in groups such as sizes or numbers of machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tare.report.figures.axes import linear_ticks, tick_label
from tare.report.figures.canvas import Canvas
from tare.report.figures.frame import Figure, Spec
from tare.report.figures.palette import AXIS, RULE, SOFT, TEXT, ArmStyle
from tare.report.figures.plot import fitted, width_of
from tare.report.figures.svg import legible
from tare.report.page.words import marked
from tare.units import format_number, format_quantity

WIDE, NARROW = 720.0, 360.0
HEAD, ROW, BAR, FOOT, TITLE = 18.0, 19.0, 13.0, 26.0, 12.0
LABELS, FEW_LABELS, VALUES = 150.0, 124.0, 64.0
"""Pixels for names of arms, in a wide and in a narrow figure, and for values right of the bars."""
BOLD = 13.0
"""A regular font size, in pixels, that is as wide as the bold size used here."""
BREAK, GAP = 8.0, 4.0
"""Pixels of the end of a broken bar, and of the gap before the end."""
SHARE = "%"
"""The unit of shares, which are written in per cent."""
NOTHING = 1e-9
"""Values below this count as 0, because no byte, share or time is so small."""


@dataclass(frozen=True)
class Bar:
    """One arm's value.

    Args:
        group: The group's heading. Bars of one group follow each other.
        arm: The arm.
        emulated: Whether the arm is emulated.
        value: The value, at least 0.
        ends: The interval; None without one.
        to: The link target on the page.
        unit: The value's unit, if the figure has no common one.
    """

    group: str
    arm: str
    emulated: bool
    value: float
    ends: tuple[float, float] | None
    to: str = ""
    unit: str = ""


OUTLIER = 4.0
"""Emulated bars that are longer than all others by more than this factor are broken.

Otherwise the others would be too short to compare.
"""
MOST_APART = 50.0
"""Groups whose largest values differ by more than this factor cannot share a scale."""


def common_unit(bars: Sequence[Bar]) -> str:
    """Return the unit in which all bars fit on one scale; empty if there is none."""
    units = {bar.unit for bar in bars}
    largest: dict[str, float] = {}
    for bar in bars:
        largest[bar.group] = max(bar.value, largest.get(bar.group, 0.0))
    apart = max(largest.values()) > MOST_APART * min(largest.values())
    return "" if len(units) > 1 or apart else next(iter(units))


def bars_figure(
    bars: Sequence[Bar],
    looks: Mapping[str, ArmStyle],
    unit: str,
    *,
    name: str,
    title: str,
    what: str = "",
) -> Figure:
    """Return the figure; at least one bar.

    Args:
        bars: The values, group by group.
        looks: The style of each arm.
        unit: The values' unit; :data:`SHARE` for shares. If empty, each bar has its own unit, and
            each group is drawn to its own scale, without an axis.
        name: The figure's name.
        title: The figure's title.
        what: The quantity, as the title of the axis; groups may name it instead.
    """
    return Figure(
        name=name,
        title=title,
        description="; ".join(
            f"{bar.group}, {marked(bar.arm, bar.emulated)}: "
            f"{_format_value(bar.value, unit or bar.unit)}"
            for bar in bars
        ),
        spec=_drawn(bars, looks, unit, WIDE, what),
        narrow=_drawn(bars, looks, unit, NARROW, what),
        emulated=any(bar.emulated for bar in bars),
        emulated_as="marked, and broken" if _is_broken(bars, unit) else "marked",
    )


def _is_broken(bars: Sequence[Bar], unit: str) -> bool:
    """Return whether any bar is longer than its scale."""
    groups = [bars] if unit else [[b for b in bars if b.group == bar.group] for bar in bars]
    return any(bar.value > _longest(group) for group in groups for bar in group)


def _format_value(value: float, unit: str) -> str:
    return f"{100 * value:.0f} %" if unit == SHARE else format_quantity(value, unit)


def _drawn(
    bars: Sequence[Bar], looks: Mapping[str, ArmStyle], unit: str, width: float, what: str
) -> Spec:
    canvas = Canvas(width)
    left = LABELS if width > NARROW else FEW_LABELS
    room, most = width - left - VALUES, _longest(bars)
    top, before, scale = 0.0, "", room / most
    for bar in bars:
        if bar.group != before:
            if not unit:
                scale = room / _longest([each for each in bars if each.group == bar.group])
            group = fitted(legible(bar.group), width, BOLD)
            canvas.text(0, top + HEAD / 2, group, size=11, bold=True)
            top, before = top + HEAD, bar.group
        label = _label(bar, left - 8)
        canvas.text(left - 8, top + BAR / 2, label, ink=SOFT, align="right", size=11)
        _bar(canvas, bar, looks[bar.arm], (left, left + room), top, scale, unit or bar.unit)
        canvas.area(0, top, width, top + BAR, bar.to)
        top += ROW
    if not unit:
        return canvas.spec(top)
    canvas.rule(left, top, left + room, top, AXIS)
    for tick in linear_ticks(0.0, most, 5 if width > NARROW else 3):
        x = left + tick * scale
        canvas.rule(x, top, x, top + 4, RULE)
        words = f"{format_number(100 * tick, 6)} %" if unit == SHARE else tick_label(tick, unit)
        canvas.text(x, top + 12, words, size=10, ink=SOFT, align="center")
    if not what:
        return canvas.spec(top + FOOT)
    canvas.text(left + room / 2, top + FOOT + 2, what, size=11, ink=SOFT, align="center")
    return canvas.spec(top + FOOT + TITLE)


def _label(bar: Bar, room: float) -> str:
    """Return as much of an arm's name as fits, followed by the whole mark of emulation."""
    mark = marked("", bar.emulated)
    return fitted(legible(bar.arm), room - width_of(mark, 11), 11) + mark


def _longest(bars: Sequence[Bar]) -> float:
    """Return the end of the bars' scale, without broken bars; 1 if all values are 0."""
    real = _largest([bar for bar in bars if not bar.emulated])
    most = _largest(bars)
    if NOTHING < real < most / OUTLIER:
        most = real
    return most if most > NOTHING else 1.0


def _largest(bars: Sequence[Bar]) -> float:
    """Return the largest value or end of an interval; 0 without any."""
    return max((max(bar.value, *(bar.ends or (0.0,))) for bar in bars), default=0.0)


def _bar(
    canvas: Canvas,
    bar: Bar,
    look: ArmStyle,
    across: tuple[float, float],
    top: float,
    scale: float,
    unit: str,
) -> None:
    left, right = across
    end = left + bar.value * scale
    if end > right + 0.5:
        canvas.rect(left, top, right - BREAK - GAP, top + BAR, look.ink)
        canvas.rect(right - BREAK, top, right, top + BAR, look.ink)
        value = _format_value(bar.value, unit)
        canvas.text(right + 6, top + BAR / 2, value, size=10, ink=SOFT)
        return
    canvas.rect(left, top, max(end, left + 0.5), top + BAR, look.ink)
    far = end
    if bar.ends is not None:
        low, high = (min(left + max(0.0, place) * scale, right) for place in bar.ends)
        canvas.rule(low, top + BAR / 2, high, top + BAR / 2, TEXT, size=1.5, above=True)
        for place in (low, high):
            canvas.rule(place, top + 3, place, top + BAR - 3, TEXT, size=1.5, above=True)
        far = max(end, high)
    canvas.text(far + 6, top + BAR / 2, _format_value(bar.value, unit), size=10, ink=SOFT)
