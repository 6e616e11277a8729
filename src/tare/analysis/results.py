"""A comparison as data: effects, intervals, tests and verdicts. Nothing here does anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from tare.analysis.rundata import RunData

Better = Literal["higher", "lower", "neither"]
Kind = Literal["typical", "tail", "maximum"]
Scale = Literal["ratio", "difference"]
Family = Literal["headline", "detail", "control"]
IntervalMethod = Literal[
    "student-t", "hierarchical-bootstrap", "boot-level-bootstrap", "order-statistic"
]
VerdictWord = Literal[
    "better",
    "worse",
    "differs",
    "dead heat",
    "not distinguishable",
    "undecided",
    "too few blocks",
]
FlagKind = Literal[
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
        low: Lower end; may be ``-inf`` when the data cannot bound it.
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
        """Whether ``value`` lies within, ends included."""
        return self.low <= value <= self.high


class Key(NamedTuple):
    """What is compared between arms: one metric of one workload in one scenario.

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
        repeats: How many values it is made of.
    """

    run: str
    block: int
    value: float
    repeats: int


@dataclass(frozen=True)
class ArmSummary:
    """One metric of one arm over the blocks.

    Args:
        key: What was measured.
        arm: The arm.
        unit: SI unit of all values here.
        better: Which direction is an improvement.
        kind: ``typical``, ``tail`` or ``maximum``.
        headline: Whether it stands for the workload on the first screen.
        emulated: Whether the arm is emulated.
        blocks: Block values in order of run and block.
        mean: Arithmetic mean over blocks.
        median: Median over blocks.
        least: Least block value.
        greatest: Greatest block value (of a maximum: the greatest value ever seen).
        deviation: Standard deviation over blocks (n − 1); None with one block.
        error: Seed 002's E = t(α/2)·s/√n of the mean, in ``unit``; None with one block, and for
            tails and maxima, which have no t-interval.
        interval: Of the mean by Student's t (``typical``), of the median by order statistics
            (``tail``, ``maximum``); None when there are too few blocks.
        centre: What ``interval`` is about: ``mean`` or ``median``'s value.
    """

    key: Key
    arm: str
    unit: str
    better: Better
    kind: Kind
    headline: bool
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
class Effect:
    """One metric of one arm against the baseline.

    Args:
        key: What is compared.
        arm: The arm.
        baseline: The arm it is compared with.
        unit: SI unit of the two summaries (the estimate itself is a ratio, or in ``unit``).
        better: Which direction is an improvement.
        kind: ``typical``, ``tail`` or ``maximum``.
        headline: Whether it stands for the workload on the first screen.
        emulated: Whether the arm or the baseline is emulated: mark it everywhere.
        family: Which tests its q-value was corrected over: ``headline``, ``detail``, or
            ``control`` for the A/A pair, which is tested alone.
        scale: ``ratio`` (arm ÷ baseline; null value 1), or ``difference`` (arm − baseline in
            ``unit``; null value 0) where values of zero or below make ratios impossible.
        blocks: Number of blocks in which both arms have a value.
        arm_summary: The arm's values (all its blocks).
        baseline_summary: The baseline's values (all its blocks).
        block_effects: Ratio (or difference) of each shared block, in order.
        estimate: The effect: geometric mean of the block ratios (``typical``) or their median
            (``tail``, ``maximum``); differences likewise.
        interval: The interval to show: ``student_t`` for ``typical``, ``order`` otherwise; None
            with too few blocks.
        student_t: Student-t interval over the block log-ratios, on the ratio scale.
        bootstrap: Hierarchical (of tails and maxima: boot-level) bootstrap interval of the same
            estimate.
        order: Order-statistic interval of the median block ratio.
        half_width: Relative half-width of ``interval`` (ratio scale: √(high/low) − 1, the
            figure that the stopping rule looks at); None without interval.
        p: Two-sided block-paired permutation p-value; None with fewer than two blocks.
        p_least: The least p that so many blocks can reach.
        q: ``p`` after Benjamini–Hochberg within the family; None without ``p``.
        noise_floor: Relative size below which a difference is not distinguishable, from the A/A
            pair for the same key; None without one.
        margin: The practical margin, relative.
        verdict: One word or two, see `tare.analysis.verdict`.
        sentence: The verdict as a whole English sentence.
        flags: What the reader must know.
    """

    key: Key
    arm: str
    baseline: str
    unit: str
    better: Better
    kind: Kind
    headline: bool
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
    half_width: float | None
    p: float | None
    p_least: float
    q: float | None
    noise_floor: float | None
    margin: float
    verdict: VerdictWord
    sentence: str
    flags: tuple[Flag, ...] = ()

    @property
    def null(self) -> float:
        """The estimate of two equal arms: 1 for a ratio, 0 for a difference."""
        return 1.0 if self.scale == "ratio" else 0.0

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

    def _cost(self, ratio: float) -> float | None:
        if self.scale != "ratio":
            return None
        if self.better == "higher":
            return 1 / ratio - 1 if ratio > 0 else float("inf")
        return ratio - 1


@dataclass(frozen=True)
class Correction:
    """How one family of tests was corrected for their number (Benjamini–Hochberg).

    Args:
        family: Its name.
        tests: How many p-values it holds.
        declared: How many have q below ``level``.
        level: The false discovery rate kept.
        p_least: The least p reachable with the blocks at hand (None without tests).
    """

    family: Family
    tests: int
    declared: int
    level: float
    p_least: float | None


@dataclass(frozen=True)
class ProofDifference:
    """One difference between the environment proofs of an arm and the baseline.

    Args:
        arm: The arm.
        path: Where in the proof, e.g. ``cpu.flags`` or ``kernel.release``.
        baseline_value: As text; ``(absent)`` where it is missing.
        arm_value: As text; ``(absent)`` where it is missing.
        explains: Whether it could explain a result.
        why: How it could, in a sentence; empty otherwise.
        varies: Whether the value differed between machines of one arm as well (values are
            those of the first machines then).
    """

    arm: str
    path: str
    baseline_value: str
    arm_value: str
    explains: bool
    why: str
    varies: bool


@dataclass(frozen=True)
class HostCost:
    """What an arm's machines cost the host, per machine.

    Args:
        arm: The arm.
        scenario: The scenario.
        machines: How many machines the figures are from.
        boot_s: Median boot time in seconds; None if none got there.
        cpu_s: Median CPU seconds of a machine on the host; None if not recorded.
        rss_bytes: Median resident memory on the host; None if not recorded.
        emulated: Whether the arm is emulated.
    """

    arm: str
    scenario: str
    machines: int
    boot_s: float | None
    cpu_s: float | None
    rss_bytes: float | None
    emulated: bool


@dataclass(frozen=True)
class ArmVerdict:
    """The headline results of one arm in words, for the first screen.

    Args:
        arm: The arm.
        emulated: Whether it is emulated.
        sentence: The verdict over its headline metrics.
        worse: How many headline effects are worse.
        better: How many are better.
        even: How many are dead heats or not distinguishable.
        undecided: How many are undecided, differ without direction, or have too few blocks.
    """

    arm: str
    emulated: bool
    sentence: str
    worse: int
    better: int
    even: int
    undecided: int


@dataclass(frozen=True)
class Comparison:
    """All arms of one study against its baseline, over the blocks of one or more runs.

    Args:
        runs: The runs that were combined.
        title: The study's title.
        baseline: The baseline arm.
        arms: All arms with a value, baseline first, in the study's order.
        aa_pair: The A/A pair, or None.
        confidence: Nominal coverage of all intervals.
        margin: Practical margin, relative.
        level: False discovery rate for verdicts.
        blocks: Number of blocks in which anything counted, over all runs.
        effects: One per key and arm other than the baseline (the A/A pair's second arm is not
            among them if the first is the baseline: it is in ``aa``).
        aa: The A/A pair's effects, one per key.
        summaries: One per key and arm, the baseline's too.
        families: How tests were corrected.
        arm_verdicts: Sentences for the first screen, one per arm.
        proof_differences: Differences between the arms' environment proofs and the baseline's,
            those that could explain a result first.
        host_costs: What machines cost the host.
        notes: What the reader must know about the whole (few blocks, other hosts, resumed,
            withheld cells ...), as sentences.
        own_baselines: The baseline on its own host, for each arm on another than ``baseline``'s.
    """

    runs: tuple[RunData, ...]
    title: str
    baseline: str
    arms: tuple[str, ...]
    aa_pair: tuple[str, str] | None
    confidence: float
    margin: float
    level: float
    blocks: int
    effects: tuple[Effect, ...]
    aa: tuple[Effect, ...]
    summaries: tuple[ArmSummary, ...]
    families: tuple[Correction, ...]
    arm_verdicts: tuple[ArmVerdict, ...]
    proof_differences: tuple[ProofDifference, ...]
    host_costs: tuple[HostCost, ...]
    notes: tuple[str, ...]
    own_baselines: Mapping[str, str] = field(default_factory=dict)

    @property
    def against(self) -> str:
        """What arms are compared with, in words."""
        return f"{self.baseline} on the same host" if self.own_baselines else self.baseline

    @property
    def headlines(self) -> tuple[Effect, ...]:
        """The effects for the first screen."""
        return tuple(effect for effect in self.effects if effect.headline)
