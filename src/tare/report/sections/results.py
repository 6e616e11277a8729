"""The tables of a comparison: effects against the baseline, values per arm, host cost, failures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from tare.analysis.model import (
    ArmSummary,
    Comparison,
    Effect,
    Interval,
    Key,
    as_cost,
    cost_ends,
)
from tare.report.page.links import anchor_of
from tare.report.page.tables import Column, Table
from tare.report.page.words import (
    NONE,
    Names,
    Part,
    cost,
    cost_interval,
    difference_text,
    marked,
    metric_name,
    percent,
    probability,
    ratio,
    ratio_interval,
)
from tare.units import format_quantity

COST = "Cost factor"
"""The heading of the column with an effect as a cost."""
PAIRED = " †"
"""Marks a cost that is not the quotient of the two values next to it."""
ABOUT_COST = (
    "Cost factor: how many times worse than the baseline in the same blocks; above 1 is worse, for "
    "rates too. Values are geometric means over these blocks, of tails and maxima medians."
)
ABOUT_PAIRED = (
    "† Not the quotient of the two values: the median of the blocks’ own ratios, or adjusted for "
    "the order within blocks"
)


def effects_table(
    comparison: Comparison, name: str, effects: Iterable[Effect], caption: str = ""
) -> Table[Effect]:
    """Return ``effects`` with estimates, intervals, p and verdicts, one row each."""
    rows = tuple(effects)
    plain, names = _names(comparison, [effect.key for effect in comparison.effects])
    columns: tuple[Column[Effect], ...] = (
        Column(
            "what",
            lambda e: plain.name(Part.of(e.key)),
            "What",
            lambda e: names.name(Part.of(e.key)),
        ),
        Column("scenario", lambda e: e.key.scenario),
        Column("workload", lambda e: e.key.workload),
        Column("parameters", lambda e: e.key.parameters),
        Column("role", lambda e: e.key.role),
        Column("metric", lambda e: e.key.metric, "Metric", lambda e: metric_name(e.key.metric)),
        Column("arm", lambda e: e.arm, "Arm", lambda e: marked(e.arm, e.emulated)),
        Column("emulated", lambda e: e.emulated),
        Column("baseline", lambda e: e.baseline),
        Column("unit", lambda e: e.unit),
        Column("better", lambda e: e.better),
        Column("kind", lambda e: e.kind),
        Column("headline", lambda e: e.headline),
        Column("scale", lambda e: e.scale),
        Column("estimate", lambda e: e.estimate, COST, _estimate, numeric=True),
        Column("low", lambda e: _end(e.interval, 0), "Interval", _interval, numeric=True),
        Column("high", lambda e: _end(e.interval, 1)),
        Column("method", lambda e: None if e.interval is None else e.interval.method),
        Column("confidence", lambda e: comparison.confidence),
        Column("student_t_low", lambda e: _end(e.student_t, 0)),
        Column("student_t_high", lambda e: _end(e.student_t, 1)),
        Column("bootstrap_low", lambda e: _end(e.bootstrap, 0)),
        Column("bootstrap_high", lambda e: _end(e.bootstrap, 1)),
        Column("order_low", lambda e: _end(e.order, 0)),
        Column("order_high", lambda e: _end(e.order, 1)),
        Column("cost", cost),
        Column("cost_low", lambda e: (cost_interval(e) or (None, None))[0]),
        Column("cost_high", lambda e: (cost_interval(e) or (None, None))[1]),
        Column("verdict", lambda e: e.verdict, "Verdict"),
        Column(
            "value",
            lambda e: _own_value(e, e.arm_summary),
            "Arm's value",
            lambda e: format_quantity(_compared(e)[0], e.unit, digits=4),
            numeric=True,
        ),
        Column(
            "baseline_value",
            lambda e: _own_value(e, e.baseline_summary),
            "Baseline",
            lambda e: format_quantity(_compared(e)[1], e.unit, digits=4),
            numeric=True,
        ),
        Column("compared_value", lambda e: _compared(e)[0]),
        Column("compared_baseline", lambda e: _compared(e)[1]),
        Column("robust", lambda e: e.robust.estimate if e.robust else None),
        Column("robust_low", lambda e: e.robust.interval.low if e.robust else None),
        Column("robust_high", lambda e: e.robust.interval.high if e.robust else None),
        Column("not_excluded", lambda e: e.not_excluded, "Not excluded", _open, numeric=True),
        Column("p", lambda e: e.p),
        Column(
            "adjusted_p",
            lambda e: e.adjusted_p,
            "p",
            lambda e: probability(e.adjusted_p),
            numeric=True,
        ),
        Column(
            "noise_floor",
            lambda e: e.noise_floor,
            "A/A within",
            _floor,
            numeric=True,
        ),
        Column("family", lambda e: e.family),
        Column("margin", lambda e: e.margin),
        Column("blocks", lambda e: e.blocks, "Blocks", numeric=True),
        Column("flags", lambda e: "; ".join(flag.text for flag in e.flags)),
    )
    caption = caption or (
        f"Effects against {comparison.against}, with {100 * comparison.confidence:.4g} % intervals"
    )
    caption = ". ".join((caption, *cost_notes(rows)))
    return Table(name, caption, columns, rows, _tone, lambda e: anchor_of(e.key, e.arm))


def _names(comparison: Comparison, keys: Sequence[Key]) -> tuple[Names, Names]:
    """Return names for files, which ignore ``shown_as``, and names for readers."""
    parts = [Part.of(key) for key in keys]
    return Names(parts), Names(parts, comparison.shown_as, short=True)


def cost_notes(effects: Sequence[Effect]) -> tuple[str, ...]:
    """Return notes on how to read the costs and values of these effects."""
    notes = []
    ratios = {effect.better for effect in effects if effect.scale == "ratio"}
    if ratios & {"lower", "higher"}:
        notes.append("Cost factor: above 1 is worse")
    if "neither" in ratios:
        notes.append("Where neither direction is better the factor is arm ÷ baseline")
    if any(not effect.follows for effect in effects):
        notes.append(ABOUT_PAIRED)
    return tuple(notes)


def _compared(effect: Effect) -> tuple[float, float]:
    """Return the values of the arm and of the baseline over the blocks that both have."""
    if effect.compared is not None:
        return effect.compared
    return _own_value(effect, effect.arm_summary), _own_value(effect, effect.baseline_summary)


def _own_value(effect: Effect, summary: ArmSummary) -> float:
    """Return an arm's value over all its blocks: the mean if the value is often 0."""
    return summary.mean if effect.seldom else summary.centre


