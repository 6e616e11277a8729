"""Estimates and intervals of effects from values by block, before any test or verdict."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from tare.analysis.data.grouping import Block, BlockId, Measured, logs_of
from tare.analysis.effects.results import (
    BlockValue,
    Each,
    Interval,
    IntervalMethod,
    Key,
    Robust,
    Scale,
)
from tare.analysis.statistics.bootstrap import (
    Nested,
    nest,
    nest_singles,
    paired_interval,
    seed_from,
)
from tare.analysis.statistics.logratio import error_of_mean
from tare.analysis.statistics.position import Adjusted, adjust_for_position
from tare.analysis.statistics.resolution import (
    NANOSECOND,
    decimal_step,
    grid_step,
    log_widening,
)
from tare.analysis.statistics.robust import hodges_lehmann
from tare.analysis.statistics.shared_slope import mean_at_equal, shared_slopes
from tare.analysis.statistics.shares import Share, exact_share
from tare.analysis.statistics.tails import boot_level_interval, median_interval
from tare.analysis.statistics.trimmed import trimmed_interval

SELDOM = 0.25
"""If at least this share of an arm's boots is 0, means are compared: a median would say little."""


@dataclass(frozen=True)
class Pair:
    """One arm against another for one key, in the blocks that both have.

    Args:
        key: The key of the comparison.
        arm: The arm.
        baseline: The other arm.
        measured: All values of the key.
        scale: Whether ratios or differences are compared.
        blocks: The blocks that both have.
        differences: Per block the log-ratio, or the difference in the metric's unit.
        later_by: Per block the arm's position minus the baseline's; empty if positions are not
            adjusted for.
        step: The step of the grid that the values are on, in their unit; 0 without one.
        twins: The baseline's arms, if two are taken together.
        places: The position of each arm, by block; empty if positions are not adjusted for.
        each: The unit of ``blocks``.
        slope: The growth of ``differences`` by position, shared by the metrics of the arm.
        taken: The share of a degree of freedom that it takes; 0: the slope is the pair's own.
        trimmed: Whether the trimmed mean of the differences is estimated and tested.
        tested_by: As ``later_by``, for tests, which have a slope of their own.
    """

    key: Key
    arm: str
    baseline: str
    measured: Measured
    scale: Scale
    blocks: tuple[BlockId, ...]
    differences: tuple[float, ...]
    later_by: tuple[float, ...] = ()
    step: float = 0.0
    twins: tuple[str, ...] = ()
    places: Mapping[BlockId, Mapping[str, float]] = field(default_factory=dict)
    each: Each = "block"
    slope: float = 0.0
    taken: float = 0.0
    trimmed: bool = False
    tested_by: tuple[float, ...] = ()

    @property
    def adjusted(self) -> tuple[float, ...]:
        """The differences at equal positions, by the slope that the metrics of the arm share."""
        if not self.taken:
            return self.differences
        both = zip(self.differences, self.later_by, strict=True)
        return tuple(difference - self.slope * later for difference, later in both)

    @property
    def typical(self) -> bool:
        """Whether the mean is estimated; for tails and maxima it is the median, if usable."""
        return self.measured.kind == "typical" or self.seldom

    @property
    def seldom(self) -> bool:
        """Whether the metric counts events that many boots do not have, in either arm."""
        if self.scale == "ratio":
            return False
        return any(
            sum(values[block] == 0 for block in self.blocks) >= SELDOM * len(self.blocks)
            for values in (self.over, self.under)
        )

    @property
    def over(self) -> dict[BlockId, float]:
        """The arm's values by block."""
        return self.measured.values(self.arm, logs=self.scale == "ratio")

    @property
    def under(self) -> dict[BlockId, float]:
        """The baseline's values by block."""
        return self.measured.values(self.baseline, logs=self.scale == "ratio")

    def outward(self, difference: float) -> float:
        """Return a difference on the shown scale: a ratio, or a value in the metric's unit."""
        return difference if self.scale == "difference" else _ratio_of(difference)

    @property
    def hidden(self) -> float:
        """How far each end of the interval moves out for the values' grid, on the inner scale."""
        if not self.step or self.scale == "difference":
            return self.step
        arm, baseline = (statistics.median(side.values()) for side in (self.over, self.under))
        return log_widening(self.step, arm, baseline)

    @property
    def compared(self) -> tuple[float, float]:
        """The arm's value and the baseline's over the shared blocks, as the estimate uses them."""
        over, under = ([side[block] for block in self.blocks] for side in (self.over, self.under))
        if not self.typical:
            return statistics.median(over), statistics.median(under)
        if self.scale == "ratio":
            return _geometric_mean(over), _geometric_mean(under)
        return math.fsum(over) / len(over), math.fsum(under) / len(under)

    def block_effects(self) -> tuple[BlockValue, ...]:
        """Return the effect of each shared block on the shown scale."""
        arm, base = self.measured.arms[self.arm], self.measured.arms[self.baseline]
        repeats = [min(len(arm[block]), len(base[block])) for block in self.blocks]
        values: Iterable[float] = self.differences
        if self.scale == "ratio":
            values = map(_ratio_of, self.differences)
        return tuple(
            [
                BlockValue(run, number, value, count)
                for (run, number), value, count in zip(self.blocks, values, repeats, strict=True)
            ]
        )


