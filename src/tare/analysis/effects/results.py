"""The effects of a comparison as data: values, intervals, tests and verdicts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tare.events.metric import Better, Kind, Metric

Scale = Literal["ratio", "difference"]
Family = Literal["headline", "detail", "control", "pairs"]
IntervalMethod = Literal[
    "student-t",
    "hierarchical-bootstrap",
    "boot-level-bootstrap",
    "order-statistic",
    "wilcoxon",
    "block-bootstrap",
    "over-boots",
    "sequential",
    "stein",
    "trimmed",
]
Each = Literal["block", "round"]
"""The unit of observation of an effect: a block, or a round of sessions."""
VerdictWord = Literal["better", "worse", "differs", "equivalent", "inconclusive", "preliminary"]
DECLARED: frozenset[VerdictWord] = frozenset({"better", "worse", "differs"})
"""Verdicts that declare a difference."""
FlagKind = Literal[
    "duet",
    "slow-boots",
    "serial",
    "together",
    "order",
    "failures",
    "baseline-failures",
    "robust",
    "resolution",
    "seldom",
    "warm-up",
    "no-steady-state",
    "two-humped",
    "few-blocks",
    "not-positive",
    "missing-blocks",
    "missing-series",
]


@dataclass(frozen=True)
class Interval:
    """A confidence interval.

    Args:
        low: Lower end; may be ``-inf`` if the data cannot bound it.
        high: Upper end; may be ``inf``.
        method: How it was made.
        confidence: Nominal coverage, e.g. 0.95.
    """

    low: float
    high: float
    method: IntervalMethod
    confidence: float

    @property
    def half_width(self) -> float:
        """Half of high − low, in the interval's own unit."""
        return (self.high - self.low) / 2

    def holds(self, value: float) -> bool:
        """Return whether ``value`` is within the interval, including its ends."""
        return self.low <= value <= self.high


class Key(NamedTuple):
    """The key of a comparison between arms: one metric of one workload in one scenario.

    Args:
        scenario: The scenario's name.
        workload: The workload's name.
        parameters: Its parameters as canonical JSON.
        role: The machine's role, normally ``subject``.
        metric: The metric's name.
    """

    scenario: str
    workload: str
    parameters: str
    role: str
    metric: str


class BlockValue(NamedTuple):
    """The value of one arm in one block: the mean over the block's repeats.

    Args:
        run: The run's identity.
        block: The block's number within the run.
        value: In the metric's unit (geometric mean of repeats on a ratio scale).
        repeats: Number of values whose mean it is.
    """

    run: str
    block: int
    value: float
    repeats: int


class OfMetric:
    """Base class of data about one metric, with the metric's properties."""

    metric: Metric

    @property
    def unit(self) -> str:
        """The SI unit of values."""
        return self.metric.unit

    @property
    def better(self) -> Better:
        """The direction that is an improvement."""
        return self.metric.better

    @property
    def kind(self) -> Kind:
        """``typical``, ``tail`` or ``maximum``."""
        return self.metric.kind

    @property
    def headline(self) -> bool:
        """Whether the report's first screen shows it for the workload."""
        return self.metric.headline


@dataclass(frozen=True)
class ArmSummary(OfMetric):
    """One metric of one arm over the blocks.

    Args:
        key: What was measured.
        arm: The arm.
        metric: The metric, in whose unit all values are.
        emulated: Whether the arm is emulated.
        blocks: Block values in order of run and block.
        mean: Arithmetic mean over blocks.
        median: Median over blocks.
        least: Least block value.
        greatest: Greatest block value (for a maximum, the greatest value ever measured).
        deviation: Standard deviation over blocks (n − 1); None with one block.
        error: hwang2013's E = t(α/2)·s/√n of the mean, in ``unit``; None with one block, and for
            tails and maxima, which have no t-interval.
        interval: For the mean by Student's t (``typical``), for the median by order statistics
            (``tail``, ``maximum``); None if there are too few blocks.
        centre: The estimate of ``interval``: the value of ``mean`` or ``median``.
    """

    key: Key
    arm: str
    metric: Metric
    emulated: bool
    blocks: tuple[BlockValue, ...]
    mean: float
    median: float
    least: float
    greatest: float
    deviation: float | None
    error: float | None
    interval: Interval | None
    centre: float


