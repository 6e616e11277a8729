"""The first screen's figure: the cost of each arm against the baseline, with intervals.

The figure has one row per workload and arm on a logarithmic axis of cost (1 = even, 2 = twice), and
right is always worse. The practical margin is shaded, as is the difference that the A/A pair cannot
exclude. Equivalent and undecided effects are grey. Emulated arms are hollow, dashed and marked so.
When one arm is far away, a close-up of the range around 1 is next to the whole range.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from tare.analysis.model import Comparison, Effect, Key
from tare.report.figures.forest import DETAIL, NARROW, SEPARATOR, WIDE, Group, paint, paint_compact
from tare.report.figures.frame import Figure
from tare.report.figures.palette import ArmStyle
from tare.report.page.words import (
    Names,
    Part,
    cost,
    marked,
    metric_name,
    percent,
    ratio,
    short,
)

CROWDED = 56
"""With more effects than this, a workload's arms share one row, without numbers."""
MOST_ROWS = 50
"""With more metrics than this, each workload keeps its first headline; the sections have all."""


def overhead_figure(
    comparison: Comparison, looks: Mapping[str, ArmStyle], name: str = "overhead"
) -> Figure | None:
    """Return the figure of the headline effects; None when none can be drawn.

    Effects on a difference scale have no ratio and are left to the tables.
    """
    parts = (Part.of(summary.key) for summary in comparison.summaries)
    names = Names(parts, comparison.shown_as, short=True)
    groups = _groups(
        overview(comparison),
        lambda key: f"{names.name(Part.of(key))}{SEPARATOR}{metric_name(key.metric)}",
    )
    if not groups:
        return None
    count = sum(len(group.effects) for group in groups)
    painter = paint_compact if count > CROWDED else paint
    return Figure(
        name=name,
        title=f"Cost against {short(comparison.against, 40)}",
        description=_describe(comparison, groups),
        spec=painter(comparison, groups, looks, WIDE),
        narrow=painter(comparison, groups, looks, NARROW),
        emulated=_emulated(groups),
    )


def overview(comparison: Comparison) -> tuple[Effect, ...]:
    """Return the effects that the figure shows: all headlines, or each workload's first if many."""
    drawn = tuple(effect for effect in comparison.headlines if cost(effect) is not None)
    if len({effect.key for effect in drawn}) <= MOST_ROWS:
        return drawn
    first: dict[Part, Key] = {}
    for effect in drawn:
        first.setdefault(Part.of(effect.key), effect.key)
    return tuple(effect for effect in drawn if first[Part.of(effect.key)] == effect.key)


def metrics_figure(
    comparison: Comparison,
    looks: Mapping[str, ArmStyle],
    effects: Sequence[Effect],
    *,
    name: str,
    part: str,
) -> Figure | None:
    """Return the costs of one workload's metrics, for its section; None when there is no ratio.

    Metrics without a better direction have no cost, so they are only in the tables.
    """
    judged = [effect for effect in effects if effect.better != "neither"]
    groups = _groups(judged, lambda key: metric_name(key.metric))
    if not groups:
        return None
    count = sum(len(group.effects) for group in groups)
    painter = paint_compact if count > CROWDED // 2 else paint
    return Figure(
        name=name,
        title=f"{part}: cost by metric, against {short(comparison.against, 40)}",
        description=_describe(comparison, groups),
        spec=painter(comparison, groups, looks, DETAIL),
        emulated=_emulated(groups),
    )


def _emulated(groups: Sequence[Group]) -> bool:
    return any(effect.emulated for group in groups for effect in group.effects)


def _groups(effects: Sequence[Effect], label: Callable[[Key], str]) -> list[Group]:
    found: dict[Key, list[Effect]] = {key: [] for key in dict.fromkeys(e.key for e in effects)}
    for effect in effects:
        if cost(effect) is not None:
            found[effect.key].append(effect)
    return [Group(label(key), tuple(members)) for key, members in found.items() if members]


def _describe(comparison: Comparison, groups: Sequence[Group]) -> str:
    sentences = [
        f"{marked(e.arm, e.emulated)}, {e.key.workload} {metric_name(e.key.metric)}: "
        f"{ratio(cost(e) or math.nan)} the cost of {e.baseline}, {e.verdict}"
        for group in groups
        for e in group.effects
    ]
    return short("; ".join(sentences), 4000) + "."


def shading_note(comparison: Comparison) -> str:
    """Return a sentence for the caption that explains the figure's shades."""
    floors = [e.noise_floor for e in comparison.headlines if e.noise_floor and e.scale == "ratio"]
    text = f"Pale band: the practical margin of ±{percent(comparison.margin)}"
    if floors:
        text += (
            f"; darker band: how much two identical arms may differ here by the A/A pair, from "
            f"{percent(min(floors))} to {percent(max(floors))} by metric"
        )
    return text + "."
