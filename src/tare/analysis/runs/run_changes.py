"""Changes of the arms' effects from one run to another.

Influences of a run's host, day and room on all arms are in its baseline too, and cancel in the
effect. Raw values of different runs are never compared with each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from tare.analysis.effects.comparison import Comparison
from tare.analysis.effects.results import Effect, Key
from tare.analysis.effects.verdict import LEVEL
from tare.analysis.statistics.logratio import deviation
from tare.analysis.statistics.maxt import least_blocks
from tare.analysis.statistics.meta_analysis import (
    PooledEffect,
    mean_shift,
    pool,
    rank_shift,
    seldom_shift,
    trimmed_shift,
)
from tare.analysis.statistics.resolution import NANOSECOND, log_widening
from tare.analysis.statistics.trimmed import error_of_trimmed
from tare.errors import InputError

SPOILS = frozenset({"failures", "baseline-failures", "serial", "slow-boots", "together"})
"""Flags of an effect that prevent the verdict that it did not change."""


def two_runs_caveat(before: Comparison, after: Comparison) -> str:
    """Return in words that results hold for these two runs; empty if time counts instructions.

    Intervals of a change include how far blocks of a run differ, but not how far runs differ. If
    runs of one set-up differ by 1 %, and boots by 1 %, a change is declared in nine of ten pairs.
    """
    if all(run.counts_instructions for run in (*before.runs, *after.runs)):
        return ""
    return (
        "This is about these two runs only: the intervals do not include how much repeated runs of "
        "one set-up differ. To learn that, repeat a run"
    )


@dataclass(frozen=True)
class Change:
    """The change of one effect between two runs.

    Args:
        before: The effect in the first run.
        after: The effect in the second run.
        change: The ratio of two ratios (1.05: 5 % more), or the difference of two differences.
        low: Lower end of the change's interval, extended by what a clock's steps hide in either
            run; unbounded if a run has too few blocks for any verdict.
        high: Upper end.
        confidence: The confidence of that interval.
        ranged: Whether the ends are not an interval, but the least and the greatest difference of
            any two blocks of the two runs: both runs count instructions and have few blocks.
    """

    before: Effect
    after: Effect
    change: float
    low: float
    high: float
    confidence: float
    ranged: bool = False

    @property
    def key(self) -> Key:
        """What was measured."""
        return self.before.key

    @property
    def arm(self) -> str:
        """The arm."""
        return self.before.arm

    @property
    def ratio(self) -> bool:
        """Whether ``change`` is a ratio."""
        return self.before.scale == "ratio" and self.after.scale == "ratio"

    @property
    def value(self) -> float:
        """The arm's own value before, 0 or more; the mean for events that many boots lack."""
        summary = self.before.arm_summary
        return abs(summary.mean if self.before.seldom or self.after.seldom else summary.centre)

    @property
    def looks_worse(self) -> bool:
        """Whether the change is for the worse; if no direction is better, whether it is a rise."""
        return (self.change > (1.0 if self.ratio else 0.0)) == (self.before.better != "higher")

    @property
    def flattered(self) -> str:
        """The lost cells that may have caused the change, in words; empty if there are none.

        Slow cells may be the ones that fail. A change looks worse than it is if the arm lost some
        in the first run, or its baseline in the second. In the opposite case it looks better.
        """
        first, second = ("failures", "baseline-failures")
        if not self.looks_worse:
            first, second = second, first
        return next(
            (
                f"in the {when} run, {flag.text}"
                for when, effect, kind in (
                    ("first", self.before, first),
                    ("second", self.after, second),
                )
                for flag in effect.flags
                if flag.kind == kind
            ),
            "",
        )


@dataclass(frozen=True)
class Pooled:
    """One effect pooled over several runs, as ratios."""

    effects: tuple[Effect, ...]
    together: PooledEffect

    @property
    def key(self) -> Key:
        """What was measured."""
        return self.effects[0].key


def effects_alone(comparison: Comparison) -> Comparison:
    """Return a comparison reduced to its effects, to save memory with very many runs."""
    runs = tuple(
        replace(run, cells=(), counted=(), series=(), machines=()) for run in comparison.runs
    )
    effects = tuple(
        replace(
            effect,
            arm_summary=replace(effect.arm_summary, blocks=()),
            baseline_summary=replace(effect.baseline_summary, blocks=()),
        )
        for effect in comparison.effects
    )
    return replace(
        comparison,
        runs=runs,
        effects=effects,
        aa=(),
        summaries=(),
        proof_differences=(),
        host_costs=(),
        failures=(),
        pairs=None,
    )


def changes(
    before: Comparison, after: Comparison, confidence: float, *, ranges: bool = False
) -> tuple[Change, ...]:
    """Return the change of each effect that both runs have.

    Args:
        before: The first run.
        after: The second.
        confidence: Nominal coverage of each interval.
        ranges: Whether runs in deterministic labs with too few blocks for an interval have the
            range of their blocks instead.

    Raises:
        InputError: The runs have different baselines.
    """
    require_same_baseline([before, after])
    theirs = {(effect.key, effect.arm): effect for effect in after.effects}
    ranges = ranges and all(run.counts_instructions for run in (*before.runs, *after.runs))
    return tuple(
        _change(effect, theirs[effect.key, effect.arm], confidence, ranges)
        for effect in before.effects
        if (effect.key, effect.arm) in theirs
    )


