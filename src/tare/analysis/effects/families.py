"""The families of tests, their p-values, and intervals over a family.

Each arm's headline metrics are one family.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tare.analysis.data.grouping import BlockId
from tare.analysis.effects.estimates import Pair, cost_signs, sharing_a_slope
from tare.analysis.effects.results import Effect
from tare.analysis.effects.verdict import LEVEL
from tare.analysis.statistics.bootstrap import seed_from
from tare.analysis.statistics.exchange import exchanged_p, exchanges_at_looks
from tare.analysis.statistics.logratio import t_quantile
from tare.analysis.statistics.maxt import (
    Adjusted,
    family_p,
    flips_at_looks,
    least_blocks,
    signed_ranks,
)
from tare.analysis.statistics.sequential import LookPlan, sequential_p
from tare.analysis.statistics.shared_slope import without_slopes
from tare.analysis.statistics.tails import median_interval
from tare.analysis.statistics.trimmed import degrees as trimmed_degrees

Floats = NDArray[np.float64]


class Tested(NamedTuple):
    """The p-value of one test, the one adjusted over its family, and the family's size."""

    p: float | None
    adjusted: float | None
    tests: int


UNTESTED = Tested(None, None, 0)


def tested(
    pairs: Sequence[Pair],
    families: Sequence[object],
    seed: str,
    level: float,
    plan: LookPlan | None = None,
) -> tuple[Tested, ...]:
    """Test all pairs and return their p-values, in the order of the pairs.

    Args:
        pairs: The pairs.
        families: The name of each pair's family. A family belongs to one arm, so no arm's verdict
            depends on which other arms there are.
        seed: Text that drawn patterns depend on.
        level: Familywise error rate of verdicts. Pairs with too few blocks to reach it are tested
            by themselves, outside any family.
        plan: The looks of a group-sequential study; None: the blocks are tested once.
    """
    found = [UNTESTED] * len(pairs)
    members: dict[object, list[int]] = {}
    for i, name in enumerate(families):
        members.setdefault(name, []).append(i)
    for indices in members.values():
        family = _family([pairs[i] for i in indices], seed, level, plan)
        for i, one in zip(indices, family, strict=True):
            found[i] = one
    return tuple(found)


def _family(pairs: Sequence[Pair], seed: str, level: float, plan: LookPlan | None) -> list[Tested]:
    blocks = sorted({block for pair in pairs for block in pair.blocks})
    drawn, least = seed_from(seed, "flips"), least_blocks(level)
    if any(pair.twins for pair in pairs):
        found = _exchanged(pairs, blocks, drawn, least, plan)
    else:
        found = _flipped(pairs, blocks, drawn, least, plan)
    tests = int((~np.isnan(found.adjusted)).sum())
    return [
        Tested(_known(p), _known(adjusted), tests)
        for p, adjusted in zip(found.raw, found.adjusted, strict=True)
    ]


def _flipped(
    pairs: Sequence[Pair], blocks: Sequence[BlockId], seed: int, least: int, plan: LookPlan | None
) -> Adjusted:
    """Test pairs with two boots in each block; without a difference the boots may swap names."""
    column = {block: number for number, block in enumerate(blocks)}
    values = np.full((1, len(pairs), len(blocks)), np.nan)
    later = np.full_like(values, np.nan)
    ranked = np.zeros(len(pairs), dtype=np.bool_)
    for row, pair in enumerate(pairs):
        columns = [column[block] for block in pair.blocks]
        values[0, row, columns] = pair.differences
        ranked[row] = not pair.typical
        if pair.tested_by:
            later[0, row, columns] = pair.tested_by
    if plan is not None:
        looks = plan.looks(len(blocks))
        each = [_without_slopes(pairs, values[..., :n], later[..., :n]) for n in looks]
        extremes = flips_at_looks(
            values[0],
            looks,
            at_looks=[(seen[0], None if left is None else left[0]) for seen, left in each],
            ranked=ranked,
            moderated=_moderated(pairs),
            trimmed=_trimmed(pairs),
            seed=seed,
            least=least,
        )
        return sequential_p(extremes, plan.shares(looks), len(pairs))
    freed, left = _without_slopes(pairs, values, later)
    tested_values = freed[0]
    if ranked.any():
        tested_values[ranked] = signed_ranks(tested_values[ranked])
    return family_p(
        tested_values,
        None if left is None else left[0],
        seed=seed,
        least=least,
        moderated=_moderated(pairs),
        trimmed=_trimmed(pairs),
    )