def _tone(effect: Effect) -> str:
    words = [effect.verdict.replace(" ", "-")]
    if effect.emulated:
        words.append("emulated")
    return " ".join(words)


def _end(interval: Interval | None, which: int) -> float | None:
    return None if interval is None else (interval.low, interval.high)[which]


def _estimate(effect: Effect) -> str:
    mark = "" if effect.follows else PAIRED
    if effect.scale == "ratio":
        return ratio(as_cost(effect.estimate, effect.better)) + mark
    return difference_text(effect.estimate, effect.unit) + mark


def _floor(effect: Effect) -> str:
    if effect.noise_floor is None:
        return NONE
    if effect.scale == "ratio":
        return percent(effect.noise_floor)
    return format_quantity(effect.noise_floor, effect.unit)


def _open(effect: Effect) -> str:
    """Return the largest cost that an inconclusive effect does not exclude; a dash otherwise."""
    if not effect.not_excluded or effect.verdict != "inconclusive":
        return NONE
    if math.isinf(effect.not_excluded):
        return "any"
    if effect.scale == "ratio":
        return percent(effect.not_excluded)
    return format_quantity(effect.not_excluded, effect.unit)


def _interval(effect: Effect) -> str:
    if effect.interval is None:
        return NONE
    ends = effect.interval.low, effect.interval.high
    if effect.scale == "ratio":
        return ratio_interval(cost_ends(*ends, effect.better))
    return " to ".join(difference_text(end, effect.unit) for end in ends)


def summaries_table(comparison: Comparison) -> Table[ArmSummary]:
    """Return every arm's own values: mean, median, spread, interval and E over blocks."""
    plain, names = _names(comparison, [summary.key for summary in comparison.summaries])

    def quantity(key: str, title: str) -> Column[ArmSummary]:
        def raw(summary: ArmSummary) -> float | None:
            found: float | None = getattr(summary, key)
            return found

        def text(summary: ArmSummary) -> str:
            value = raw(summary)
            return NONE if value is None else format_quantity(value, summary.unit, digits=4)

        return Column(key, raw, title, text, numeric=True)

    columns: tuple[Column[ArmSummary], ...] = (
        Column(
            "what",
            lambda s: plain.name(Part.of(s.key)),
            "What",
            lambda s: names.name(Part.of(s.key)),
        ),
        Column("scenario", lambda s: s.key.scenario),
        Column("workload", lambda s: s.key.workload),
        Column("parameters", lambda s: s.key.parameters),
        Column("role", lambda s: s.key.role),
        Column("metric", lambda s: s.key.metric, "Metric", lambda s: metric_name(s.key.metric)),
        Column("arm", lambda s: s.arm, "Arm", lambda s: marked(s.arm, s.emulated)),
        Column("emulated", lambda s: s.emulated),
        Column("unit", lambda s: s.unit),
        Column("better", lambda s: s.better),
        Column("kind", lambda s: s.kind),
        Column("blocks", lambda s: len(s.blocks), "Blocks", numeric=True),
        quantity("mean", "Mean"),
        quantity("error", "± E"),
        quantity("median", "Median"),
        quantity("least", "Least"),
        quantity("greatest", "Greatest"),
        quantity("deviation", "Deviation"),
        Column("low", lambda s: _end(s.interval, 0), "Interval", _own_interval, numeric=True),
        Column("high", lambda s: _end(s.interval, 1)),
        Column("method", lambda s: None if s.interval is None else s.interval.method),
    )
    caption = f"Values per arm over blocks, with {100 * comparison.confidence:.4g} % intervals"
    tone = lambda s: "emulated" if s.emulated else ""  # noqa: E731
    return Table("values", caption, columns, comparison.summaries, tone=tone)


def _own_interval(summary: ArmSummary) -> str:
    if summary.interval is None:
        return NONE
    ends = (summary.interval.low, summary.interval.high)
    return " to ".join(format_quantity(end, summary.unit, digits=4) for end in ends)
