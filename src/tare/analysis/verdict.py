"""From numbers to a verdict, by one rule for all metrics, and to a sentence.

A difference is declared only when four things agree: the permutation test after correction for
the number of tests (q < level), an interval that leaves "even" out, a size beyond the practical
margin, and a size beyond the noise floor of the A/A pair. No difference is declared just as
carefully: only when the whole interval lies within the margin. Everything else says what is
missing.
"""

from __future__ import annotations

from dataclasses import dataclass

from tare.analysis.noise import beyond
from tare.analysis.results import Better, Interval, Scale, VerdictWord
from tare.study.quantities import format_quantity

LEVEL = 0.05
"""The false discovery rate at which differences are declared."""


@dataclass(frozen=True)
class Evidence:
    """All that a verdict rests on; the fields mean what they mean in `results.Effect`."""

    better: Better
    scale: Scale
    estimate: float
    interval: Interval | None
    blocks: int
    p: float | None
    p_least: float
    q: float | None
    noise_floor: float | None
    margin: float
    tests: int
    level: float = LEVEL
    unit: str = "1"


def judge(evidence: Evidence) -> VerdictWord:
    """Return the verdict.

    - ``too few blocks``: no test with so few blocks could be declared, whatever the values;
      then no dead heat is declared either.
    - ``dead heat``: the whole interval lies within the margin.
    - ``not distinguishable``: the estimate lies within the A/A pair's noise floor.
    - ``better``, ``worse`` (``differs`` where no direction is better): q below the level, the
      interval beside "even", and the estimate beyond both margin and noise floor. One block far
      off the others can move the estimate beyond the margin and leave q small; not the interval.
    - ``undecided``: none of these.

    On a difference scale the margin is not defined (there is no size to relate it to) and only
    the noise floor is asked.
    """
    ratio = evidence.scale == "ratio"
    if evidence.blocks < 2 or evidence.p_least >= evidence.level:
        return "too few blocks"
    if ratio and _within(evidence.interval, evidence.margin):
        return "dead heat"
    if evidence.interval is not None and evidence.interval.low == evidence.interval.high == 0:
        return "dead heat"
    floor = evidence.noise_floor
    if floor is not None and not beyond(evidence.estimate, floor, ratio=ratio):
        return "not distinguishable"
    declared = evidence.q is not None and evidence.q < evidence.level and not _maybe_even(evidence)
    if declared and (not ratio or beyond(evidence.estimate, evidence.margin, ratio=True)):
        return _direction(evidence)
    return "undecided"


def _within(interval: Interval | None, margin: float) -> bool:
    if interval is None:
        return False
    ends = (interval.low, interval.high)
    return not any(beyond(end, margin, ratio=True) for end in ends)


def _maybe_even(evidence: Evidence) -> bool:
    even = 1 if evidence.scale == "ratio" else 0
    interval = evidence.interval
    return interval is not None and interval.low <= even <= interval.high


def _direction(evidence: Evidence) -> VerdictWord:
    if evidence.better == "neither":
        return "differs"
    more = evidence.estimate > (1 if evidence.scale == "ratio" else 0)
    return "better" if more == (evidence.better == "higher") else "worse"


def sentence(
    evidence: Evidence, verdict: VerdictWord, *, what: str, arm: str, baseline: str
) -> str:
    """Return the verdict as one English sentence.

    Args:
        evidence: What it rests on.
        verdict: The verdict.
        what: The metric as readers know it, e.g. ``tick maximum (pinned)``.
        arm: The arm, with its mark if emulated.
        baseline: The baseline.
    """
    size = _size(evidence)
    interval = _interval(evidence)
    match verdict:
        case "better" | "worse" | "differs":
            against = "from" if verdict == "differs" else "than"
            by = f"{what}: {arm} {'differs' if verdict == 'differs' else 'is ' + verdict}"
            return f"{by} {against} {baseline}, {size} {interval}, q = {_p(evidence.q)}."
        case "dead heat":
            return (
                f"{what}: a dead heat between {arm} and {baseline}; {size} {interval}, "
                f"all within the practical margin of {percent(evidence.margin)}."
            )
        case "not distinguishable":
            floor = evidence.noise_floor or 0.0
            shown = (
                percent(floor)
                if evidence.scale == "ratio"
                else format_quantity(floor, evidence.unit)
            )
            return (
                f"{what}: {arm} is not distinguishable from {baseline}; {size} {interval}, while "
                f"identical arms may differ by {shown} here."
            )
        case "too few blocks":
            return (
                f"{what}: {evidence.blocks} blocks are too few to tell {arm} from {baseline} "
                f"(least possible p is {_p(evidence.p_least)}); {size} {interval}."
            )
        case _:
            return (
                f"{what}: undecided between {arm} and {baseline}; {size} {interval}, "
                f"{_missing(evidence)}."
            )


def _missing(evidence: Evidence) -> str:
    if evidence.q is None or evidence.q >= evidence.level:
        text = f"q = {_p(evidence.q)}"
        if evidence.p is not None and evidence.p < evidence.level:
            text += f" (p = {_p(evidence.p)} before correction for {evidence.tests} tests)"
        return text
    if _maybe_even(evidence):
        return f"q = {_p(evidence.q)}, but the interval holds no difference too"
    return f"a difference (q = {_p(evidence.q)}), but maybe less than {percent(evidence.margin)}"


def _size(evidence: Evidence) -> str:
    if evidence.scale == "difference":
        return f"difference {format_quantity(evidence.estimate, evidence.unit)}"
    return f"ratio {significant(evidence.estimate)}"


def _interval(evidence: Evidence) -> str:
    if evidence.interval is None:
        return "(no interval)"
    low, high = evidence.interval.low, evidence.interval.high
    confidence = f"{100 * evidence.interval.confidence:g} %"
    if evidence.scale == "difference":
        ends = f"{format_quantity(low, evidence.unit)} to {format_quantity(high, evidence.unit)}"
    else:
        ends = f"{significant(low)} to {significant(high)}"
    return f"({confidence} interval {ends})"


def significant(value: float) -> str:
    """Return a ratio with three decimals from 0.1 to 10, with three significant digits beyond."""
    size = abs(value)
    if 0.1 <= size < 10:
        return f"{value:.3f}"
    return f"{value:.3g}" if 0.001 <= size < 1000 or size == 0 else f"{value:.1e}"


def percent(share: float) -> str:
    """Return a share as per cent with two significant digits: 0.0213 is ``2.1 %``."""
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.0f} %"


def _p(value: float | None) -> str:
    if value is None:
        return "unknown"
    return f"{value:.2g}" if value >= 0.0001 else "below 0.0001"
