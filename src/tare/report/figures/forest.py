"""Paint rows of costs and their intervals on a logarithmic axis, or on two side by side."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tare.analysis.model import DECLARED, Comparison, Effect
from tare.report.figures.canvas import Canvas
from tare.report.figures.frame import Spec, ratio_ticks, times
from tare.report.figures.palette import (
    AXIS,
    BASELINE,
    MARGIN,
    NOISE,
    RULE,
    SOFT,
    TIE,
    ArmStyle,
    Ink,
)
from tare.report.figures.plot import apart, fitted, width_of
from tare.report.page.links import anchor_of
from tare.report.page.words import (
    EMULATED,
    cost,
    cost_interval,
    marked,
    ratio,
    ratio_interval,
    short,
)

FAR = 2.5
"""If the whole range is wider than this factor, a close-up is drawn next to it."""

NEAR = 1.3
"""The close-up shows costs within this factor of 1."""

SEPARATOR = " · "
"""Separates a workload from its metric in a label."""

ROOM_FOR_TWO = 270
"""The least width, in pixels, of a plot with a close-up next to the whole range."""

LABELS = 300
"""The greatest width, in pixels, of a compact figure's labels; at most half of the figure."""

TWO_LINES = 34
"""The height of a label on two lines, in pixels."""


@dataclass(frozen=True)
class Group:
    """The effects of one headline metric, one per arm."""

    label: str
    effects: tuple[Effect, ...]

    @property
    def floor(self) -> float:
        """The relative difference that the A/A pair cannot exclude here; 0 without a pair."""
        return max(effect.noise_floor or 0.0 for effect in self.effects)


@dataclass(frozen=True)
class CostPanel:
    """A range of the cost axis, as logarithms of costs, drawn between two pixel columns."""

    left: float
    right: float
    low: float
    high: float
    title: str

    def x(self, factor: float) -> float:
        """Return the pixel column of a cost, limited to the panel."""
        share = (math.log(max(factor, 1e-300)) - self.low) / (self.high - self.low)
        return self.left + min(max(share, 0.0), 1.0) * (self.right - self.left)

    def beyond(self, factor: float) -> int:
        """Return −1 or 1 when a cost is left or right of the panel, else 0."""
        place = math.log(max(factor, 1e-300)) if math.isfinite(factor) else math.inf
        return (place > self.high + 1e-9) - (place < self.low - 1e-9)


@dataclass(frozen=True)
class ForestLayout:
    """The layout of a figure: widths, heights and columns in pixels."""

    width: float
    plot: tuple[float, float]
    row: float
    header: float
    stacked: bool
    label: int
    compact: bool = False
    numbers: bool = True
    font: float = 12
    strip: float = 25
    """The distance from the top of a stacked row to its mark, in pixels."""


WIDE = ForestLayout(940, (236, 668), 23, 30, stacked=False, label=31)
NARROW = ForestLayout(358, (12, 346), 41, 34, stacked=True, label=24)
DETAIL = ForestLayout(430, (156, 418), 17, 25, stacked=False, label=22, numbers=False, font=11)


def _panels(groups: Sequence[Group], margin: float, layout: ForestLayout) -> list[CostPanel]:
    known = [effect for group in groups for effect in group.effects]
    places = _logs(cost(effect) for effect in known)
    ends = _logs(end for effect in known for end in cost_interval(effect) or ())
    least = math.log1p(max([margin, *(group.floor for group in groups)]))
    # One interval that is almost unbounded must not squeeze all others into a line.
    reach = max(1.5 * (max(places) - min(places)), math.log(NEAR))
    low = max(min([*places, *ends, -1.5 * least]), min([*places, -1.5 * least]) - reach)
    high = min(max([*places, *ends, 1.5 * least]), max([*places, 1.5 * least]) + reach)
    spare = 0.06 * (high - low)
    low, high = low - spare, high + spare
    left, right = layout.plot
    if high - low < math.log(FAR) or layout.stacked or right - left < ROOM_FOR_TWO:
        return [CostPanel(left, right, low, high, "")]
    near = [abs(end) for end in (*places, *ends) if abs(end) <= math.log(NEAR)]
    reach = min(max([*near, 2 * least]) * 1.15, math.log(NEAR))
    gap = 28.0
    middle = left + (right - left) * 0.46
    return [
        CostPanel(left, middle, -reach, reach, "close to even"),
        CostPanel(middle + gap, right, low, high, "whole range"),
    ]


def _logs(values: Iterable[float | None]) -> list[float]:
    return [math.log(value) for value in values if value is not None and 0 < value < math.inf]


