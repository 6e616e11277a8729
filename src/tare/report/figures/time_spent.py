"""Where the time went: for each arm a bar of the host's CPU time, and one of the machine's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tare.analysis.formatting import format_quantity
from tare.report.figures.canvas import Canvas
from tare.report.figures.frame import Figure, Spec
from tare.report.palette import ARMS, NOISE, RULE, TIE, Ink
from tare.report.words import short

WIDE, NARROW = 720.0, 360.0
BAR, LINE, GAP, KEY = 20.0, 15.0, 12.0, 10.0
LEAST = 0.005
"""Shares below this are not drawn; the table has them."""


@dataclass(frozen=True)
class Part:
    """CPU time of one owner: its share of the bar, and seconds and cycles per request."""

    who: str
    share: float
    per_request_s: float
    cycles: float | None = None


@dataclass(frozen=True)
class Bar:
    """One bar: what it is of, its parts, and what it leads to on the page."""

    name: str
    emulated: bool
    parts: tuple[Part, ...]
    to: str = ""


def time_figure(name: str, bars: Sequence[Bar]) -> Figure:
    """Return the figure; at least one bar."""
    return Figure(
        name=name,
        title="Where the time goes while the proxy is full",
        description="; ".join(
            f"{bar.name}: " + ", ".join(f"{p.who} {100 * p.share:.0f} %" for p in bar.parts)
            for bar in bars
        ),
        spec=_drawn(bars, WIDE),
        narrow=_drawn(bars, NARROW),
        emulated=any(bar.emulated for bar in bars),
        panels=len(bars),
    )


def _inks(bars: Sequence[Bar]) -> dict[str, Ink]:
    found: dict[str, Ink] = {"idle": NOISE, "unowned": TIE}
    for bar in bars:
        for part in bar.parts:
            if part.who not in found:
                found[part.who] = ARMS[(len(found) - 2) % len(ARMS)]
    return found


def _drawn(bars: Sequence[Bar], width: float) -> Spec:
    canvas, inks, top = Canvas(width), _inks(bars), 8.0
    for bar in bars:
        canvas.text(0, top, short(bar.name, int(width / 6.4)), bold=True, size=12)
        top += LINE
        left, begins = 0.0, top
        shown = [part for part in bar.parts if part.share >= LEAST]
        for part in shown:
            right = left + part.share * width
            canvas.rect(left, top, right, top + BAR, inks[part.who])
            left = right
        top += BAR + LINE / 2 + 2
        for part in shown:
            canvas.rect(2, top - KEY / 2, 2 + KEY, top + KEY / 2, inks[part.who])
            each = format_quantity(part.per_request_s, "s")
            if part.cycles is not None:
                each += f" or {part.cycles:,.0f} cycles"
            told = f"{100 * part.share:.1f} %, {each} a request: {part.who}"
            canvas.text(KEY + 8, top, short(told, int(width / 6.0)), size=11)
            top += LINE
        canvas.area(0, begins - LINE, width, top - 2, bar.to)
        canvas.rule(0, top - 2, width, top - 2, RULE)
        top += GAP
    return canvas.spec(top)