@dataclass(frozen=True)
class Flag:
    """Something a reader must know about a result: its kind and a sentence."""

    kind: FlagKind
    text: str


@dataclass(frozen=True)
class Robust:
    """A robust estimate with its interval, on the scale of the effect that it belongs to."""

    estimate: float
    interval: Interval


@dataclass(frozen=True)
class Effect(OfMetric):
    """One metric of one arm against the baseline.

    Args:
        key: What is compared.
        arm: The arm.
        baseline: The arm it is compared with.
        metric: The metric, in whose unit both summaries are (the estimate itself is a ratio, or in
            that unit).
        emulated: Whether the arm or the baseline is emulated: mark it everywhere.
        family: The family that ``adjusted_p`` is corrected over: the arm's ``headline`` metrics,
            its others (``detail``, reported as exploratory), ``control`` for the A/A pair, or
            ``pairs`` for all pairs of arms.
        scale: ``ratio`` (arm ÷ baseline; null value 1), or ``difference`` (arm − baseline in
            ``unit``; null value 0) if values of zero or below make ratios impossible.
        blocks: Number of blocks in which both arms have a value.
        arm_summary: The arm's values (all its blocks).
        baseline_summary: The baseline's values (all its blocks).
        block_effects: Ratio (or difference) of each shared block, in order.
        estimate: The effect: geometric mean of the block ratios (``typical``) or their median
            (``tail``, ``maximum``); differences likewise.
        interval: The interval to show: ``student_t`` for ``typical`` and for differences,
            ``order`` otherwise, extended by what the values' grid hides; of the trimmed mean if
            the study asks for it. None with too few blocks for any verdict, because a narrow
            interval would mislead.
        student_t: Student-t interval over the block log-ratios, on the ratio scale.
        bootstrap: Hierarchical bootstrap interval of the same estimate (boot-level for tails and
            maxima).
        order: Order-statistic interval of the median block ratio.
        robust: Hodges–Lehmann estimate of the same with Wilcoxon's interval, which a few outlying
            boots do not move; None with too few blocks.
        half_width: Relative half-width of ``interval`` (ratio scale: √(high/low) − 1, the
            figure that the stopping rule uses); None without interval.
        p: Two-sided p of flipping blocks' signs; None with fewer than two blocks.
        p_least: The least p that so many blocks can reach.
        adjusted_p: ``p`` corrected over the family by max-T; None without ``p``.
        noise_floor: The largest difference that the A/A pair does not exclude for the same key, as
            a diagnostic; None without such a pair.
        margin: The practical margin: relative for ratios, in ``unit`` for differences.
        verdict: One word, see `tare.analysis.effects.verdict`.
        sentence: The verdict as a whole English sentence.
        flags: Facts that the reader must know.
        widened: The factor by which ``interval`` is wider than for independent blocks; more than 1
            if blocks are correlated over time.
        each: The unit of ``blocks``: a ``block``, or a ``round`` of sessions in which arm and
            baseline were measured in turns.
        compared: The arm's value and the baseline's over the shared blocks, as the estimate
            compares them: geometric means for ratios, means for differences, medians for tails and
            maxima. None if they were left out.
        step: The step that recorded values are rounded to, in their unit; 0 if none is found.
        trimmed: Whether ``estimate``, ``interval`` and ``p`` are of the trimmed mean of the blocks.
            ``student_t`` is then still of the mean of all.
    """

    key: Key
    arm: str
    baseline: str
    metric: Metric
    emulated: bool
    family: Family
    scale: Scale
    blocks: int
    arm_summary: ArmSummary
    baseline_summary: ArmSummary
    block_effects: tuple[BlockValue, ...]
    estimate: float
    interval: Interval | None
    student_t: Interval | None
    bootstrap: Interval | None
    order: Interval | None
    robust: Robust | None
    half_width: float | None
    p: float | None
    p_least: float
    adjusted_p: float | None
    noise_floor: float | None
    margin: float
    verdict: VerdictWord
    sentence: str
    flags: tuple[Flag, ...] = ()
    widened: float = 1.0
    step: float = 0.0
    each: Each = "block"
    compared: tuple[float, float] | None = None
    trimmed: bool = False

    @property
    def follows(self) -> bool:
        """Whether the estimate is, to 0.5 %, the ratio or difference of the two ``compared``.

        It is not if it is the median of the blocks' own ratios, because that differs from the ratio
        of two medians. Nor is it if the positions of arms in a block are adjusted for, or if the
        mean is trimmed.
        """
        if self.compared is None:
            return True
        arm, baseline = self.compared
        if self.scale == "difference":
            size = max(abs(arm), abs(baseline), abs(self.estimate))
            return abs(arm - baseline - self.estimate) <= 0.005 * size
        return abs(arm - baseline * self.estimate) <= 0.005 * abs(arm)

    @property
    def null(self) -> float:
        """The estimate of two equal arms: 1 for a ratio, 0 for a difference."""
        return 1.0 if self.scale == "ratio" else 0.0

    @property
    def seldom(self) -> bool:
        """Whether it counts events that many boots do not have, so that means are compared."""
        return any(flag.kind == "seldom" for flag in self.flags)

    @property
    def overhead(self) -> float | None:
        """The relative cost against the baseline: 0.25 = a quarter worse, −0.1 = a tenth better.

        For ``better = higher`` it is 1/ratio − 1 (the same work takes so much longer), else
        ratio − 1. None on a difference scale.
        """
        return self._cost(self.estimate)

    @property
    def overhead_interval(self) -> tuple[float, float] | None:
        """The ends of ``interval`` as overheads, lower one first; None without them."""
        if self.interval is None:
            return None
        ends = self._cost(self.interval.low), self._cost(self.interval.high)
        if ends[0] is None or ends[1] is None:
            return None
        return min(ends[0], ends[1]), max(ends[0], ends[1])

    @property
    def not_excluded(self) -> float | None:
        """The greatest cost that the interval does not exclude.

        It is relative on a ratio scale (0.14 is 14 %), otherwise in ``unit``. It is 0 if every cost
        is excluded, and None without interval. For metrics without a better direction it is the
        end further from even. On the scale of differences it is infinite if no block has any
        difference: a value of 0 in every boot of both arms does not bound the cost.
        """
        return cost_not_excluded(self.interval, self.scale, self.better)

    def _cost(self, ratio: float) -> float | None:
        if self.scale != "ratio":
            return None
        if self.better == "higher":
            return 1 / ratio - 1 if ratio > 0 else float("inf")
        return ratio - 1


