"""The verdict on an effect, by one rule for all metrics, and its sentence.

*Worse* or *better* is declared only if three things agree: the p-value corrected over the arm's
family, an interval that excludes "even", and a size beyond the practical margin. *Equivalent* is
declared only if the whole interval is within the margin, and nothing casts doubt on the interval.
This is two one-sided tests at once (Schuirmann 1987). Everything else is *inconclusive*, with the
cost that is not excluded. With too few blocks for any verdict it is *preliminary*.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import count

from tare.analysis.effects.noise import exceeds_floor
from tare.analysis.effects.results import (
    Each,
    Interval,
    OfMetric,
    Scale,
    VerdictWord,
    as_cost,
    cost_ends,
)
from tare.analysis.statistics.detectable import POWER, blocks_for_equality
from tare.analysis.statistics.maxt import least_blocks
from tare.analysis.statistics.shares import exact_share
from tare.analysis.statistics.trimmed import left_out
from tare.events.metric import Metric
from tare.units import format_number, format_percent, format_quantity

LEVEL = 0.05
"""The rate at which an arm without any difference is declared worse or better in some headline
metric."""

MOST_BEYOND = 0.1
"""Rare events are equivalent only if at most this share of blocks may be beyond the margin. From
29 blocks without any event the bound is below it (rule of three)."""

MOST_BLOCKS_ADVISED = 1000
"""More blocks are not practical advice; the sentence then advises less noise."""


@dataclass(frozen=True)
class Evidence(OfMetric):
    """All that a verdict is based on; further fields are explained in `results.Effect`.

    Args:
        baseline_value: The baseline's typical value, which gives a difference its scale.
        spread: The least and the greatest block's effect, for a preliminary verdict.
        doubt: Why the arms cannot be declared equivalent; empty: no reason.
        flattered: Verdicts that may come from cells that failed in one arm only, with the reason.
        grid: How far each end of a ratio's interval was moved out for the steps of a clock, as
            a logarithm. More blocks do not reduce it.
        surest: The interval over all of the arm's metrics if blocks may be correlated: it must
            exclude "even" too. None if blocks are shown to be independent.
        each: The unit of ``blocks``.
        share_beyond: For rare events, an upper bound of the share of blocks beyond the margin; None
            otherwise.
        without: The arms that have no block with a counted event.
        lost: The cells that failed in one arm only, and are left out; empty: none.
        slow: The boots that were slow, and are part of the mean; empty: none.
        trimmed: Whether the estimate is the trimmed mean, without the slowest boots.
    """

    metric: Metric
    scale: Scale
    estimate: float
    interval: Interval | None
    blocks: int
    p: float | None
    adjusted_p: float | None
    margin: float
    tests: int
    level: float = LEVEL
    baseline_value: float = 0.0
    spread: tuple[float, float] | None = None
    doubt: str = ""
    flattered: Mapping[VerdictWord, str] = field(default_factory=dict)
    grid: float = 0.0
    surest: Interval | None = None
    each: Each = "block"
    share_beyond: float | None = None
    without: tuple[str, ...] = ()
    lost: str = ""
    slow: str = ""
    trimmed: bool = False


def judge(evidence: Evidence) -> VerdictWord:
    """Return the verdict.

    - ``preliminary``: so few blocks cannot reach the level, whatever the values.
    - ``equivalent``: the whole interval is within the margin, and there is no doubt about it. On a
      difference scale the margin is in the metric's unit, from the baseline's value or from the
      study's floor. If both are 0, nothing is equivalent. Rare events are equivalent only if at
      most `MOST_BEYOND` of all blocks may be beyond the margin.
    - ``worse``, ``better`` (``differs`` if no direction is better): the adjusted p is below the
      level, the interval excludes "even", and the estimate is beyond the margin. It is not declared
      if it may come from cells that failed in one arm only, and may have been slow ones. A p
      assumes independent blocks: if they are correlated, the widened interval over all of the
      arm's metrics must exclude "even" too.
    - ``inconclusive``: none of these.
    """
    if evidence.blocks < least_blocks(evidence.level):
        return "preliminary"
    if _within(evidence) and not evidence.doubt and not _rare_events_open(evidence):
        return "equivalent"
    declared = evidence.adjusted_p is not None and evidence.adjusted_p < evidence.level
    if declared and not may_be_equal(evidence) and _beyond_margin(evidence):
        word = _direction(evidence)
        return "inconclusive" if word in evidence.flattered else word
    return "inconclusive"


def _within(evidence: Evidence) -> bool:
    interval = evidence.interval
    if interval is None or evidence.margin <= 0:
        return False
    ratio = evidence.scale == "ratio"
    return not any(
        exceeds_floor(end, evidence.margin, ratio=ratio) for end in (interval.low, interval.high)
    )


def _rare_events_open(evidence: Evidence) -> bool:
    return evidence.share_beyond is not None and evidence.share_beyond > MOST_BEYOND


def _beyond_margin(evidence: Evidence) -> bool:
    return exceeds_floor(evidence.estimate, evidence.margin, ratio=evidence.scale == "ratio")


def may_be_equal(evidence: Evidence) -> bool:
    """Return whether the interval holds "no difference", or there is none."""
    even = 1 if evidence.scale == "ratio" else 0
    if evidence.surest is not None and evidence.surest.holds(even):
        return True
    return evidence.interval is None or evidence.interval.holds(even)


def _direction(evidence: Evidence) -> VerdictWord:
    if evidence.better == "neither":
        return "differs"
    more = evidence.estimate > (1 if evidence.scale == "ratio" else 0)
    return "better" if more == (evidence.better == "higher") else "worse"


def sentence(
    evidence: Evidence,
    verdict: VerdictWord,
    not_excluded: float | None,
    *,
    what: str,
    arm: str,
    baseline: str,
) -> str:
    """Return the verdict as one English sentence.

    Args:
        evidence: The evidence for it.
        verdict: The verdict.
        not_excluded: The greatest cost that the interval does not exclude.
        what: The metric as readers know it, e.g. ``tick maximum (pinned)``.
        arm: The arm, with its mark if emulated.
        baseline: The baseline.
    """
    text = _verdict_in_words(evidence, verdict, not_excluded, what, arm, baseline)
    if verdict == "preliminary":
        return text
    if evidence.lost and evidence.lost not in text:
        text += f" Failed cells are left out: {evidence.lost}."
    if evidence.trimmed:
        text += f" {_typical_only(evidence, verdict)}"
    elif evidence.slow and evidence.kind == "typical" and evidence.slow not in text:
        text += f" The mean includes slow boots: {evidence.slow}."
    if evidence.without:
        text += f" {_text_without_events(evidence)}"
    return text


def _verdict_in_words(
    evidence: Evidence,
    verdict: VerdictWord,
    not_excluded: float | None,
    what: str,
    arm: str,
    baseline: str,
) -> str:
    size = _size(evidence)
    interval = _interval(evidence)
    match verdict:
        case "better" | "worse" | "differs":
            against = "from" if verdict == "differs" else "than"
            by = f"{what}: {arm} {'differs' if verdict == 'differs' else 'is ' + verdict}"
            p = f"p = {_p(evidence.adjusted_p)} over {_tests(evidence.tests)}"
            return f"{by} {against} {baseline}, {size} {interval}, {p}."
        case "equivalent":
            return (
                f"{what}: {arm} is equivalent to {baseline}; {size} {interval}, "
                f"all within ± {_margin(evidence)}{_rare(evidence) or _slow_open(evidence)}."
            )
        case "preliminary":
            return (
                f"{what}: {arm} against {baseline}, preliminary: {size}"
                f"{_observed_range(evidence)}; {least_blocks(evidence.level)} {evidence.each}s are "
                "the least for a verdict."
            )
        case _:
            return (
                f"{what}: inconclusive between {arm} and {baseline}: "
                f"{excluded(evidence, not_excluded)}; {size} {interval}{_why(evidence)}."
            )


def slow_share_limit(boots: int) -> str:
    """Return the share of boots that may be slow if none of so many was, as a percentage."""
    return percent(exact_share(0, boots, 1 - LEVEL).high)


def slow_unseen(boots: int, each: str = "boot") -> str:
    """Return in words the share of boots that may be slow although no measured one was."""
    return f"up to {slow_share_limit(boots)} of {each}s may be slow and not be among these {boots}"


def _slow_open(evidence: Evidence) -> str:
    """Return in words that only typical boots are equal, and the share that may be slow unseen."""
    if evidence.scale != "ratio" or not evidence.blocks:
        return ""
    each = "boot" if evidence.each == "block" else evidence.each
    return f" in typical {each}s; {slow_unseen(evidence.blocks, each)}"


def _typical_only(evidence: Evidence, verdict: VerdictWord) -> str:
    """Return in words that a trimmed mean is about typical boots, and what is known of others."""
    cut = left_out(evidence.blocks)
    ends = "least and the greatest" if cut == 1 else f"{cut} least and the {cut} greatest"
    each = "boot" if evidence.each == "block" else evidence.each
    text = f"This is about typical {each}s: the {ends} of {evidence.blocks} ratios are left out"
    if evidence.slow:
        return f"{text}; {evidence.slow}."
    return (
        f"{text}." if verdict == "equivalent" else f"{text}; {slow_unseen(evidence.blocks, each)}."
    )


def _text_without_events(evidence: Evidence) -> str:
    """Return in words the arms without any event, and the share of boots that may have one."""
    names = " and ".join(evidence.without)
    return (
        f"No {evidence.each} of {names} had any: up to {slow_share_limit(evidence.blocks)} of its "
        f"{evidence.each}s may, which the interval does not cover."
    )


def excluded(evidence: Evidence, not_excluded: float | None) -> str:
    """Return in words the cost that the data do not exclude."""
    if not_excluded is None or math.isinf(not_excluded):
        return "no cost is excluded"
    what = "difference" if evidence.better == "neither" else "cost"
    if not_excluded == 0:
        return f"the interval by itself excludes every {what}, but no gain is shown"
    if evidence.scale == "difference":
        return f"a {what} up to {format_quantity(not_excluded, evidence.unit)} is not excluded"
    return f"a {what} up to {percent(not_excluded)} is not excluded"


def _why(evidence: Evidence) -> str:
    """Return in words why there is no decision."""
    if _within(evidence) and evidence.doubt:
        return f". It is within ± {_margin(evidence)}, but {evidence.doubt}"
    if _within(evidence) and _rare_events_open(evidence):
        wanted = next(n for n in count(1) if exact_share(0, n, 1 - 2 * LEVEL).high <= MOST_BEYOND)
        return (
            f". It is within ± {_margin(evidence)}{_rare(evidence)}, which is too many: {wanted} "
            f"{evidence.each}s without any such {evidence.each} would show that it is equivalent"
        )
    looks = _direction(evidence)
    if looks in evidence.flattered and not may_be_equal(evidence):
        return f". What is left looks {looks}, but {evidence.flattered[looks]}"
    if evidence.surest is not None and evidence.doubt and _beyond_margin(evidence):
        return f". {evidence.doubt[:1].upper()}{evidence.doubt[1:]}"
    if _may_be_correlated(evidence):
        return (
            f". {evidence.blocks} {evidence.each}s leave open that each is like the one before, "
            "and such a difference may come of that"
        )
    # If there is a doubt about the interval, what it excludes is in doubt too.
    but = f". But {evidence.doubt}" if evidence.doubt else ""
    return f"{_resolved(evidence)}{but}"


def _rare(evidence: Evidence) -> str:
    """Return in words the share of blocks that may be beyond the margin, for rare events."""
    if evidence.share_beyond is None:
        return ""
    return f", and at most {percent(evidence.share_beyond)} of {evidence.each}s are beyond that"


def _may_be_correlated(evidence: Evidence) -> bool:
    """Return whether only a possible correlation of blocks prevents a verdict."""
    declared = evidence.adjusted_p is not None and evidence.adjusted_p < evidence.level
    alone = replace(evidence, surest=None)
    return declared and not evidence.doubt and _beyond_margin(alone) and not may_be_equal(alone)


def _resolved(evidence: Evidence) -> str:
    """Return in words that noise hides the margin, and what to do; empty if it does not."""
    interval = evidence.interval
    if evidence.scale != "ratio" or interval is None or interval.low <= 0 or not evidence.margin:
        return ""
    half = math.log(interval.high / interval.low) / 2 if interval.high < math.inf else math.inf
    wanted = math.log1p(evidence.margin)
    if half <= wanted or math.isinf(half):
        return ""
    text = f". This set-up cannot resolve {percent(evidence.margin)}"
    if evidence.grid >= wanted:
        hidden = percent(math.expm1(evidence.grid))
        many = f"however many {evidence.each}s"
        if evidence.unit == "s" or evidence.unit.endswith("/s"):
            return f"{text}: the clock's steps hide {hidden}, {many}: measure longer work"
        return f"{text}: the rounding of its values hides {hidden}, {many}"
    needed = blocks_for_equality(half - evidence.grid, wanted - evidence.grid, evidence.blocks)
    if needed <= MOST_BLOCKS_ADVISED:
        return (
            f"{text}: about {needed} {evidence.each}s would in {100 * POWER:.0f} % of studies of "
            "equal arms whose noise is normal, or less noise"
        )
    return f"{text}: its noise must become less first"


def _observed_range(evidence: Evidence) -> str:
    if evidence.spread is None or evidence.blocks < 2:
        return f" in one {evidence.each}" if evidence.blocks == 1 else ""
    low, high = evidence.spread
    if evidence.scale == "difference":
        ends = f"{format_quantity(low, evidence.unit)} to {format_quantity(high, evidence.unit)}"
    else:
        low, high = cost_ends(low, high, evidence.better)
        ends = f"{significant(low)} to {significant(high)}"
    return f" ({ends} in its {evidence.blocks} {evidence.each}s)"


def _margin(evidence: Evidence) -> str:
    if evidence.scale == "difference":
        return format_quantity(evidence.margin, evidence.unit)
    return percent(evidence.margin)


def _tests(count: int) -> str:
    return "one metric" if count == 1 else f"{count} metrics"


def _size(evidence: Evidence) -> str:
    if evidence.scale == "difference":
        of = format_quantity(evidence.baseline_value, evidence.unit)
        return (
            f"difference {format_quantity(evidence.estimate, evidence.unit)} to a baseline of {of}"
        )
    return f"{_called(evidence)} {significant(as_cost(evidence.estimate, evidence.better))}"


def _called(evidence: Evidence) -> str:
    """Return the name of a ratio: a cost, unless no direction is better."""
    return "ratio" if evidence.better == "neither" else "cost"


def _interval(evidence: Evidence) -> str:
    if evidence.interval is None:
        return "(no interval)"
    low, high = evidence.interval.low, evidence.interval.high
    if evidence.scale == "difference" and low == high == 0:
        return f"(no difference in any of {evidence.blocks} {evidence.each}s)"
    confidence = f"{100 * evidence.interval.confidence:g} %"
    if evidence.scale == "difference":
        ends = f"{format_quantity(low, evidence.unit)} to {format_quantity(high, evidence.unit)}"
    else:
        low, high = cost_ends(low, high, evidence.better)
        ends = f"{significant(low)} to {significant(high)}"
    return f"({confidence} interval {ends})"


def significant(value: float) -> str:
    """Return a ratio with three decimals from 0.1 to 10, with three significant digits beyond."""
    size = abs(value)
    if 0.1 <= size < 10:
        return f"{value:.3f}"
    return format_number(value)


def percent(share: float) -> str:
    """Return a share as per cent with two significant digits: 0.0213 is ``2.1 %``."""
    return format_percent(share)


def _p(value: float | None) -> str:
    if value is None:
        return "unknown"
    return f"{value:.2g}" if value >= 0.0001 else "below 0.0001"
