"""Use of CPU time: for each arm a bar of the host's CPU time, and a bar of the machine's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tare.report.figures.canvas import Canvas
from tare.report.figures.frame import Figure, Spec
from tare.report.figures.palette import ARMS, NOISE, RULE, TIE, Ink
from tare.report.page.words import short
from tare.units import format_quantity

WIDE, NARROW = 720.0, 360.0
BAR, LINE, GAP, KEY = 20.0, 15.0, 12.0, 10.0
LEAST = 0.005
"""Shares below this are not drawn; the table lists them."""
MOST_ARMS = 8
"""The most arms in one figure; further arms are in the next figure."""
TITLE = "Where the time goes while the proxy is full"


GREYS: Mapping[str, Ink] = {"idle": NOISE, "unowned": TIE}
"""The greys of time that has no owner."""


@dataclass(frozen=True)
class BarPart:
    """The time of one owner: its share of the bar, and seconds and cycles per request.

    Args:
        label: The text in the figure; by default the share and the time per request.
    """

    who: str
    share: float
    per_request_s: float = 0.0
    cycles: float | None = None
    label: str = ""


@dataclass(frozen=True)
class TimeBar:
    """One bar: its name, its parts, its link target on the page, and further notes."""

    name: str
    emulated: bool
    parts: tuple[BarPart, ...]
    to: str = ""
    more: tuple[str, ...] = ()


def time_figures(
    name: str, arms: Sequence[Sequence[TimeBar]], where: str = "", title: str = TITLE
) -> tuple[Figure, ...]:
    """Return figures with the bars of all arms, some arms in each; an owner has one colour.

    Args:
        name: The name of the first figure. The others append a number to it.
        arms: The bars of each arm, at least one.
        where: A text to append to the title.
        title: The title.
    """
    arms = [[_folded(bar) for bar in bars] for bars in arms]
    inks = _inks([bar for bars in arms for bar in bars])
    parts = [arms[first : first + MOST_ARMS] for first in range(0, len(arms), MOST_ARMS)]
    figures = []
    for number, part in enumerate(parts, 1):
        bars = [bar for own in part for bar in own]
        figures.append(
            Figure(
                name=name if number == 1 else f"{name}-{number}",
                title=f"{title}{where}{f' ({number} of {len(parts)})' * (len(parts) > 1)}",
                description="; ".join(map(_describe_bar, bars)),
                spec=_drawn(bars, WIDE, inks),
                narrow=_drawn(bars, NARROW, inks),
                emulated=any(bar.emulated for bar in bars),
                panels=len(bars),
            )
        )
    return tuple(figures)


def _describe_bar(bar: TimeBar) -> str:
    shares = (f"{part.who} {100 * part.share:.0f} %" for part in bar.parts)
    return f"{bar.name}: {', '.join((*shares, *bar.more))}"


def _label(part: BarPart) -> str:
    if part.label:
        return part.label
    each = format_quantity(part.per_request_s, "s")
    if part.cycles is not None:
        each += f" or {part.cycles:,.0f} cycles"
    return f"{100 * part.share:.1f} %, {each} a request: {part.who}"


def _folded(bar: TimeBar) -> TimeBar:
    """Return a bar with at most as many owners as colours; the smallest become one part."""
    owned = [part for part in bar.parts if part.share >= LEAST and part.who not in GREYS]
    if len(owned) <= len(ARMS):
        return bar
    small = sorted(owned, key=lambda part: part.share)[: len(owned) - len(ARMS) + 1]
    cycles = [part.cycles for part in small if part.cycles is not None]
    rest = BarPart(
        f"{len(small)} smaller owners",
        sum(part.share for part in small),
        sum(part.per_request_s for part in small),
        sum(cycles) if len(cycles) == len(small) else None,
    )
    return replace(bar, parts=(*(part for part in bar.parts if part not in small), rest))


def _inks(bars: Sequence[TimeBar]) -> dict[str, Ink]:
    """Give each owner a colour that differs from those of all owners in the same bar."""
    found: dict[str, Ink] = dict(GREYS)
    shown = [dict.fromkeys(p.who for p in bar.parts if p.share >= LEAST) for bar in bars]
    for who in dict.fromkeys(who for owners in shown for who in owners):
        if who in found:
            continue
        with_it = [owners for owners in shown if who in owners]
        taken = {found[other] for owners in with_it for other in owners if other in found}
        free = [ink for ink in ARMS if ink not in taken]
        unused = [ink for ink in free if ink not in found.values()]
        # Owners that share bars with many others may have no colour left. They share one.
        found[who] = next(iter([*unused, *free]), ARMS[len(found) % len(ARMS)])
    return found


def _drawn(bars: Sequence[TimeBar], width: float, inks: Mapping[str, Ink]) -> Spec:
    canvas, top = Canvas(width), 8.0
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
            canvas.text(KEY + 8, top, short(_label(part), int(width / 6.0)), size=11)
            top += LINE
        for line in bar.more:
            canvas.text(KEY + 8, top, short(line, int(width / 6.0)), size=11)
            top += LINE
        canvas.area(0, begins - LINE, width, top - 2, bar.to)
        canvas.rule(0, top - 2, width, top - 2, RULE)
        top += GAP
    return canvas.spec(top)
