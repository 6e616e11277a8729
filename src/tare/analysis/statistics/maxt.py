"""Test many metrics of one arm at once: studentised max-T by flipping the signs of whole blocks.

Within a block the order of arms is random, so under the null hypothesis arm and baseline could
exchange names. That flips the sign of *all* of the block's differences together, which keeps the
correlation of metrics (Westfall & Young 1993, §2.6, free step-down; the exactness of flips:
Fisher 1935, Romano & Wolf 2005). Unlike a p-value that is multiplied by the number of metrics,
the least adjusted p does not grow with it.

If position in the block is a covariate, exchanging names flips the difference of positions as
well. The statistic is then t of the intercept in the regression of the differences on those of the
positions, fitted again for each pattern. If a study compares trimmed means, it is their t.

A metric without a value in some blocks is flipped in the blocks that it has. Its statistic is put
on a common scale by its own degrees of freedom (min-P; ibid. §2.3). Otherwise a metric of few
blocks, which has large t by chance, would set the bar for all others. A metric of so few blocks
that it could never be declared belongs to no family: half of all patterns leave two blocks
unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tare.analysis.statistics.distributions import beta_cdf
from tare.analysis.statistics.moderation import LEAST_BLOCKS, prior_variance
from tare.analysis.statistics.trimmed import degrees, invariant_squares, trimmed_shares

Floats = NDArray[np.float64]

EXACT_BLOCKS = 13
"""Up to this many blocks all sign patterns are used: 2¹², because the others mirror these."""
DRAWS = 8191
"""Drawn patterns for more blocks; the observed one is counted among them (Phipson & Smyth 2010)."""
LEAST_FOR_POSITION = 5
"""The least blocks: they leave the regression on positions three degrees of freedom."""

_CHUNK = 1 << 22
_SLACK = 1e-9
"""Statistics that are equal in exact arithmetic must count as equal."""


class Adjusted(NamedTuple):
    """P-values of a family, shape ``(metrics,)`` each; NaN if a metric has fewer than 2 blocks.

    Args:
        raw: Two-sided, of each metric by itself.
        adjusted: Corrected for the whole family: if p-values below a level are declared, at most
            that share of families has any false one. NaN also if a metric has too few blocks.
    """

    raw: Floats
    adjusted: Floats


def least_p(blocks: int) -> float:
    """Return the least two-sided p that ``blocks`` blocks can reach, alone or in a family."""
    return 1.0 / (2 ** max(0, blocks - 1) if blocks <= EXACT_BLOCKS else DRAWS + 1)


@lru_cache(maxsize=8)
def least_blocks(level: float) -> int:
    """Return the least number of blocks that can reach a p below ``level``: 6 for 0.05."""
    return next(n for n in range(1, 64) if least_p(n) < level)


def signed_ranks(differences: ArrayLike) -> Floats:
    """Return each row's signed ranks, for values with tails that would dominate a mean.

    Flips change neither sizes nor ranks, so the test remains exact (Wilcoxon 1945). Ties share
    their mean rank, zeros get zero.

    Args:
        differences: Shape ``(metrics, blocks)``, NaN where missing.
    """
    given = np.asarray(differences, dtype=np.float64)
    size = np.abs(given)
    below = (size[:, None, :] < size[:, :, None]).sum(axis=2)
    equal = (size[:, None, :] == size[:, :, None]).sum(axis=2)
    ranks: Floats = np.sign(given) * (below + (equal + 1) / 2)
    return ranks


def family_p(
    differences: ArrayLike,
    positions: ArrayLike | None = None,
    *,
    seed: int = 0,
    least: int = 2,
    moderated: ArrayLike | None = None,
    trimmed: ArrayLike | None = None,
) -> Adjusted:
    """Return raw and adjusted p-values of one family of metrics.

    Args:
        differences: Per block the log-ratio, difference, or signed rank, shape ``(metrics,
            blocks)``; NaN where a metric has no pair. Columns are blocks common to all metrics.
        positions: How much later in the block the arm ran than the baseline, same shape, in any
            unit; None, or a row of zeros or NaN: position is not a covariate.
        seed: Seed of drawn patterns; without effect up to 13 blocks.
        least: The least blocks with which a metric belongs to the family.
        moderated: For each metric, whether its variance is moderated by the other marked ones.
            They need one unit, such as log-ratios. Metrics of fewer than 6 blocks are never
            moderated.
        trimmed: For each metric, whether its trimmed mean is tested, without regard to positions.

    Raises:
        ValueError: The shapes do not fit.
    """
    values = np.array(differences, dtype=np.float64, ndmin=2)
    shape = values.shape
    if values.ndim != 2 or (positions is not None and np.shape(positions) != shape):
        raise ValueError("differences and positions need the same shape (metrics, blocks)")
    result = Adjusted(np.full(shape[0], np.nan), np.full(shape[0], np.nan))
    tested = np.flatnonzero((~np.isnan(values)).sum(axis=1) >= 2)
    if tested.size == 0:
        return result
    along = None if positions is None else np.asarray(positions, dtype=np.float64)[tested]
    comparable, cut = marked(moderated, shape[0]), marked(trimmed, shape[0])
    statistic = _Statistic(values[tested], along, comparable[tested], cut[tested])
    observed = statistic(np.ones((1, shape[1])))[:, 0]
    outside = statistic.count < least
    order = np.lexsort((-observed, outside))
    members = tested.size - int(outside.sum())
    alone, family = np.zeros(tested.size), np.zeros(members)
    bar = observed[order] - _SLACK * np.abs(observed[order])
    patterns = 0
    for signs in _patterns(shape[1], max(1, _CHUNK // (tested.size + 1)), seed):
        flipped = statistic(signs)[order]
        alone += (flipped >= bar[:, None]).sum(axis=1)
        # Step down: compare each with the greatest of those that are not more extreme than it.
        highest = np.maximum.accumulate(flipped[:members][::-1], axis=0)[::-1]
        family += (highest >= bar[:members, None]).sum(axis=1)
        patterns += signs.shape[0]
    result.raw[tested[order]] = alone / patterns
    result.adjusted[tested[order[:members]]] = np.maximum.accumulate(family / patterns)
    return result


def flips_at_looks(
    differences: ArrayLike,
    looks: Sequence[int],
    *,
    ranked: ArrayLike,
    moderated: ArrayLike,
    trimmed: ArrayLike | None = None,
    at_looks: Sequence[tuple[ArrayLike, ArrayLike | None]] | None = None,
    seed: int = 0,
    least: int = 2,
) -> list[NDArray[np.float32]]:
    """Return how extreme each metric is under each sign pattern, at looks after some of the blocks.

    A pattern has the same signs at all looks. All patterns of up to 14 blocks occur equally often.

    Args:
        differences: Shape ``(metrics, blocks)`` in order of time, NaN where a metric has no pair.
        looks: The number of blocks at each look.
        ranked: For each metric, whether signed ranks are tested instead of values.
        moderated: As for `family_p`.
        trimmed: As for `family_p`.
        at_looks: The differences and positions that each look tests, as for `family_p`; None: the
            first ones of ``differences``, without positions.
        seed: Seed of the signs of later blocks.
        least: The least blocks of a metric; with fewer, it is minus infinity.

    Returns:
        For each look the shape ``(metrics, patterns)``, the observed pattern first.
    """
    values, found = np.array(differences, dtype=np.float64, ndmin=2), []
    rows, comparable = np.asarray(ranked, dtype=np.bool_), np.asarray(moderated, dtype=np.bool_)
    cut = marked(trimmed, len(values))
    signs = _signs_over_time(values.shape[1], seed)
    for number, look in enumerate(looks):
        here, along = (values[:, :look], None) if at_looks is None else at_looks[number]
        seen = np.array(here, dtype=np.float64)
        seen[rows] = np.where(np.isnan(seen[rows]), np.nan, signed_ranks(seen[rows]))
        enough = (~np.isnan(seen)).sum(axis=1) >= max(least, 2)
        extreme = np.full((len(values), len(signs)), -np.inf, dtype=np.float32)
        if enough.any():
            positions = None if along is None else np.asarray(along)[enough]
            statistic = _Statistic(seen[enough], positions, comparable[enough], cut[enough])
            different = min(len(signs), 2 ** (look - 1))
            each = statistic(signs[:different, :look])
            extreme[enough] = np.tile(each, len(signs) // different)
        found.append(extreme)
    return found


def marked(rows: ArrayLike | None, count: int) -> NDArray[np.bool_]:
    """Return an array that is true for the marked ones of ``count`` rows; None marks no row."""
    return np.zeros(count, dtype=np.bool_) if rows is None else np.asarray(rows, dtype=np.bool_)


def simultaneous_confidence(differences: ArrayLike, confidence: float, *, seed: int = 0) -> float:
    """Return the confidence of each t-interval at which all of them together cover.

    The signs of whole blocks are flipped in the residuals, which keeps the correlation of the
    rows. Each pattern's smallest p shows how extreme the most extreme row is by chance. The
    result is at most Bonferroni's confidence and at least the nominal one.

    Args:
        differences: One row an interval, one column a block; NaN where a row has no value.
        confidence: Nominal coverage of all intervals together.
        seed: Seed of drawn patterns; without effect up to 13 blocks.
    """
    values = np.array(differences, dtype=np.float64, ndmin=2)
    error, rows = 1 - confidence, len(values)
    if rows < 2:
        return confidence
    there = ~np.isnan(values)
    count = there.sum(axis=1)
    residuals = np.where(there, values - np.nanmean(values, axis=1, keepdims=True), 0.0)
    energy = count * (residuals**2).sum(axis=1)
    spread = np.flatnonzero(energy > 0)
    if spread.size == 0:
        return 1 - error / rows
    smallest = []
    for signs in _patterns(values.shape[1], max(1, _CHUNK // (rows + 1)), seed):
        shares = (residuals[spread] @ signs.T) ** 2 / energy[spread, None]
        extreme = [
            _surprise(np.minimum(share, 1.0), int(degrees))
            for share, degrees in zip(shares, count[spread] - 1, strict=True)
        ]
        smallest.append(np.max(extreme, axis=0))
    # The residuals' sum is 0 with the observed signs, so that pattern has no information.
    others = np.sort(np.concatenate(smallest))[1:]
    bar = float(others[min(math.ceil(confidence * (others.size + 1)), others.size) - 1])
    return 1 - min(error, max(error / rows, math.exp(-bar)))


class _Statistic:
    """How extreme each metric is under sign patterns, on one scale for all metrics."""

    def __init__(
        self,
        values: Floats,
        positions: Floats | None,
        moderated: NDArray[np.bool_] | bool = False,
        trimmed: NDArray[np.bool_] | bool = False,
    ) -> None:
        there = ~np.isnan(values)
        filled = np.where(there, values, 0.0)
        count = there.sum(axis=1)
        along = np.zeros_like(filled)
        if positions is not None:
            along = np.where(there & ~np.isnan(positions), positions, 0.0)
            along[count < LEAST_FOR_POSITION] = 0.0
        squares = (along**2).sum(axis=1)
        used = squares > 0
        unit = np.divide(along, np.sqrt(squares)[:, None], out=along, where=used[:, None])
        self.rest = filled - unit * (unit * filled).sum(axis=1)[:, None]
        # Set values to 0 that are only rounding noise of the projection.
        self.rest[np.abs(self.rest) <= 1e-13 * np.abs(filled).max(axis=1, initial=0)[:, None]] = 0
        self.energy = (self.rest**2).sum(axis=1)
        self.unit = unit if used.any() else None
        self.count = count.astype(np.float64)
        enough = moderated & (count >= LEAST_BLOCKS)
        self.trimmed = {int(row): values[row, there[row]] for row in np.flatnonzero(trimmed)}
        free = count - 1 - used
        for row, own in self.trimmed.items():
            self.energy[row], free[row] = invariant_squares(own[None]), degrees(own.size)
        prior = prior_variance(self.energy, free + 1, enough)
        self.energy += prior.squares
        self.added, self.there = prior.squares, there
        self.degrees = free + np.round(prior.degrees).astype(np.int64)

    def __call__(self, signs: Floats) -> Floats:
        """Return the statistics, shape ``(metrics, patterns)``; more is more extreme.

        ``r² = (s·d)² ÷ (s·s · d·d)``, both freed of positions, orders like t² = df·r² ÷ (1 − r²).
        If variances are moderated, ``d·d`` includes the prior's sum of squares, and t² is the
        moderated one.
        """
        along = self.rest @ signs.T
        length = self.count[:, None]
        if self.unit is not None:
            length = length - (self.unit @ signs.T) ** 2
        whole = length * self.energy[:, None]
        usable = whole > 0
        share: Floats = np.divide(along**2, whole, out=np.zeros_like(along), where=usable)
        for row, own in self.trimmed.items():
            share[row] = trimmed_shares(own * signs[:, self.there[row]], self.added[row])
        return common_scale(np.minimum(share, 1.0), self.degrees)


def common_scale(share: Floats, degrees: NDArray[np.int64]) -> Floats:
    """Return squared correlations on a scale on which unequal degrees of freedom are comparable.

    Args:
        share: Shape ``(metrics, patterns)``, from 0 to 1.
        degrees: Degrees of freedom of each metric.
    """
    if bool((degrees == degrees[0]).all()):
        return share
    return np.array([_surprise(row, of) for row, of in zip(share, degrees.tolist(), strict=True)])


def stepped_down(extreme: Floats, outside: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Return raw and step-down adjusted p-values.

    Args:
        extreme: How extreme each metric is under each pattern, the observed one first, shape
            ``(metrics, patterns)``; more is more extreme.
        outside: Which metrics belong to no family; their adjusted p is NaN.
    """
    observed = extreme[:, 0]
    order = np.lexsort((-observed, outside))
    members = int((~outside).sum())
    bar = (observed[order] - _SLACK * np.abs(observed[order]))[:, None]
    sorted_ = extreme[order]
    highest = np.maximum.accumulate(sorted_[:members][::-1], axis=0)[::-1]
    raw, adjusted = np.empty(order.size), np.full(order.size, np.nan)
    raw[order] = (sorted_ >= bar).mean(axis=1)
    shares = (highest >= bar[:members]).mean(axis=1)
    adjusted[order[:members]] = np.maximum.accumulate(shares)
    return raw, adjusted


