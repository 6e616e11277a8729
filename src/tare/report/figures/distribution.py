"""One metric over the blocks: each block's value as a dot, the estimate and its interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from tare.analysis.model import ArmSummary, BlockValue
from tare.report.figures.axes import Axis, value_axis
from tare.report.figures.canvas import Canvas
from tare.report.figures.frame import Figure
from tare.report.figures.palette import TEXT, ArmStyle
from tare.report.figures.plot import Plot, arm_labels, fitted, width_of
from tare.report.page.links import block_target
from tare.report.page.words import metric_name
from tare.units import format_quantity

LEFT = 171
"""The width of the arms' names, in pixels."""
ACROSS = 256
"""The width of the axis, in pixels: two figures fit side by side, one on a phone."""

ROW = 30
BELOW = 37
"""The height of an axis with its title, in pixels."""
BELOW_UNTITLED = 20
APART_BY = 10
"""Pixels between one axis and the next row."""
APART = 2.0
"""Arms whose values differ from the next by more than this factor get an axis of their own."""


def distribution_figure(
    summaries: Sequence[ArmSummary],
    looks: Mapping[str, ArmStyle],
    *,
    name: str,
    part: str,
    links: Mapping[str, str] | None = None,
    runs: Sequence[str] = (),
) -> Figure:
    """Return the figure of one metric's ``summaries``, one row per arm.

    If arms were far apart on one axis, each arm's dots would merge into a line. Each cluster of
    arms
    with similar values therefore has its own axis.

    Args:
        summaries: The summaries, one for each arm.
        looks: The style of each arm.
        name: The figure's name.
        part: The name of the workload and its parameters.
        links: By arm the effect in which a dot links to its block, with its cells and logs.
        runs: The identities of the runs on the page, in its order.
    """
    first = summaries[0]
    metric = metric_name(first.key.metric)
    labels = arm_labels([s.arm for s in summaries], {s.arm for s in summaries if s.emulated}, 20)
    groups = clusters(summaries)
    titles = [""] * (len(groups) - 1) + [metric]
    axes = [_axis(group) for group in groups]
    canvas = Canvas(max(LEFT + ACROSS + 1, *(_reach(axis) for axis in axes)))
    places = {run: place for place, run in enumerate(runs)}

    def to(arm: str, block: BlockValue) -> str:
        return block_target((links or {}).get(arm, ""), places.get(block.run, 0), block.block)

    top = 1.0
    for group, axis, title in zip(groups, axes, titles, strict=True):
        plot = Plot(canvas, LEFT, top, ACROSS, ROW * len(group))
        _draw(plot, group, axis, labels, looks, title, to)
        top += plot.height + (BELOW if title else BELOW_UNTITLED + APART_BY)
    return Figure(
        name=name,
        title=f"{part}: {metric} of each block",
        description="; ".join(
            f"{labels[s.arm]}: {len(s.blocks)} blocks from "
            f"{format_quantity(s.least, s.unit)} to {format_quantity(s.greatest, s.unit)}"
            for s in summaries
        ),
        spec=canvas.spec(top),
        emulated=any(summary.emulated for summary in summaries),
        panels=len(groups),
    )


def clusters(summaries: Sequence[ArmSummary]) -> list[list[ArmSummary]]:
    """Split ``summaries`` where the next value is greater by more than a factor of :data:`APART`.

    Both the clusters, by their first member, and the members of each keep the given order.
    """
    if any(summary.least <= 0 for summary in summaries):
        return [list(summaries)]
    found: list[list[ArmSummary]] = []
    for summary in sorted(summaries, key=lambda s: s.least):
        reach = max((s.greatest for s in found[-1]), default=0.0) if found else 0.0
        if found and summary.least <= APART * reach:
            found[-1].append(summary)
        else:
            found.append([summary])
    order = {id(summary): place for place, summary in enumerate(summaries)}
    for group in found:
        group.sort(key=lambda s: order[id(s)])
    return sorted(found, key=lambda group: order[id(group[0])])


def _ends(summary: ArmSummary) -> tuple[float, float] | None:
    """Return the ends of the interval; an open end becomes the extreme value."""
    interval = summary.interval
    if interval is None:
        return None
    low = interval.low if math.isfinite(interval.low) else summary.least
    return low, interval.high if math.isfinite(interval.high) else summary.greatest


def _axis(summaries: Sequence[ArmSummary]) -> Axis:
    values = [block.value for summary in summaries for block in summary.blocks]
    ends = [end for summary in summaries for end in _ends(summary) or ()]
    return value_axis(values + ends, summaries[0].unit, most=5)


def _reach(axis: Axis) -> float:
    """Return the right end of the axis' last label, in pixels."""
    if not axis.ticks:
        return 0.0
    return LEFT + axis.share(axis.ticks[-1]) * ACROSS + width_of(axis.labels[-1]) / 2


def _draw(
    plot: Plot,
    summaries: Sequence[ArmSummary],
    axis: Axis,
    labels: Mapping[str, str],
    looks: Mapping[str, ArmStyle],
    title: str,
    to: Callable[[str, BlockValue], str],
) -> None:
    canvas = plot.canvas
    plot.frame()
    plot.across_grid(axis)
    plot.across(axis, title)
    for place, summary in enumerate(summaries):
        top = plot.top + place * ROW
        label = labels[summary.arm]
        canvas.text(LEFT - 4.5, top + ROW / 2, fitted(label, LEFT), align="right")
        look, count = looks[summary.arm], len(summary.blocks)
        for index, block in enumerate(summary.blocks):
            value = format_quantity(block.value, summary.unit, digits=5)
            canvas.point(
                plot.x(axis, block.value),
                top + ROW * (0.2 + 0.6 * (index + 0.5) / count),
                look.ink,
                look.shape,
                hollow=summary.emulated,
                size=30,
                line=1.3,
                opacity=0.85,
                tip=f"{label}, block {block.block}: {value}",
                to=to(summary.arm, block),
            )
        middle = top + ROW / 2
        ends = _ends(summary)
        if ends is not None:
            low, high = (plot.x(axis, end) for end in ends)
            canvas.rule(low, middle, high, middle, TEXT, size=2, above=True)
        centre = plot.x(axis, summary.centre)
        canvas.rule(centre, middle - 8, centre, middle + 8, TEXT, size=2.5, above=True, opacity=0.7)