def paint(
    comparison: Comparison,
    groups: Sequence[Group],
    looks: Mapping[str, ArmStyle],
    layout: ForestLayout,
) -> Spec:
    """Paint one row per effect, with its numbers if ``layout`` has room for them."""
    canvas = Canvas(layout.width)
    panels = _panels(groups, comparison.margin, layout)
    top = 46.0 if len(panels) > 1 else 28.0
    y = top
    places: list[tuple[Group, float, float]] = []
    for group in groups:
        start = y
        y += layout.header + layout.row * len(group.effects)
        places.append((group, start, y))
    bottom = y + 6
    for panel in panels:
        _grid(canvas, panel, comparison, places, top, bottom, layout)
    for group, start, _ in places:
        canvas.text(
            0 if layout.stacked else 4,
            start + layout.header * 0.6,
            short(group.label, 48 if layout.stacked else 60),
            bold=True,
            size=layout.font + 0.5,
        )
        for index, effect in enumerate(group.effects):
            row_top = start + layout.header + index * layout.row
            _row(canvas, panels, effect, looks, row_top, layout)
    return canvas.spec(bottom + 44)


def _grid(
    canvas: Canvas,
    panel: CostPanel,
    comparison: Comparison,
    places: Sequence[tuple[Group, float, float]],
    top: float,
    bottom: float,
    layout: ForestLayout,
) -> None:
    strips = _strips(places, top, bottom, layout)
    for low, high in strips:
        _shade(canvas, panel, comparison.margin, low, high, MARGIN)
    for group, start, end in places:
        if group.floor:
            inner = start if layout.compact else start + layout.header
            spans = [strip for strip in strips if inner <= strip[0] < end] or [(inner, end)]
            for low, high in spans:
                _shade(canvas, panel, group.floor, low, high, NOISE)
    ticks = ratio_ticks(math.exp(panel.low), math.exp(panel.high), 6 if layout.stacked else 5)
    for tick in ticks:
        x = panel.x(tick)
        for low, high in strips:
            canvas.rule(x, low, x, high, AXIS if tick == 1 else RULE)
    first_1 = sorted(ticks, key=lambda tick: tick != 1)
    for x, label in apart((panel.x(tick), times(tick)) for tick in first_1):
        canvas.text(x, bottom + 14, label, ink=SOFT, align="center")
        canvas.text(x, top - 11, label, ink=SOFT, align="center")
    middle = (panel.left + panel.right) / 2
    if panel.title:
        canvas.text(middle, top - 32, panel.title, ink=SOFT, align="center")
    arrow = (
        "◂ cheaper · costlier ▸"
        if panel.right - panel.left < 260
        else (f"◂ cheaper than {short(comparison.baseline, 16)} · costlier ▸")
    )
    canvas.text(middle, bottom + 34, arrow, ink=SOFT, align="center")


def _strips(
    places: Sequence[tuple[Group, float, float]], top: float, bottom: float, layout: ForestLayout
) -> list[tuple[float, float]]:
    """Return the vertical ranges in which the axis is drawn; stacked rows leave out the text."""
    if not layout.stacked or layout.compact:
        return [(top, bottom)]
    return [
        (middle - 9, middle + 9)
        for group, start, _ in places
        for row in range(len(group.effects))
        for middle in [start + layout.header + row * layout.row + layout.strip]
    ]


def _shade(
    canvas: Canvas, panel: CostPanel, share: float, low: float, high: float, ink: Ink
) -> None:
    canvas.rect(panel.x(1 / (1 + share)), low, panel.x(1 + share), high, ink)


def _row(
    canvas: Canvas,
    panels: Sequence[CostPanel],
    effect: Effect,
    looks: Mapping[str, ArmStyle],
    top: float,
    layout: ForestLayout,
) -> None:
    ink, look = _ink(effect, looks), looks[effect.arm]
    factor = cost(effect) or math.nan
    interval = cost_interval(effect)
    numbers = (
        ratio(factor) if interval is None else f"{ratio(factor)}  ({ratio_interval(interval)})"
    )
    if layout.stacked:
        text_y, mark_y = top + 9, top + layout.strip
        canvas.text(12, text_y, _label(effect, layout.label))
        canvas.text(layout.width, text_y, numbers, align="right", ink=SOFT)
    else:
        text_y = mark_y = top + layout.row / 2
        label = _label(effect, layout.label)
        canvas.text(layout.plot[0] - 14, text_y, label, align="right", size=layout.font)
        if layout.numbers:
            canvas.text(layout.plot[1] + 14, text_y, numbers)
            canvas.text(layout.width, text_y, effect.verdict, align="right", ink=SOFT)
    for panel in panels:
        _mark(canvas, panel, effect, ink, look, mark_y, size=70 if layout.numbers else 55)


