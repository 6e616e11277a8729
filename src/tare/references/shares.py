"""Comparisons of two arms of a run, for statements of a source's text about two of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from tare.analysis.effects.comparison import Comparison
from tare.analysis.effects.results import ArmSummary, Effect, Key
from tare.analysis.statistics.logratio import mean_interval
from tare.analysis.statistics.maxt import least_blocks
from tare.references.arms import ArmMatch, alike, reasons_of
from tare.references.pairing import shown_value
from tare.references.printed import Fact
from tare.references.published import Reference

AS_STATED: Mapping[str, Callable[[float], float]] = {
    "": lambda ratio: ratio,
    "above": lambda ratio: ratio - 1,
    "below": lambda ratio: 1 - ratio,
    # The difference divided by the mean of both, as in the percent differences of li2013.
    "difference": lambda ratio: 2 * (ratio - 1) / (ratio + 1),
}
"""How a source expresses the quotient of two arms. Each function is monotonic in the quotient."""


@dataclass(frozen=True)
class Compared:
    """One arm of a run against another.

    Args:
        first: The arm.
        second: The arm that it is compared with.
        value: The quotient of the two, or the share as the source states it.
        ends: The ends of the interval, at the run's confidence; None without one.
        blocks: The number of blocks in which both have a value.
        emulated: Whether either arm is emulated.
        longest: Whether the two values are maxima over all blocks, whose quotient has no interval.
    """

    first: str
    second: str
    value: float
    ends: tuple[float, float] | None
    blocks: int
    emulated: bool
    longest: bool = False


def compared(
    comparison: Comparison, reference: Reference, fact: Fact, keys: Sequence[Key]
) -> tuple[tuple[Compared, ...], str]:
    """Return a run's values for two arms that a text compares, or the reason why there are none.

    Args:
        comparison: The run's comparison.
        reference: The source.
        fact: The statement. If it names several arms to compare with, each is compared.
        keys: The run's metrics for it. The geometric mean of several in each block is used.
    """
    likes = {like.arm: like for like in alike(comparison, reference)}
    found = [
        one
        for first, second in _pairs(fact, likes)
        for arm in first.own
        for other in second.own
        if (one := _compared(comparison, keys, arm, other, fact.share)) is not None
    ]
    named = dict.fromkeys(like for pair in _pairs(fact, likes) for like in pair)
    return tuple(found), "" if found else reasons_of(named)


def _pairs(fact: Fact, likes: Mapping[str, ArmMatch]) -> Iterator[tuple[ArmMatch, ArmMatch]]:
    others = [likes[name] for name in fact.than]
    if fact.arm:
        yield from ((likes[fact.arm], other) for other in others)
    else:
        yield from combinations(others, 2)


def _compared(
    comparison: Comparison, keys: Sequence[Key], first: str, second: str, share: str
) -> Compared | None:
    ones, others = (
        [each for each in comparison.summaries if each.arm == arm and each.key in keys]
        for arm in (first, second)
    )
    if len(ones) != len(keys) or len(others) != len(keys) or first == second:
        return None
    emulated = any(each.emulated for each in (*ones, *others))
    effect = _effect(comparison, keys, first, second)
    if effect is not None:
        ends = None if effect.interval is None else (effect.interval.low, effect.interval.high)
        return _as_stated(first, second, effect.estimate, ends, effect.blocks, emulated, share)
    if any(each.kind == "maximum" for each in ones):
        if len(keys) != 1 or shown_value(others[0]) <= 0:
            return None
        longest = shown_value(ones[0]) / shown_value(others[0])
        blocks = min(len(ones[0].blocks), len(others[0].blocks))
        made = _as_stated(first, second, longest, None, blocks, emulated, share)
        return replace(made, longest=True)
    logs = _log_ratios(keys, ones, others)
    if not logs:
        return None
    estimate, ends = math.exp(math.fsum(logs) / len(logs)), None
    if len(logs) >= least_blocks(comparison.level):
        interval = mean_interval(logs, comparison.confidence)
        ends = (math.exp(float(interval.low)), math.exp(float(interval.high)))
    return _as_stated(first, second, estimate, ends, len(logs), emulated, share)


def _effect(comparison: Comparison, keys: Sequence[Key], first: str, second: str) -> Effect | None:
    """Return the comparison's own effect of the two arms; None for maxima and for several keys."""
    known = (*comparison.effects, *(comparison.pairs.effects if comparison.pairs else ()))
    if len(keys) != 1:
        return None
    of_two = (e for e in known if (e.key, e.arm, e.baseline) == (keys[0], first, second))
    return next((e for e in of_two if e.scale == "ratio" and e.kind != "maximum"), None)


def _log_ratios(
    keys: Sequence[Key], ones: Sequence[ArmSummary], others: Sequence[ArmSummary]
) -> list[float]:
    """Return the mean log-ratio over all keys of each block in which both arms have all values."""
    of_key: list[dict[tuple[str, int], float]] = []
    for key in keys:
        first, second = (
            {(b.run, b.block): b.value for s in side if s.key == key for b in s.blocks}
            for side in (ones, others)
        )
        of_key.append(
            {
                block: math.log(value / second[block])
                for block, value in first.items()
                if value > 0 and second.get(block, 0.0) > 0
            }
        )
    blocks = set.intersection(*map(set, of_key))
    return [math.fsum(each[block] for each in of_key) / len(keys) for block in sorted(blocks)]


def _as_stated(
    first: str,
    second: str,
    ratio: float,
    ends: tuple[float, float] | None,
    blocks: int,
    emulated: bool,
    share: str,
) -> Compared:
    made = AS_STATED[share]
    both = None
    if ends is not None:
        low, high = sorted(map(made, ends))
        both = (low, high)
    return Compared(first, second, made(ratio), both, blocks, emulated)