def _exchanged(
    pairs: Sequence[Pair], blocks: Sequence[BlockId], seed: int, least: int, plan: LookPlan | None
) -> Adjusted:
    """Test pairs whose baseline has two boots in each block: all three boots may swap names."""
    column = {block: number for number, block in enumerate(blocks)}
    boots = np.full((3, len(pairs), len(blocks)), np.nan)
    places = np.full_like(boots, np.nan)
    for row, pair in enumerate(pairs):
        # A baseline without a twin in any block is compared alone.
        sides: tuple[str, ...] = (pair.arm, *(pair.twins or (pair.baseline,)))
        ratio = pair.scale == "ratio"
        if ratio and not pair.measured.positive(sides):
            # One of the baseline's boots was 0, and only both together have a ratio.
            sides = (pair.arm, pair.baseline)
        columns = [column[block] for block in pair.blocks]
        for side, arm in enumerate(sides):
            if arm not in pair.measured.arms:
                continue
            values = pair.measured.values(arm, logs=ratio)
            column_values = [values.get(block, math.nan) for block in pair.blocks]
            boots[side, row, columns] = (
                list(map(math.log, column_values)) if ratio else column_values
            )
            if pair.tested_by:
                positions = [pair.places.get(block, {}).get(arm, math.nan) for block in pair.blocks]
                places[side, row, columns] = positions
    ranked = [not pair.typical for pair in pairs]
    moderated, trimmed = _moderated(pairs), _trimmed(pairs)
    if plan is not None:
        looks = plan.looks(len(blocks))
        extremes = exchanges_at_looks(
            boots,
            looks,
            at_looks=[_without_slopes(pairs, boots[..., :n], places[..., :n]) for n in looks],
            ranked=ranked,
            moderated=moderated,
            trimmed=trimmed,
            seed=seed,
            least=least,
        )
        return sequential_p(extremes, plan.shares(looks), len(pairs))
    return exchanged_p(
        *_without_slopes(pairs, boots, places),
        ranked=ranked,
        seed=seed,
        least=least,
        moderated=moderated,
        trimmed=trimmed,
    )


def _without_slopes(
    pairs: Sequence[Pair], values: Floats, places: Floats
) -> tuple[Floats, Floats | None]:
    """Return a family's values without the effect of positions, and the positions left to test.

    Args:
        pairs: The family.
        values: Differences or boots, ``(sides, metrics, blocks)``.
        places: Their positions in the block; NaN if positions are not adjusted for.
    """
    freed, left = values.copy(), np.full_like(places, np.nan)
    for rows in sharing_a_slope(pairs):
        members = [pairs[i] for i in rows]
        found = without_slopes(values[:, rows], places[:, rows], cost_signs(members))
        freed[:, rows], left[:, rows] = found
    return freed, None if np.isnan(left).all() else left


def _moderated(pairs: Sequence[Pair]) -> list[bool]:
    """Return for each pair whether its variance is moderated: only means of log-ratios are."""
    return [pair.typical and pair.scale == "ratio" for pair in pairs]


def _trimmed(pairs: Sequence[Pair]) -> list[bool]:
    """Return for each pair whether its trimmed mean is tested."""
    return [pair.trimmed for pair in pairs]


def _known(p: float) -> float | None:
    return None if np.isnan(p) else float(p)


def simultaneous(effect: Effect, tests: int) -> tuple[float, float] | None:
    """Return the ends of an effect's interval that is simultaneous over several effects.

    The largest of several estimates exceeds its true value on average, so its own interval covers
    the true value too seldom. Simultaneous intervals cover it (Bonferroni's correction).

    Args:
        effect: The selected effect, with an interval.
        tests: The number of effects that it was selected from.

    Returns:
        None without a bounded interval, or if an order-statistic interval would need more blocks.
    """
    interval = effect.interval
    if interval is None or interval.low <= 0 < effect.null or math.isinf(interval.high):
        return None
    error = (1 - interval.confidence) / max(1, tests)
    inner = math.log if effect.scale == "ratio" else float
    outer = math.exp if effect.scale == "ratio" else float
    centre, low, high = map(inner, (effect.estimate, interval.low, interval.high))
    if interval.method == "order-statistic":
        values = [inner(block.value) for block in effect.block_effects]
        found = median_interval(values, 1 - error)
        own = median_interval(values, interval.confidence)
        if found is None or own is None:
            return None
        # The interval may be widened for clock steps or dependent blocks: widen the move as well.
        moved = (found[0] - own[0], found[1] - own[1])
        return outer(low + effect.widened * moved[0]), outer(high + effect.widened * moved[1])
    degrees = effect.blocks - 1
    if interval.method == "stein":
        # Its degrees are those of the first blocks, 6 or more.
        degrees = min(degrees, least_blocks(LEVEL) - 1)
    if effect.trimmed:
        degrees = trimmed_degrees(effect.blocks)
    factor = t_quantile(1 - error, degrees) / t_quantile(interval.confidence, degrees)
    return outer(centre + factor * (low - centre)), outer(centre + factor * (high - centre))