def _change(before: Effect, after: Effect, confidence: float, ranges: bool) -> Change:
    ratio = before.scale == after.scale == "ratio"
    samples = _sample(before, ratio), _sample(after, ratio)
    shift = mean_shift if before.kind == "typical" else rank_shift
    if before.trimmed and after.trimmed:
        shift = trimmed_shift
    if before.seldom or after.seldom:
        # If most boots have no event, the median is 0, however many the others have.
        shift = seldom_shift
    change, low, high = shift(*samples, confidence)
    fewest = min(before.blocks, after.blocks)
    ranged = ranges and 2 <= fewest < least_blocks(LEVEL)
    if ranged:
        # Chance hardly contributes: the possible differences of two blocks are the observed ones.
        low, high = min(samples[1]) - max(samples[0]), max(samples[1]) - min(samples[0])
    elif fewest < least_blocks(LEVEL):
        # A narrow interval of so short a run would mislead, as it would for an effect.
        low, high = -math.inf, math.inf
    hidden = hidden_by_clock(before, ratio, counted=ranged) + hidden_by_clock(
        after, ratio, counted=ranged
    )
    # Correlated blocks of a run have less information than as many independent ones.
    wider = max(before.widened, after.widened)
    low, high = (change + wider * (end - change) for end in (low, high))
    ends = (change, low - hidden, high + hidden)
    change, low, high = (_ratio(end) if ratio else end for end in ends)
    return Change(before, after, change, low, high, confidence, ranged)


def _ratio(logarithm: float) -> float:
    return math.exp(logarithm) if logarithm < 700 else math.inf


def hidden_by_clock(effect: Effect, ratio: bool, *, counted: bool = False) -> float:
    """Return how far each end of an effect's interval may be off because of a clock's steps.

    Args:
        effect: The effect.
        ratio: Whether it is compared as a ratio; the result is then in log units, otherwise in the
            metric's unit.
        counted: Whether time counts instructions in that run.
    """
    sides = effect.arm_summary.blocks, effect.baseline_summary.blocks
    # A counted clock steps by a nanosecond each instruction (QEMU's -icount shift=0). Values that
    # are the same in all boots, as they are there, would look like those of a coarse clock.
    step = (NANOSECOND if effect.unit == "s" else 0.0) if counted else effect.step
    if not step or not ratio:
        return step
    arm, baseline = (median(block.value for block in side) for side in sides)
    return log_widening(step, arm, baseline)


def _sample(effect: Effect, ratio: bool) -> list[float]:
    values = [block.value for block in effect.block_effects]
    if ratio:
        return [math.log(value) for value in values]
    if effect.scale == "difference":
        return values
    # The other run has zeros, so differences are compared: compute them for a ratio.
    arm = {(b.run, b.block): b.value for b in effect.arm_summary.blocks}
    # Summaries have no values of rounds of sessions.
    mean = effect.arm_summary.mean
    return [arm.get((b.run, b.block), mean) * (1 - 1 / b.value) for b in effect.block_effects]


def pooled(comparisons: Sequence[Comparison], confidence: float) -> tuple[Pooled, ...]:
    """Return the effects pooled over several runs, with a term for the run.

    Args:
        comparisons: One of each run, two or more.
        confidence: Nominal coverage.

    Raises:
        InputError: The runs have different baselines.
    """
    require_same_baseline(comparisons)
    found: dict[tuple[Key, str], list[Effect]] = {}
    for comparison in comparisons:
        for effect in comparison.effects:
            if effect.scale == "ratio" and effect.kind == "typical" and effect.blocks >= 2:
                found.setdefault((effect.key, effect.arm), []).append(effect)
    return tuple(
        Pooled(tuple(effects), _pool(effects, confidence))
        for effects in found.values()
        if len(effects) > 1
    )


def _pool(effects: Sequence[Effect], confidence: float) -> PooledEffect:
    found = [_mean_and_error(effect) for effect in effects]
    return pool([mean for mean, _ in found], [error for _, error in found], confidence)


def _mean_and_error(effect: Effect) -> tuple[float, float]:
    values = [math.log(block.value) for block in effect.block_effects]
    if effect.trimmed:
        return error_of_trimmed(values)
    return math.fsum(values) / len(values), deviation(values) / math.sqrt(len(values))


def require_same_baseline(comparisons: Sequence[Comparison]) -> None:
    """Check that effects of these runs are against the same arm.

    Raises:
        InputError: Their baselines differ.
    """
    baselines = sorted({comparison.baseline for comparison in comparisons})
    if len(baselines) > 1:
        raise InputError(
            f"the runs have different baselines: {', '.join(baselines)}",
            "name one that all of them have with --baseline",
        )