def as_cost(ratio: float, better: Better) -> float:
    """Return a ratio of an arm to its baseline as a cost: above 1 is worse.

    If more is better, the ratio is inverted. If neither direction is better, it is unchanged.
    """
    if better != "higher":
        return ratio
    return 1 / ratio if ratio > 0 else math.inf


def cost_ends(low: float, high: float, better: Better) -> tuple[float, float]:
    """Return the ends of a ratio's interval as costs, the lower one first."""
    if better != "higher":
        return low, high
    return (0.0 if math.isinf(high) else as_cost(high, better)), as_cost(low, better)


def cost_not_excluded(interval: Interval | None, scale: Scale, better: Better) -> float | None:
    """Return the greatest cost that an interval does not exclude, as in `Effect.not_excluded`."""
    if interval is None:
        return None
    low, high = interval.low, interval.high
    if scale == "difference":
        if low == high == 0:
            return math.inf
        ends = {"lower": (high,), "higher": (-low,), "neither": (high, -low)}[better]
        return max(0.0, *ends)
    ends = {
        "lower": (high - 1,),
        "higher": (reciprocal(low) - 1,),
        "neither": (high - 1, reciprocal(low) - 1),
    }[better]
    return max(0.0, *ends)


def reciprocal(value: float) -> float:
    """Return 1 / value; infinite for 0 and below."""
    return 1 / value if value > 0 else float("inf")
