"""How effects changed between two runs: a line each, more to the right being worse."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tare.analysis.model import DECLARED
from tare.report.figures.axes import log_axis
from tare.report.figures.canvas import Canvas
from tare.report.figures.frame import Spec
from tare.report.figures.palette import MARGIN, SOFT, TEXT, TIE, Look
from tare.report.figures.plot import Plot, fitted, width_of

ROW, FOOT, TOP, GAP = 22.0, 40.0, 6.0, 14.0


@dataclass(frozen=True)
class ChangeMark:
    """One line: what, of which arm, by which factor it costs more, and what it links to."""

    what: str
    arm: str
    emulated: bool
    verdict: str
    cost: tuple[float, float, float]
    to: str


def changes_figure(
    marks: Sequence[ChangeMark], looks: dict[str, Look], margin: float, width: float
) -> Spec:
    """Return the picture; at least one mark.

    Args:
        marks: The lines, in order.
        looks: How arms look.
        margin: The practical margin, drawn as a band.
        width: In pixels.
    """
    canvas, labels = Canvas(width), [f"{mark.arm}: {mark.what}" for mark in marks]
    # Next to the marks; above each if names would be cut and look alike.
    named = width * 0.42 if max(map(width_of, labels)) <= width * 0.42 else 0.0
    row = ROW if named else 2 * ROW
    plot = Plot(canvas, named + GAP, TOP, width - named - 2 * GAP, row * len(marks))
    centre = max(max(mark.cost[0], 1 / mark.cost[0]) for mark in marks)
    ends = [end for mark in marks for end in mark.cost[1:] if 0 < end < math.inf]
    # Not as far as intervals reach that hardly anything bounds.
    far = max(1 + 2 * margin, *(min(max(end, 1 / end), 1.5 * centre) for end in ends), centre)
    axis = log_axis(1 / far, far, "", most=5)
    left, right = plot.x(axis, 1 / (1 + margin)), plot.x(axis, 1 + margin)
    plot.across(axis, "cost after ÷ before")
    for number, (mark, label) in enumerate(zip(marks, labels, strict=True)):
        end = TOP + (number + 1) * row
        y = end - ROW / 2
        canvas.rect(left, end - ROW, right, end, MARGIN)
        Plot(canvas, plot.left, end - ROW, plot.width, ROW).across_grid(axis)
        canvas.rule(plot.x(axis, 1.0), end - ROW, plot.x(axis, 1.0), end, SOFT)
        canvas.text(0, end - row + ROW / 2, fitted(label, named or width), ink=TEXT)
        ink = looks[mark.arm].ink if mark.verdict in DECLARED else TIE
        ends = [min(max(end, axis.low), axis.high) for end in mark.cost[1:] if math.isfinite(end)]
        if len(ends) == 2:
            canvas.rule(plot.x(axis, ends[0]), y, plot.x(axis, ends[1]), y, ink, size=2)
        canvas.point(
            plot.x(axis, min(max(mark.cost[0], axis.low), axis.high)), y, ink,
            looks[mark.arm].shape, hollow=mark.emulated, to=mark.to,
            tip=f"{mark.what}, {mark.arm}: {mark.verdict}",
        )  # fmt: skip
    return canvas.spec(TOP + plot.height + FOOT)
