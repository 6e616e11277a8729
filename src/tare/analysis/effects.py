"""From values by block to effects: estimates, intervals and tests, before any verdict."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tare.analysis.grouping import Block, BlockId, Measured, logs_of
from tare.analysis.results import ArmSummary, BlockValue, Interval, IntervalMethod, Key, Scale
from tare.analysis.statistics.bootstrap import (
    Nested,
    nest,
    nest_singles,
    paired_interval,
    seed_from,
)
from tare.analysis.statistics.logratio import deviation, error_of_mean
from tare.analysis.statistics.permutation import sign_flip_p
from tare.analysis.statistics.tails import boot_level_interval, median_interval


@dataclass(frozen=True)
class Pair:
    """One arm against another for one key, in the blocks that both have.

    Args:
        key: What is compared.
        arm: The arm.
        baseline: The other arm.
        measured: All values of the key.
        scale: Whether ratios or differences are compared.
        blocks: The blocks that both have.
        differences: Per block the log-ratio, or the difference in the metric's unit.
    """

    key: Key
    arm: str
    baseline: str
    measured: Measured
    scale: Scale
    blocks: tuple[BlockId, ...]
    differences: tuple[float, ...]

    @property
    def typical(self) -> bool:
        """Whether the mean is estimated; of tails and maxima it is the median."""
        return self.measured.kind == "typical"

    def outward(self, difference: float) -> float:
        """Return a difference on the scale that is shown: a ratio, or in the metric's unit."""
        if self.scale == "difference":
            return difference
        return math.exp(difference) if difference < 700 else math.inf

    def block_effects(self) -> tuple[BlockValue, ...]:
        """Return the effect of each shared block, on the scale that is shown."""
        arm, base = self.measured.arms[self.arm], self.measured.arms[self.baseline]
        outward = self.outward
        return tuple(
            [
                BlockValue(run, number, outward(value), min(len(arm[block]), len(base[block])))
                for block, value in zip(self.blocks, self.differences, strict=True)
                for run, number in [block]
            ]
        )


@dataclass(frozen=True)
class Estimate:
    """What the blocks say of a pair, on the scale that is shown.

    Args:
        estimate: Geometric mean (median for tails) of block ratios, or of differences.
        student_t: Student-t interval; typical values only.
        bootstrap: Hierarchical bootstrap interval of the same estimate.
        order: Order-statistic interval of the median.
        p: Permutation p-value; None with fewer than two blocks.
    """

    estimate: float
    student_t: Interval | None
    bootstrap: Interval | None
    order: Interval | None
    p: float | None


def pair_up(key: Key, measured: Measured, arm: str, baseline: str) -> Pair | None:
    """Return the pair, or None when the arms share no block."""
    ours, theirs = measured.arms.get(arm, {}), measured.arms.get(baseline, {})
    shared = tuple([block for block in ours if block in theirs])
    if not shared:
        return None
    ratio = measured.positive((arm, baseline))
    over, under = measured.values(arm, logs=ratio), measured.values(baseline, logs=ratio)
    if ratio:
        log = math.log
        differences = [log(over[block]) - log(under[block]) for block in shared]
    else:
        differences = [over[block] - under[block] for block in shared]
    scale: Scale = "ratio" if ratio else "difference"
    return Pair(key, arm, baseline, measured, scale, shared, tuple(differences))


def estimate_all(pairs: Sequence[Pair], confidence: float, seed: str) -> tuple[Estimate, ...]:
    """Return the estimates of all pairs.

    Args:
        pairs: The pairs.
        confidence: Nominal coverage of all intervals.
        seed: Text that all draws depend on, so that the same run gives the same intervals.
    """
    bootstraps = _bootstraps(pairs, confidence, seed)
    p_values = _p_values(pairs, seed)
    return tuple(
        _estimate(pair, confidence, bootstraps.get(i), p_values.get(i), seed)
        for i, pair in enumerate(pairs)
    )


def _estimate(
    pair: Pair,
    confidence: float,
    bootstrap: tuple[float, float] | None,
    p: float | None,
    seed: str,
) -> Estimate:
    sample = pair.differences
    centre = math.fsum(sample) / len(sample) if pair.typical else statistics.median(sample)
    student, order = None, None
    if pair.typical and len(sample) >= 2:
        error = error_of_mean(sample, confidence)
        student = (centre - error, centre + error)
    if len(sample) >= 2:
        order = median_interval(sample, confidence)
    if not pair.typical and len(sample) >= 2:
        bootstrap = boot_level_interval(sample, confidence, seed_from(seed, "boots"))
    resampled: IntervalMethod = "hierarchical-bootstrap" if pair.typical else "boot-level-bootstrap"
    return Estimate(
        estimate=pair.outward(centre),
        student_t=_outward(pair, student, "student-t", confidence),
        bootstrap=_outward(pair, bootstrap, resampled, confidence),
        order=_outward(pair, order, "order-statistic", confidence),
        p=p,
    )