def _label(effect: Effect, most: int) -> str:
    if not effect.emulated:
        return short(effect.arm, most)
    return f"{short(effect.arm, most - len(EMULATED) - 3)} ({EMULATED})"


def _ink(effect: Effect, looks: Mapping[str, ArmStyle]) -> Ink:
    return looks[effect.arm].ink if effect.verdict in DECLARED else TIE


def _mark(
    canvas: Canvas,
    panel: CostPanel,
    effect: Effect,
    ink: Ink,
    look: ArmStyle,
    y: float,
    size: float = 70,
) -> None:
    factor = cost(effect) or math.nan
    interval = cost_interval(effect)
    tip = (
        f"{marked(effect.arm, effect.emulated)}: {ratio(factor)} "
        f"({ratio_interval(interval)}), {effect.verdict}"
    )
    to = anchor_of(effect.key, effect.arm)
    if interval is not None and not panel.beyond(interval[0]) == panel.beyond(interval[1]) != 0:
        low, high = panel.x(interval[0]), panel.x(interval[1])
        canvas.rule(low, y, high, y, ink, size=2, dashed=effect.emulated)
        for end, x in zip(interval, (low, high), strict=True):
            if not panel.beyond(end) and size >= 50:
                canvas.rule(x, y - 4, x, y + 4, ink, size=2)
    outside = panel.beyond(factor)
    if outside:
        edge = panel.right - 5 if outside > 0 else panel.left + 5
        shape = "triangle-right" if outside > 0 else "triangle-left"
        canvas.point(edge, y, ink, shape, hollow=effect.emulated, size=45, tip=tip, to=to)
    else:
        canvas.point(
            panel.x(factor), y, ink, look.shape, hollow=effect.emulated, size=size, tip=tip, to=to
        )


def paint_compact(
    comparison: Comparison,
    groups: Sequence[Group],
    looks: Mapping[str, ArmStyle],
    layout: ForestLayout,
) -> Spec:
    """Paint a figure in which the arms of a workload share one row, and a legend names them."""
    layout = ForestLayout(
        layout.width,
        (12, layout.width - 12)
        if layout.stacked
        else (min(LABELS, layout.width / 2), layout.width - 12),
        8,
        20 if layout.stacked else 8,
        layout.stacked,
        layout.label,
        compact=True,
    )
    canvas = Canvas(layout.width)
    y = _legend(canvas, groups, looks, layout) + 28
    panels = _panels(groups, comparison.margin, layout)
    y += 18 if len(panels) > 1 else 0
    top = y
    places = []
    for group in groups:
        start = y
        y += layout.header + max(layout.row * max(2, len(group.effects)) + 4, TWO_LINES)
        places.append((group, start, y))
    for panel in panels:
        _grid(canvas, panel, comparison, places, top, y + 4, layout)
    for group, start, end in places:
        canvas.rule(0, end, layout.width, end, RULE)
        if layout.stacked:
            canvas.text(0, start + 11, short(group.label, 54), size=12)
        else:
            _write_row_label(canvas, layout.plot[0] - 14, (start + end) / 2, group.label)
        for index, effect in enumerate(group.effects):
            mark_y = start + layout.header + (index + 0.5) * layout.row
            for panel in panels:
                look = looks[effect.arm]
                _mark(canvas, panel, effect, _ink(effect, looks), look, mark_y, size=36)
    return canvas.spec(y + 48)


def _write_row_label(canvas: Canvas, right: float, middle: float, label: str) -> None:
    """Write a row's label to its left, on two lines if it does not fit on one."""
    what, _, metric = label.rpartition(SEPARATOR)
    if width_of(label) <= right or not what:
        canvas.text(right, middle, fitted(label, right), align="right")
        return
    canvas.text(right, middle - 7, fitted(what, right), align="right")
    canvas.text(right, middle + 7, fitted(metric, right), align="right", ink=SOFT)


def _legend(
    canvas: Canvas, groups: Sequence[Group], looks: Mapping[str, ArmStyle], layout: ForestLayout
) -> float:
    shown = {effect.arm: effect.emulated for group in groups for effect in group.effects}
    x, y = 8.0, 12.0
    entries = [(arm, emulated, looks[arm].ink, looks[arm].shape) for arm, emulated in shown.items()]
    for arm, emulated, ink, shape in [*entries, ("no difference declared", False, TIE, "circle")]:
        text = f"{short(arm, 30)} ({EMULATED})" if emulated else short(arm, 40)
        width = 30 + 7.2 * len(text)
        if x + width > layout.width and x > 8:
            x, y = 8.0, y + 20
        canvas.point(x, y, ink if arm != "baseline" else BASELINE, shape, hollow=emulated, size=60)
        canvas.text(x + 12, y, text)
        x += width
    return y + 12
