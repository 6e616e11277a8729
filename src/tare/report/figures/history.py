"""Effects over many runs: a panel for each, with what it was between two changes."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from itertools import pairwise

from tare.analysis.runs.history import EffectSeries, History
from tare.report.figures.axes import log_axis
from tare.report.figures.canvas import Canvas
from tare.report.figures.frame import Spec
from tare.report.figures.palette import SOFT, TEXT, TIE, ArmStyle, looks
from tare.report.figures.plot import Plot, fitted
from tare.report.page.words import Names, Part, marked, metric_name, ratio, ratio_interval

WIDTH, LEFT, RIGHT = 720.0, 64.0, 12.0
HEADING, PANEL, BETWEEN, FOOT = 40.0, 72.0, 40.0, 24.0
LEAST_FACTOR = 1.02
"""Panels span at least this factor, so that noise of a per mille does not look like a change."""


def history_figure(history: History) -> Spec:
    """Return a drawing of effects over runs, in order of their start, one scale for each effect.

    Args:
        history: The effects over the runs.
    """
    canvas = Canvas(WIDTH)
    names = Names(Part.of(line.key) for line in history.lines)
    look = looks(tuple(dict.fromkeys(line.arm for line in history.lines)), None)
    place = {run: number for number, run in enumerate(history.runs)}
    title = f"{len(history.runs)} runs, each effect against {history.baseline}"
    canvas.text(0, 8, fitted(title, WIDTH), bold=True, size=14)
    canvas.text(
        0,
        26,
        "Dashed: where an effect changed; thick at its foot: where it may have, "
        f"{100 * history.confidence:.4g} %. Bars: the mean between two changes.",
        ink=SOFT,
    )
    top = HEADING
    for line in history.lines:
        what = f"{names.name(Part.of(line.key))} · {metric_name(line.key.metric)}"
        heading = f"{what}, {marked(line.arm, line.emulated)}{_describe_changes(line)}"
        canvas.text(0, top + 8, fitted(heading, WIDTH), ink=TEXT)
        _panel(Plot(canvas, LEFT, top + 20, WIDTH - LEFT - RIGHT, PANEL), line, place, look)
        top += 20 + PANEL + BETWEEN - 20
    first, last = history.runs[0], history.runs[-1]
    canvas.text(LEFT, top, fitted(first, 300), ink=SOFT, size=11)
    canvas.text(WIDTH - RIGHT, top, fitted(last, 300), ink=SOFT, size=11, align="right")
    return canvas.spec(top + FOOT)


def _describe_changes(line: EffectSeries) -> str:
    if not line.turns:
        return ": no change found"
    days = (
        f"{ratio(turn.change)} ({ratio_interval((turn.low, turn.high))}) since "
        f"{time.strftime('%Y-%m-%d', time.gmtime(turn.started_at))}"
        for turn in line.turns
    )
    return ": " + "; ".join(days)


def _panel(
    plot: Plot, line: EffectSeries, place: dict[str, int], look: dict[str, ArmStyle]
) -> None:
    low, high = min(line.effects), max(line.effects)
    if high / low < LEAST_FACTOR:
        middle = math.sqrt(low * high)
        low, high = middle / math.sqrt(LEAST_FACTOR), middle * math.sqrt(LEAST_FACTOR)
    axis = log_axis(low, high, "", most=4)
    plot.frame()
    plot.up(axis)
    room = plot.width / max(1, len(place))
    ink, canvas = look[line.arm].ink, plot.canvas

    def across(run: str) -> float:
        return plot.left + (place[run] + 0.5) * room

    starts = [0, *(line.runs.index(turn.after) for turn in line.turns), len(line.runs)]
    for begin, end in pairwise(starts):
        mean = math.exp(_mean([math.log(effect) for effect in line.effects[begin:end]]))
        y = plot.y(axis, mean)
        left, right = across(line.runs[begin]) - room / 2, across(line.runs[end - 1]) + room / 2
        canvas.rule(left, y, right, y, TIE, size=3, opacity=0.6)
        if begin:
            canvas.rule(left, plot.top, left, plot.top + plot.height, TEXT, dashed=True)
    for turn in line.turns:
        first, last = (across(run) - room / 2 for run in (turn.earliest, turn.latest))
        foot = plot.top + plot.height - 2
        canvas.rule(first, foot, last, foot, TEXT, size=4, opacity=0.5)
    for run, effect in zip(line.runs, line.effects, strict=True):
        shape, tip = look[line.arm].shape, f"{run}: {ratio(effect)}"
        canvas.point(
            across(run), plot.y(axis, effect), ink, shape, hollow=line.emulated, size=36, tip=tip
        )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
