"""How long the phases of a job took, one bar an arm: one phase after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tare.report.figures.axes import linear_ticks
from tare.report.figures.canvas import Canvas
from tare.report.figures.frame import Figure, Spec
from tare.report.figures.palette import ARMS, AXIS, RULE, SOFT, TEXT, TIE, Ink
from tare.report.page.words import marked, short
from tare.units import format_quantity

WIDE, NARROW = 720.0, 360.0
ROW, BAR, HEAD, FOOT = 26.0, 14.0, 44.0, 30.0
LABELS = 190.0
INKS = {"map": ARMS[0], "shuffle": ARMS[1], "sort": ARMS[2], "reduce": ARMS[3]}


@dataclass(frozen=True)
class PhaseBar:
    """One arm's job in one scenario.

    Args:
        name: What it is: the step, its parameters and scenario.
        arm: The arm.
        emulated: Whether it is emulated.
        seconds: The mean time of each phase over the blocks, by its name, in their order.
        whole: The mean time of the whole step.
        ends: The interval of that; None where there is none.
        to: What it links to on the page.
    """

    name: str
    arm: str
    emulated: bool
    seconds: tuple[tuple[str, float], ...]
    whole: float
    ends: tuple[float, float] | None
    to: str = ""


def phases_figure(bars: Sequence[PhaseBar], *, name: str, title: str) -> Figure:
    """Return the bars as a figure; what is not in a phase is the start and end of the job."""
    return Figure(
        name=name,
        title=title,
        description="; ".join(map(_describe_bar, bars)),
        spec=_drawn(bars, WIDE),
        narrow=_drawn(bars, NARROW),
        emulated=any(bar.emulated for bar in bars),
    )


def _describe_bar(bar: PhaseBar) -> str:
    phases = ", ".join(f"{phase} {_s(seconds)}" for phase, seconds in bar.seconds)
    return f"{bar.name}, {marked(bar.arm, bar.emulated)}: {phases} of {_s(bar.whole)}"


def _s(seconds: float) -> str:
    return format_quantity(seconds, "s")


def _drawn(bars: Sequence[PhaseBar], width: float) -> Spec:
    canvas = Canvas(width)
    beside = width > NARROW
    left = LABELS if beside else 8.0
    most = max((max(bar.whole, (bar.ends or (0, 0))[1]) for bar in bars), default=0.0) or 1.0
    scale = (width - left - 16.0) / most
    _legend(canvas, bars)
    top, before = HEAD, ""
    for bar in bars:
        if bar.name != before:
            canvas.text(0, top + 4, short(bar.name, 60 if beside else 44), size=11, bold=True)
            top, before = top + 18, bar.name
        label = marked(bar.arm, bar.emulated)
        if beside:
            canvas.text(left - 8, top + BAR / 2, short(label, 30), ink=SOFT, align="right", size=11)
        else:
            canvas.text(left, top + 2, short(label, 40), ink=SOFT, size=10)
            top += 12
        _bar(canvas, bar, left, top, scale)
        canvas.area(0 if beside else left, top, width, top + BAR, bar.to)
        top += ROW
    _axis(canvas, left, top, most, scale)
    return canvas.spec(top + FOOT)


def _legend(canvas: Canvas, bars: Sequence[PhaseBar]) -> None:
    there = {phase for bar in bars for phase, seconds in bar.seconds if seconds > 0}
    x = 0.0
    inks: dict[str, Ink] = {phase: ink for phase, ink in INKS.items() if phase in there}
    for word, ink in {**inks, "start and end": TIE}.items():
        canvas.rect(x, 8, x + 12, 18, ink)
        canvas.text(x + 17, 13, word, size=11, ink=SOFT)
        x += 30 + 6.4 * len(word)


def _bar(canvas: Canvas, bar: PhaseBar, left: float, top: float, scale: float) -> None:
    x = left
    inside = sum(seconds for _, seconds in bar.seconds)
    parts = [*bar.seconds, ("", max(0.0, bar.whole - inside))]
    for phase, seconds in parts:
        end = x + seconds * scale
        if end - x > 0.3:
            canvas.rect(x, top, end, top + BAR, INKS.get(phase, TIE))
        x = end
    if bar.ends is not None:
        low, high = (left + max(0.0, end) * scale for end in bar.ends)
        canvas.rule(low, top + BAR / 2, high, top + BAR / 2, TEXT, size=1.5)
        for place in (low, high):
            canvas.rule(place, top + 3, place, top + BAR - 3, TEXT, size=1.5)


def _axis(canvas: Canvas, left: float, top: float, most: float, scale: float) -> None:
    canvas.rule(left, top, left + most * scale, top, AXIS)
    for tick in linear_ticks(0.0, most, 5):
        x = left + tick * scale
        canvas.rule(x, top, x, top + 4, RULE)
        canvas.text(x, top + 12, _s(tick) if tick else "0 s", size=10, ink=SOFT, align="center")