def _outward(
    pair: Pair, ends: tuple[float, float] | None, method: IntervalMethod, confidence: float
) -> Interval | None:
    if ends is None:
        return None
    return Interval(pair.outward(ends[0]), pair.outward(ends[1]), method, confidence)


def _p_values(pairs: Sequence[Pair], seed: str) -> dict[int, float]:
    """Return p-values by index, all pairs of equally many blocks at once."""
    by_size: dict[int, list[int]] = defaultdict(list)
    for i, pair in enumerate(pairs):
        if len(pair.blocks) >= 2:
            by_size[len(pair.blocks)].append(i)
    found: dict[int, float] = {}
    for indices in by_size.values():
        rows = np.array([pairs[i].differences for i in indices])
        found.update(zip(indices, sign_flip_p(rows, seed_from(seed, "flips")), strict=True))
    return {i: float(p) for i, p in found.items()}


def _bootstraps(
    pairs: Sequence[Pair], confidence: float, seed: str
) -> dict[int, tuple[float, float]]:
    """Return bootstrap ends by index, all typical pairs of one structure at once."""
    batches: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for i, pair in enumerate(pairs):
        if pair.typical and len(pair.blocks) >= 2:
            batches[(_structure(pair, pair.arm), _structure(pair, pair.baseline))].append(i)
    found: dict[int, tuple[float, float]] = {}
    for indices in batches.values():
        sides = (
            _stack(_nested(pairs[i], pairs[i].arm) for i in indices),
            _stack(_nested(pairs[i], pairs[i].baseline) for i in indices),
        )
        low, high = paired_interval(*sides, confidence, seed_from(seed, "bootstrap"))
        found.update(zip(indices, zip(low.tolist(), high.tolist(), strict=True), strict=True))
    return found


def _structure(pair: Pair, arm: str) -> tuple[tuple[int, ...], ...]:
    if pair.measured.single(arm):
        return ((1,),) * len(pair.blocks)
    values = pair.measured.arms[arm]
    return tuple(tuple(len(repeat) for repeat in values[block]) for block in pair.blocks)


def _nested(pair: Pair, arm: str) -> Nested:
    values = pair.measured.arms[arm]
    if pair.measured.single(arm):
        singles = [values[block][0][0] for block in pair.blocks]
        return nest_singles(list(map(math.log, singles)) if pair.scale == "ratio" else singles)
    blocks: list[Block] = [values[block] for block in pair.blocks]
    return nest([logs_of(block) for block in blocks] if pair.scale == "ratio" else blocks)


def _stack(nested: Iterable[Nested]) -> Nested:
    every = list(nested)
    return Nested(np.concatenate([n.values for n in every]), every[0].repeats, every[0].iterations)


def summarise_arm(
    key: Key, measured: Measured, arm: str, *, emulated: bool, confidence: float
) -> ArmSummary:
    """Return one arm's values over all its blocks, whatever the other arms have."""
    blocks = measured.arms[arm]
    means = measured.values(arm, logs=measured.positive((arm,)))
    sample = list(means.values())
    values = tuple(
        [
            BlockValue(run, number, value, len(block))
            for ((run, number), block), value in zip(blocks.items(), sample, strict=True)
        ]
    )
    typical = measured.kind == "typical"
    mean, median = math.fsum(sample) / len(sample), statistics.median(sample)
    interval, error = None, None
    if typical and len(sample) >= 2:
        error = error_of_mean(sample, confidence)
        interval = Interval(mean - error, mean + error, "student-t", confidence)
    elif len(sample) >= 2:
        ends = median_interval(sample, confidence)
        interval = Interval(*ends, "order-statistic", confidence) if ends else None
    greatest = max(sample)
    if measured.kind == "maximum":
        greatest = max(measured.pooled(arm))
    return ArmSummary(
        key=key,
        arm=arm,
        unit=measured.unit,
        better=measured.better,
        kind=measured.kind,
        headline=measured.headline,
        emulated=emulated,
        blocks=values,
        mean=mean,
        median=median,
        least=min(sample),
        greatest=greatest,
        deviation=deviation(sample) if len(sample) >= 2 else None,
        error=error,
        interval=interval,
        centre=mean if typical else median,
    )