_GRID = np.linspace(0.0, 6.2, 1025)


def _surprise(share: Floats, degrees: int) -> Floats:
    """Return −ln p of r² under Student's t, interpolated: monotone, so ranks are kept exactly."""
    with np.errstate(divide="ignore"):
        root = np.sqrt(-np.log(np.maximum(1 - share, 1e-16)))
    result: Floats = np.interp(root, _GRID, _heights(degrees))
    return result


@lru_cache(maxsize=64)
def _heights(degrees: int) -> Floats:
    chances = [beta_cdf(degrees / 2, 0.5, math.exp(-(x**2))) for x in _GRID.tolist()]
    return -np.log(np.maximum(chances, 1e-300))


def _patterns(blocks: int, chunk: int, seed: int) -> list[Floats]:
    """Return sign patterns in chunks, shape ``(patterns, blocks)``, the observed one among them."""
    signs = _signs(blocks, seed if blocks > EXACT_BLOCKS else 0)
    return [signs[start : start + chunk] for start in range(0, len(signs), chunk)]


@lru_cache(maxsize=8)
def _signs_over_time(blocks: int, seed: int) -> Floats:
    """Return sign patterns whose first blocks are the same, however many blocks follow."""
    signs = np.ones((DRAWS + 1, blocks))
    numbers = np.arange(DRAWS + 1)
    all_ways = DRAWS.bit_length()
    for block in range(1, blocks):
        if block <= all_ways:
            signs[:, block] = np.where((numbers >> (block - 1)) & 1, -1.0, 1.0)
        else:
            drawn = np.random.default_rng([seed, block]).choice((-1.0, 1.0), size=DRAWS)
            signs[1:, block] = drawn
    return signs


@lru_cache(maxsize=8)
def _signs(blocks: int, seed: int) -> Floats:
    signs: Floats
    if blocks <= EXACT_BLOCKS:
        numbers = np.arange(2 ** (blocks - 1))[:, None]
        signs = np.where((numbers >> np.arange(blocks)) & 1, -1.0, 1.0)
    else:
        drawn = np.random.default_rng(seed).choice((-1.0, 1.0), size=(DRAWS, blocks))
        signs = np.concatenate([np.ones((1, blocks)), drawn])
    return signs
