"""Intervals of a group-sequential study, which hold at all of its looks together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tare.analysis.effects.estimates import Estimate, Pair, at_equal_places, outward
from tare.analysis.statistics.logratio import mean_interval
from tare.analysis.statistics.sequential import LookPlan
from tare.analysis.statistics.tails import median_interval
from tare.analysis.statistics.trimmed import trimmed_interval


def with_sequential_intervals(
    pairs: Sequence[Pair], estimates: Sequence[Estimate], plan: LookPlan, confidence: float
) -> tuple[Estimate, ...]:
    """Return the estimates with the intervals of their newest look.

    Args:
        pairs: The pairs.
        estimates: Their estimates, with ordinary intervals.
        plan: The looks.
        confidence: Nominal coverage of all looks together.
    """
    return tuple(
        _estimate(pair, estimate, plan, confidence)
        for pair, estimate in zip(pairs, estimates, strict=True)
    )


def _estimate(pair: Pair, estimate: Estimate, plan: LookPlan, confidence: float) -> Estimate:
    values = pair.differences
    if len(values) < 2:
        return estimate
    here = 1 - plan.level(len(values), 1 - confidence)
    if not pair.typical:
        ends = median_interval(values, here)
        return replace(estimate, order=outward(pair, ends, "sequential", confidence))
    if pair.trimmed:
        cut = trimmed_interval(values, here)
        ends = float(cut.low), float(cut.high)
        return replace(estimate, trimmed=outward(pair, ends, "sequential", confidence))
    equal = at_equal_places(pair, here)
    if equal is not None:
        ends = equal.mean - equal.half_width, equal.mean + equal.half_width
        return replace(estimate, student_t=outward(pair, ends, "sequential", confidence))
    found = mean_interval(values, here)
    ends = float(found.low), float(found.high)
    return replace(estimate, student_t=outward(pair, ends, "sequential", confidence))
