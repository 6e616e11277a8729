"""One metric over the blocks: each block's value as a dot, the estimate and its interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tare.analysis.formatting import format_quantity
from tare.analysis.model import ArmSummary
from tare.report.figures.axes import value_axis
from tare.report.figures.frame import Figure, Spec, chart
from tare.report.figures.legends import arm_labels
from tare.report.palette import PAPER, RULE, TEXT, Look
from tare.report.svg import TIP
from tare.report.words import metric_name

WIDTH = 430
"""Pixels of a detail figure with its labels: two fit beside each other, one on a phone."""

LABELS = 150
"""Of these, pixels for the arms' names."""

ROW = 30
APART = 2.0
"""Arms whose values are farther from the next than this factor get an axis of their own."""


def distribution_figure(
    summaries: Sequence[ArmSummary], looks: Mapping[str, Look], *, name: str, part: str
) -> Figure:
    """Return the figure of one metric's ``summaries``, one row per arm.

    Arms far from each other would squeeze one another's dots into a line, so that each cluster of
    near ones has an axis of its own.
    """
    first = summaries[0]
    metric = metric_name(first.key.metric)
    labels = arm_labels([s.arm for s in summaries], {s.arm for s in summaries if s.emulated}, 20)
    groups = clusters(summaries)
    titles = [""] * (len(groups) - 1) + [metric]
    panels = [
        _panel(group, labels, looks, title) for group, title in zip(groups, titles, strict=True)
    ]
    spec = chart(0, 0, [])
    for key in ("width", "height", "layer"):
        del spec[key]
    spec |= {"vconcat": panels, "spacing": 10, "padding": {"left": 24, "top": 4, "right": 8}}
    return Figure(
        name=name,
        title=f"{part}: {metric} of each block",
        description="; ".join(
            f"{labels[s.arm]}: {len(s.blocks)} blocks from "
            f"{format_quantity(s.least, s.unit)} to {format_quantity(s.greatest, s.unit)}"
            for s in summaries
        ),
        spec=spec,
        emulated=any(summary.emulated for summary in summaries),
        panels=len(groups),
    )


def clusters(summaries: Sequence[ArmSummary]) -> list[list[ArmSummary]]:
    """Split ``summaries`` where the next greater value is more than :data:`APART` times farther.

    Within a cluster, and between clusters by their first member, the given order is kept.
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


def _panel(
    summaries: Sequence[ArmSummary],
    labels: Mapping[str, str],
    looks: Mapping[str, Look],
    title: str,
) -> Spec:
    shown = {summary.arm: labels[summary.arm] for summary in summaries}
    dots = [dot for summary in summaries for dot in _dots(summary, labels[summary.arm], looks)]
    marks = [_mark(summary, labels[summary.arm]) for summary in summaries]
    ends = [m[end] for m in marks for end in ("lo", "hi") if m[end] is not None]
    x = value_axis("v", [d["v"] for d in dots] + ends, summaries[0].unit, title or None, most=5)
    y: Spec = {
        "field": "arm",
        "type": "nominal",
        "sort": list(shown.values()),
        "scale": {"paddingInner": 0, "paddingOuter": 0},
        "axis": {
            "title": None,
            "domain": False,
            "ticks": False,
            "minExtent": LABELS,
            "maxExtent": LABELS,
            "labelLimit": LABELS + 20,
            "labelColor": TEXT.light,
        },
    }
    jitter: Spec = {
        "field": "j",
        "type": "quantitative",
        "scale": {"domain": [0, 1], "range": [ROW * 0.2, ROW * 0.8]},
    }
    dot_layer: Spec = {
        "data": {"values": dots},
        "mark": {"type": "point", "opacity": 0.85, "size": 30, "strokeWidth": 1.3},
        "encoding": {
            "x": x,
            "y": y,
            "yOffset": jitter,
            "stroke": {"field": "c", "type": "nominal", "scale": None},
            "fill": {"field": "f", "type": "nominal", "scale": None},
            "shape": {"field": "s", "type": "nominal", "scale": None},
            "description": {"field": "d", "type": "nominal"},
        },
    }
    interval: Spec = {
        "data": {"values": [mark for mark in marks if mark["lo"] is not None]},
        "mark": {"type": "rule", "strokeWidth": 2, "color": TEXT.light},
        "encoding": {"x": {**x, "field": "lo"}, "x2": {"field": "hi"}, "y": y},
    }
    centre: Spec = {
        "data": {"values": marks},
        "mark": {"type": "tick", "thickness": 2.5, "size": 16, "color": TEXT.light},
        "encoding": {"x": x, "y": y},
    }
    return {
        "width": WIDTH - LABELS - 24,
        "height": ROW * len(summaries),
        "view": {"stroke": RULE.light},
        "layer": [dot_layer, interval, centre],
    }


def _dots(summary: ArmSummary, label: str, looks: Mapping[str, Look]) -> list[dict[str, Any]]:
    count = len(summary.blocks)
    look = looks[summary.arm]
    return [
        {
            "arm": label,
            "v": block.value,
            "j": (index + 0.5) / count,
            "c": look.ink.light,
            "f": PAPER.light if summary.emulated else look.ink.light,
            "s": look.shape,
            "d": f"{TIP}{label}, block {block.block}: "
            f"{format_quantity(block.value, summary.unit, digits=5)}",
        }
        for index, block in enumerate(summary.blocks)
    ]


def _mark(summary: ArmSummary, label: str) -> dict[str, Any]:
    interval = summary.interval
    return {
        "arm": label,
        "v": summary.centre,
        "lo": None if interval is None else _finite(interval.low, summary.least),
        "hi": None if interval is None else _finite(interval.high, summary.greatest),
    }


def _finite(end: float, instead: float) -> float:
    return end if math.isfinite(end) else instead
