"""Figures of long series: the scatter of duration against time, and the tails."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from tare.analysis.model import SeriesSummary
from tare.report.figures.axes import labelled, linear_ticks, log_axis
from tare.report.figures.frame import Figure, Spec, chart
from tare.report.figures.legends import LEGEND, arm_labels, colour
from tare.report.palette import PAPER, RULE, Look

NANO = 1e-9
COLUMNS = 160
"""Time columns per arm in the scatter: each shows the least and greatest of what fell into it."""

STEPS = 160
"""Steps per arm in the tail figure."""

WIDTH = 350
PANEL = 64


def scatter_figure(
    series: Mapping[str, SeriesSummary],
    looks: Mapping[str, Look],
    emulated: frozenset[str],
    *,
    name: str,
    part: str,
) -> Figure:
    """Return duration against time, one panel per arm, from interval extremes of one boot each."""
    names = arm_labels(list(series), emulated, 36)
    labels = {arm: f"{names[arm]}, block {s.envelope_block}" for arm, s in series.items()}
    rows = [
        row
        for arm, summary in series.items()
        for row in _columns(summary, labels[arm], looks[arm], arm in emulated)
    ]
    ends = [row[end] for row in rows for end in ("lo", "hi")]
    y = log_axis("hi", min(ends), max(ends), "s", "", most=4)
    y["axis"]["title"] = None
    longest = max(row["t"] for row in rows)
    ticks = linear_ticks(0, longest or 1.0, 6)
    x: Spec = {
        "field": "t",
        "type": "quantitative",
        "scale": {"domain": [0, longest or 1.0], "nice": False},
        "axis": labelled(ticks, [f"{tick:g} s" for tick in ticks], "time within the cell"),
    }
    shade = colour(labels, looks, legend=False)
    layers: list[Spec] = [
        {
            "mark": {"type": "rule", "strokeWidth": 1, "opacity": 0.55},
            "encoding": {"x": x, "y": {**y, "field": "lo"}, "y2": {"field": "hi"}, "color": shade},
        },
        {
            "mark": {"type": "point", "size": 9, "strokeWidth": 1, "opacity": 1},
            "encoding": {
                "x": x,
                "y": y,
                "stroke": shade,
                "fill": {"field": "f", "type": "nominal", "scale": None},
            },
        },
    ]
    spec = chart(WIDTH, PANEL, layers)
    inner = {key: spec.pop(key) for key in ("width", "height", "layer")}
    spec |= {
        "data": {"values": rows},
        "columns": 1,
        "spacing": 8,
        "facet": {
            "field": "arm",
            "type": "nominal",
            "sort": list(labels.values()),
            "title": None,
            "header": {"labelAnchor": "start", "labelPadding": 2, "labelLimit": WIDTH},
        },
        "spec": inner,
    }
    return Figure(
        name=name,
        title=f"{part}: duration against time",
        description="; ".join(
            f"{labels[arm]}: {s.count} samples between {s.least * NANO:.4g} s and "
            f"{s.greatest * NANO:.4g} s"
            for arm, s in series.items()
        ),
        spec=spec,
        emulated=bool(emulated & set(series)),
    )


def _columns(summary: SeriesSummary, label: str, look: Look, hollow: bool) -> list[dict[str, Any]]:
    count = len(summary.envelope_time_s)
    width = max(1, math.ceil(count / COLUMNS))
    fill = PAPER.light if hollow else look.ink.light
    rows: list[dict[str, Any]] = []
    for start in range(0, count, width):
        stop = start + width
        low = min(summary.envelope_least_ns[start:stop])
        high = max(summary.envelope_greatest_ns[start:stop])
        if high <= 0:
            continue
        rows.append(
            {
                "arm": label,
                "t": summary.envelope_time_s[start],
                "lo": max(low, 0.1) * NANO,
                "hi": high * NANO,
                "f": fill,
            }
        )
    return rows


def tail_figure(
    series: Mapping[str, SeriesSummary],
    looks: Mapping[str, Look],
    emulated: frozenset[str],
    *,
    name: str,
    part: str,
) -> Figure:
    """Return the share of samples longer than a duration, both axes logarithmic."""
    labels = arm_labels(list(series), emulated)
    rows: list[dict[str, Any]] = [
        {"arm": labels[arm], "x": x, "y": y, "e": int(arm in emulated)}
        for arm, summary in series.items()
        for x, y in exceedance(summary)
    ]
    lengths = [row["x"] for row in rows]
    x = log_axis("x", min(lengths), max(lengths), "s", "duration longer than", most=6)
    least = min(row["y"] for row in rows)
    decades = list(range(math.floor(math.log10(least)), 1))
    shown = decades[:: -max(1, math.ceil(len(decades) / 7))]
    y: Spec = {
        "field": "y",
        "type": "quantitative",
        "scale": {"type": "log", "domain": [10.0 ** decades[0], 1.0], "nice": False},
        "axis": labelled([10.0**d for d in shown], [_share(d) for d in shown], "share of samples"),
    }
    layers: list[Spec] = [
        {
            "data": {"values": rows},
            "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 2, "clip": True},
            "encoding": {
                "x": x,
                "y": y,
                "color": colour(labels, looks) | {"legend": {**LEGEND, "columns": 2}},
                "strokeDash": {
                    "field": "arm",
                    "type": "nominal",
                    "scale": {
                        "domain": list(labels.values()),
                        "range": [[5, 3] if arm in emulated else [1, 0] for arm in labels],
                    },
                },
            },
        }
    ]
    spec = chart(WIDTH, 220, layers)
    spec["view"] = {"stroke": RULE.light}
    return Figure(
        name=name,
        title=f"{part}: how many samples were longer",
        description="; ".join(
            f"{labels[arm]}: {_quantiles(summary)}" for arm, summary in series.items()
        ),
        spec=spec,
        emulated=bool(emulated & set(series)),
    )


def exceedance(summary: SeriesSummary) -> list[tuple[float, float]]:
    """Return points (seconds, share of samples at least so long), thinned to some hundred.

    Args:
        summary: Histogram bins in ascending order.
    """
    total = sum(summary.counts)
    if not total:
        return []
    below = itertools.accumulate(summary.counts, initial=0)
    points = [
        (max(low, 0.1) * NANO, 1 - before / total)
        for low, before in zip(summary.bin_low_ns, below, strict=False)
        if before < total
    ]
    points.append((max(summary.greatest, 0.1) * NANO, points[-1][1]))
    return _thinned(points)


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Keep points that differ enough in either logarithm to be seen, and both ends."""
    if len(points) <= STEPS:
        return list(points)
    first, last = points[0], points[-1]
    across = math.log(last[0] / first[0]) or 1.0
    down = math.log(first[1] / last[1]) or 1.0
    kept = [first]
    for point in points[1:-1]:
        right = math.log(point[0] / kept[-1][0]) / across
        fall = math.log(kept[-1][1] / point[1]) / down
        if right + fall >= 2 / STEPS:
            kept.append(point)
    return [*kept, last]


def _share(decade: int) -> str:
    if decade == 0:
        return "all"
    return f"1 in {10**-decade:,}" if decade > -7 else f"1 in 10^{-decade}"


def _quantiles(summary: SeriesSummary) -> str:
    return ", ".join(
        f"{100 * quantile.q:.6g} % within {quantile.value * NANO:.4g} s"
        for quantile in summary.quantiles
    )
