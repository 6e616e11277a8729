"""One metric over the blocks: each block's value as a dot, the estimate and its interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tare.analysis.model import ArmSummary
from tare.report.figures.axes import value_axis
from tare.report.figures.frame import Figure, Spec, chart
from tare.report.figures.legends import arm_labels, colour
from tare.report.palette import PAPER, RULE, TEXT, Look
from tare.report.svg import TIP
from tare.report.words import metric_name

WIDTH = 430
"""Pixels of a detail figure without its labels: two fit beside each other, one on a phone."""

ROW = 34


def distribution_figure(
    summaries: Sequence[ArmSummary], looks: Mapping[str, Look], *, name: str, part: str
) -> Figure:
    """Return the figure of one metric's ``summaries``, one row per arm."""
    first = summaries[0]
    emulated = {s.arm for s in summaries if s.emulated}
    labels = arm_labels([s.arm for s in summaries], emulated)
    title = f"{metric_name(first.key.metric)} of each block"
    dots = [dot for summary in summaries for dot in _dots(summary, labels[summary.arm])]
    marks = [_mark(summary, labels[summary.arm]) for summary in summaries]
    values = [dot["v"] for dot in dots] + [m[end] for m in marks for end in ("lo", "hi")]
    x = value_axis("v", values, first.unit, metric_name(first.key.metric), most=5)
    y: Spec = {
        "field": "arm",
        "type": "nominal",
        "sort": list(labels.values()),
        "axis": {
            "title": None,
            "domain": False,
            "ticks": False,
            "labelLimit": 190,
            "labelColor": TEXT.light,
        },
    }
    jitter: Spec = {
        "field": "j",
        "type": "quantitative",
        "scale": {"domain": [0, 1], "range": [ROW * 0.2, ROW * 0.8]},
    }
    shade = colour(labels, looks, legend=False)
    shape: Spec = {
        "field": "arm",
        "type": "nominal",
        "scale": {"domain": list(labels.values()), "range": [looks[a].shape for a in labels]},
        "legend": None,
    }
    fill: Spec = {"field": "f", "type": "nominal", "scale": None}
    description = {"field": "d", "type": "nominal"}
    interval: Spec = {
        "transform": [{"filter": "isValid(datum.lo)"}],
        "mark": {"type": "rule", "strokeWidth": 2, "color": TEXT.light},
        "encoding": {"x": {**x, "field": "lo"}, "x2": {"field": "hi"}, "y": y},
    }
    layers: list[Spec] = [
        {
            "data": {"values": dots},
            "mark": {"type": "point", "opacity": 0.8, "size": 34, "strokeWidth": 1.4},
            "encoding": {
                "x": x,
                "y": y,
                "yOffset": jitter,
                "stroke": shade,
                "fill": fill,
                "shape": shape,
                "description": description,
            },
        },
        {"data": {"values": marks}, "layer": [interval]},
        {
            "data": {"values": marks},
            "mark": {"type": "tick", "thickness": 2.5, "size": 18, "color": TEXT.light},
            "encoding": {"x": x, "y": y},
        },
    ]
    return Figure(
        name=name,
        title=f"{part}: {title}",
        description="; ".join(
            f"{labels[s.arm]}: {len(s.blocks)} blocks from {s.least:.4g} to {s.greatest:.4g} "
            f"{s.unit}"
            for s in summaries
        ),
        spec=_sized(layers, len(summaries)),
        emulated=bool(emulated),
    )


def _sized(layers: list[Spec], rows: int) -> Spec:
    spec = chart(WIDTH - 150, ROW * rows, layers)
    spec["view"] = {"stroke": RULE.light}
    return spec


def _dots(summary: ArmSummary, label: str) -> list[dict[str, Any]]:
    count = len(summary.blocks)
    ink = None
    return [
        {
            "arm": label,
            "v": block.value,
            "j": (index + 0.5) / count,
            "f": PAPER.light if summary.emulated else ink,
            "d": f"{TIP}{label}, block {block.block}: {block.value:.5g} {summary.unit}",
        }
        for index, block in enumerate(summary.blocks)
    ]


def _mark(summary: ArmSummary, label: str) -> dict[str, Any]:
    interval = summary.interval
    return {
        "arm": label,
        "v": summary.centre,
        "lo": None if interval is None else interval.low,
        "hi": None if interval is None else interval.high,
    }