@dataclass(frozen=True)
class Estimate:
    """The estimates of a pair from its blocks, on the shown scale.

    Args:
        estimate: Geometric mean (median for tails) of block ratios, or of differences.
        student_t: Student-t interval; typical values only.
        bootstrap: Hierarchical bootstrap interval of the same estimate.
        order: Order-statistic interval of the median.
        robust: Hodges–Lehmann's estimate and its interval; None with too few blocks.
        trimmed: The interval of the trimmed mean; None: means of all blocks are compared.
    """

    estimate: float
    student_t: Interval | None
    bootstrap: Interval | None
    order: Interval | None
    robust: Robust | None
    trimmed: Interval | None = None


def _geometric_mean(values: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def _ratio_of(difference: float) -> float:
    """Return the ratio for a difference of logarithms."""
    return math.exp(difference) if difference < 700 else math.inf


Places = Mapping[BlockId, Mapping[str, float]]
"""The position of each arm by block, in one scenario."""


def pair_up(
    key: Key, measured: Measured, arm: str, baseline: str, places: Places | None = None
) -> Pair | None:
    """Return the pair, or None if the arms share no block.

    Args:
        key: The key of the comparison.
        measured: Its values.
        arm: The arm.
        baseline: The other arm.
        places: The positions of the arms, if they are to be adjusted for.
    """
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
    later_by = _position_differences(places, shared, arm, baseline) if places is not None else ()
    return Pair(
        key, arm, baseline, measured, scale, shared, tuple(differences), later_by,
        rounding_step(measured.unit, [*measured.raw(arm), *measured.raw(baseline)]),
    )  # fmt: skip


def rare_events(differences: Sequence[float], margin: float, error: float) -> Share | None:
    """Return the share of blocks whose difference is beyond the margin; None without rare events.

    Differences are rare if they have no spread, or if they are 0 in many blocks. An interval of
    their mean ignores events that did not happen yet.

    Args:
        differences: The difference of each block, in the metric's unit.
        margin: The practical margin, in that unit.
        error: The one-sided rate at which the true share may exceed the upper end.
    """
    blocks = len(differences)
    zeros = sum(difference == 0 for difference in differences)
    if len(set(differences)) > 1 and zeros < SELDOM * blocks:
        return None
    beyond = sum(abs(difference) > margin for difference in differences)
    return exact_share(beyond, blocks, 1 - 2 * error)


def _position_differences(
    places: Places, blocks: Sequence[BlockId], arm: str, baseline: str
) -> tuple[float, ...]:
    """Return the arm's positions minus the baseline's; empty if a position is unknown."""
    known = [places.get(block, {}) for block in blocks]
    if not all(arm in place and baseline in place for place in known):
        return ()
    return tuple(place[arm] - place[baseline] for place in known)


def timed(unit: str) -> bool:
    """Return whether a unit is one of durations or rates."""
    return unit == "s" or unit.endswith("/s")


def rounding_step(unit: str, values: Sequence[float]) -> float:
    """Return the step that recorded values are rounded to; 0 if none is found.

    Means over iterations, repeats or boots are not on a grid, so only recorded values are checked.
    A duration or a rate is on a grid if a clock has coarse steps, or if few pieces of work were
    done in a given time. Any value is on a grid if a program rounds its output. Whole counts and
    whole bytes are exact.

    Args:
        unit: The values' unit.
        values: The recorded values of all boots and of both arms.
    """
    if timed(unit):
        found = grid_step(values, NANOSECOND if unit == "s" else 0.0)
        return found or decimal_step(values)
    found = decimal_step(values)
    return 0.0 if found >= 1 and unit in ("1", "B") else found


def estimate_all(
    pairs: Sequence[Pair], confidence: float, seed: str, *, resampled: bool = True
) -> tuple[Estimate, ...]:
    """Return the estimates of all pairs.

    Args:
        pairs: The pairs.
        confidence: Nominal coverage of all intervals.
        seed: Text that all draws depend on, so that the same run gives the same intervals.
        resampled: Whether to add bootstrap intervals, which no verdict uses.
    """
    bootstraps = _bootstraps(pairs, confidence, seed) if resampled else {}
    robust = _robust(pairs, confidence)
    return tuple(
        _estimate(pair, confidence, bootstraps.get(i), robust.get(i), seed if resampled else None)
        for i, pair in enumerate(pairs)
    )


def _estimate(
    pair: Pair,
    confidence: float,
    bootstrap: tuple[float, float] | None,
    robust: Robust | None,
    seed: str | None,
) -> Estimate:
    sample = pair.differences
    centre = math.fsum(sample) / len(sample) if pair.typical else statistics.median(sample)
    student, order, cut = None, None, None
    if pair.typical and len(sample) >= 2:
        error = error_of_mean(sample, confidence)
        equal = at_equal_places(pair, confidence)
        if equal is not None:
            centre, error = equal
        student = (centre - error, centre + error)
    if pair.trimmed and len(sample) >= 2:
        found = trimmed_interval(sample, confidence)
        centre, cut = float(found.mean), (float(found.low), float(found.high))
    if len(sample) >= 2:
        order = median_interval(sample, confidence)
    if seed is not None and not pair.typical and len(sample) >= 2:
        bootstrap = boot_level_interval(sample, confidence, seed_from(seed, "boots"))
    resampled: IntervalMethod = "hierarchical-bootstrap" if pair.typical else "boot-level-bootstrap"
    return Estimate(
        estimate=pair.outward(centre),
        student_t=outward(pair, student, "student-t", confidence),
        bootstrap=outward(pair, bootstrap, resampled, confidence),
        order=outward(pair, order, "order-statistic", confidence),
        robust=robust,
        trimmed=outward(pair, cut, "trimmed", confidence),
    )


def at_equal_places(pair: Pair, confidence: float) -> Adjusted | None:
    """Return the mean at equal positions in the block; None if positions are not adjusted for."""
    if not pair.later_by:
        return None
    if not pair.taken:
        return adjust_for_position(pair.differences, pair.later_by, confidence)
    return mean_at_equal(pair.differences, pair.later_by, pair.slope, pair.taken, confidence)


def with_trimmed_means(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the pairs with trimmed means where means of ratios are compared.

    Tails and maxima are medians anyway. Counts of rare events need the mean of all boots: trimming
    would leave out the events.

    Args:
        pairs: The pairs, without positions: a study of trimmed means does not adjust for them.
    """
    return [replace(pair, trimmed=pair.typical and pair.scale == "ratio") for pair in pairs]


def sharing_a_slope(pairs: Sequence[Pair]) -> list[list[int]]:
    """Group the indices of pairs whose metrics share the slope of their positions."""
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for i, pair in enumerate(pairs):
        if pair.tested_by:
            alone = pair.key if pair.scale == "difference" else None
            headline = pair.measured.headline
            groups[pair.arm, pair.baseline, pair.blocks, headline, alone].append(i)
    return list(groups.values())


def cost_signs(pairs: Sequence[Pair]) -> NDArray[np.float64]:
    """Return -1 for metrics where more is better, else 1: a slower boot has smaller rates."""
    return np.array([-1.0 if pair.measured.better == "higher" else 1.0 for pair in pairs])


def with_shared_slopes(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the pairs with the slopes of their positions, shared by the metrics of each arm.

    Positions are not adjusted for if nothing shows that they matter. Tails and maxima are medians,
    and have no slope.

    Args:
        pairs: The pairs of all arms.
    """
    found = [
        replace(pair, tested_by=pair.later_by) if pair.typical else replace(pair, later_by=())
        for pair in pairs
    ]
    for indices in sharing_a_slope(found):
        members = [pairs[i] for i in indices]
        signs = cost_signs(members)
        costs = signs[:, None] * np.array([p.differences for p in members])
        slopes = shared_slopes(costs, [p.later_by for p in members])
        each = zip(indices, (signs * slopes.slope).tolist(), slopes.taken.tolist(), strict=True)
        for i, slope, taken in each:
            later_by = pairs[i].later_by if taken else ()
            found[i] = replace(found[i], later_by=later_by, slope=slope, taken=taken)
    return found


def _robust(pairs: Sequence[Pair], confidence: float) -> dict[int, Robust]:
    """Return robust estimates by index of the pair, except those with an unbounded interval."""
    by_size: dict[int, list[int]] = defaultdict(list)
    for i, pair in enumerate(pairs):
        by_size[len(pair.blocks)].append(i)
    found = {}
    for indices in by_size.values():
        rows = hodges_lehmann([pairs[i].differences for i in indices], confidence)
        for i, centre, low, high in zip(indices, *(ends.tolist() for ends in rows), strict=True):
            interval = outward(pairs[i], (low, high), "wilcoxon", confidence)
            if interval is not None and math.isfinite(low):
                found[i] = Robust(pairs[i].outward(centre), interval)
    return found


def outward(
    pair: Pair, ends: tuple[float, float] | None, method: IntervalMethod, confidence: float
) -> Interval | None:
    """Return an interval on the shown scale, extended by what the values' grid hides.

    Args:
        pair: Its pair.
        ends: Its ends on the inner scale: log-ratios, or differences.
        method: How it was made.
        confidence: Its nominal coverage.
    """
    if ends is None:
        return None
    if pair.step:
        ends = ends[0] - pair.hidden, ends[1] + pair.hidden
    return Interval(pair.outward(ends[0]), pair.outward(ends[1]), method, confidence)


def _bootstraps(
    pairs: Sequence[Pair], confidence: float, seed: str
) -> dict[int, tuple[float, float]]:
    """Return the ends of bootstrap intervals by index of the pair.

    Typical pairs whose blocks have the same structure are resampled together.
    """
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
