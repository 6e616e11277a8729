"""Group-sequential tests: a run may stop as soon as its verdicts are clear, at a fixed error level.

The blocks are looked at several times. Each look may spend a part of the error level (Lan & DeMets
1983), so the chance of a false verdict at any look stays below the level. The part grows with the
blocks as a share of the most that the study plans, by a Pocock-like function: large differences end
a run early.

Tests are the permutation tests of `maxt` and `exchange`. At each look, all patterns that are left
compete, and those with the greatest statistics leave, as many as the spent level allows. A
difference is declared once the observed pattern leaves. How many leave depends on the sizes of the
differences alone, never on their signs. Under the null hypothesis, the observed pattern is equally
likely to be any of them, so the test is exact.

Intervals use Student's t with the level that the spending function gives each look, for normal
values (Jennison & Turnbull 1989, 2000). All looks together cover at the nominal confidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tare.analysis.statistics.maxt import Adjusted, least_blocks

Floats = NDArray[np.float64]
Extremes = NDArray[np.float32]

LEVEL = 0.05
_GRID = 201
_FURTHEST = 9.0
"""Standard deviations beyond which values are neglected."""
_BISECTIONS = 13
_SLACK = np.float32(1e-6)
"""Statistics that are equal in exact arithmetic must count as equal."""


class LookPlan(NamedTuple):
    """The range of blocks in which a run may stop, as its study fixes it.

    Args:
        least: Blocks at the first look.
        most: Blocks at the last look.
    """

    least: int
    most: int

    def looks(self, blocks: int | None = None) -> tuple[int, ...]:
        """Return the numbers of blocks that are looked at, up to ``blocks``.

        Each block up to 40 is looked at. After that, each look has a twentieth more blocks.
        """
        last = self.most if blocks is None else min(blocks, self.most)
        return tuple(look for look in _looks(max(self.least, _fewest()), self.most) if look <= last)

    def shares(self, looks: Sequence[int]) -> list[float]:
        """Return the blocks of each look as a share of the planned ones."""
        return [look / self.most for look in looks]

    def level(self, blocks: int, level: float = LEVEL) -> float:
        """Return the two-sided level of an interval after ``blocks`` blocks, below ``level``.

        Args:
            blocks: Number of blocks; the newest look up to it counts.
            level: Level of all looks together.
        """
        looks = self.looks()
        if not looks:
            return level
        number = max(1, sum(look <= blocks for look in looks))
        return _levels(looks, self.most, level)[number - 1]


def spent(share: float) -> float:
    """Return the part of the level that may be spent, for a share of the planned blocks."""
    return math.log1p((math.e - 1) * min(max(share, 0.0), 1.0))


def _fewest() -> int:
    return least_blocks(LEVEL)


@lru_cache(maxsize=64)
def _looks(least: int, most: int) -> tuple[int, ...]:
    found, look = [], least
    while look < most:
        found.append(look)
        look += max(1, look // 20)
    return (*found, most) if least <= most else ()


@lru_cache(maxsize=256)
def _levels(looks: tuple[int, ...], most: int, level: float) -> tuple[float, ...]:
    """Return the two-sided level of each look, for a mean of normal values.

    The density of the sum of values that no look has declared is followed from look to look
    (Armitage, McPherson & Rowe 1969).
    """
    found: list[float] = []
    before, gone = 0, 0.0
    grid, weight = np.zeros(1), np.ones(1)
    for look in looks:
        step, scale = math.sqrt(look - before), math.sqrt(look)
        beyond = partial(_crossing_probability, grid / step, weight, scale / step)
        bar = _find_bar(beyond, level * spent(look / most) - gone)
        gone += beyond(bar)
        found.append(2 * float(_upper_tail(np.array([bar]))[0]))
        ends = np.linspace(-bar * scale, bar * scale, _GRID)
        density = np.exp(-(((ends[:, None] - grid) / step) ** 2) / 2) @ weight
        density /= step * math.sqrt(2 * math.pi)
        grid, weight = ends, density * _simpson(float(ends[1] - ends[0]))
        before = look
    return tuple(found)


def _crossing_probability(grid: Floats, weight: Floats, scale: float, bar: float) -> float:
    """Return the probability that the next sum exceeds a bar, if no earlier look declared it."""
    return float(weight @ (_upper_tail(bar * scale - grid) + _upper_tail(bar * scale + grid)))


def _find_bar(beyond: Callable[[float], float], wanted: float) -> float:
    """Find by bisection the bar that a sum exceeds with the wanted probability."""
    low, high = 0.0, _FURTHEST
    for _ in range(26):
        middle = (low + high) / 2
        low, high = (middle, high) if beyond(middle) > wanted else (low, middle)
    return high


def _simpson(step: float) -> Floats:
    weights = np.full(_GRID, 2.0)
    weights[1::2] = 4.0
    weights[[0, -1]] = 1.0
    result: Floats = weights * step / 3
    return result


def _upper_tail(z: Floats) -> Floats:
    """Return the probability that a standard normal value is greater."""
    return np.array([math.erfc(x) for x in (z / math.sqrt(2)).tolist()]) / 2


def sequential_p(extremes: Sequence[Extremes], shares: Sequence[float], metrics: int) -> Adjusted:
    """Return p-values that remain valid although the blocks were looked at before.

    A p is the smallest familywise level at which the difference would have been declared by now.
    Metrics are declared one after the other (step-down). Once a metric is declared, it no longer
    competes with the others.

    Args:
        extremes: For each look how extreme each metric is under each pattern, the observed one
            first, shape ``(metrics, patterns)``; more is more extreme, and minus infinity means
            that the metric has too few blocks yet. The patterns of all looks are the same.
        shares: For each look its blocks as a share of the planned ones.
        metrics: Number of metrics.

    Returns:
        NaN before the first look, and for metrics with too few blocks.
    """
    found = Adjusted(np.full(metrics, np.nan), np.full(metrics, np.nan))
    if not extremes:
        return found
    able = np.isfinite(extremes[-1][:, 0])
    for row in np.flatnonzero(able):
        found.raw[row], _ = _smallest_level([each[row] for each in extremes], shares)
    left, p = list(np.flatnonzero(able)), 0.0
    while left:
        found.adjusted[left] = 1.0
        if p < 1:
            highest = [each[left].max(axis=0) for each in extremes]
            own, look = _smallest_level(highest, shares)
            p = max(p, own)
        declared = int(extremes[look][left, 0].argmax()) if p < 1 else 0
        found.adjusted[left.pop(declared)] = p
    return found


def _smallest_level(statistics: Sequence[Extremes], shares: Sequence[float]) -> tuple[float, int]:
    """Return the smallest level that declares the first pattern, and the look that does so."""
    look = declared_at(statistics, shares, 1.0)
    if look is None:
        return 1.0, len(statistics) - 1
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        at = declared_at(statistics, shares, middle)
        if at is None:
            low = middle
        else:
            high, look = middle, at
    return high, look


def declared_at(
    statistics: Sequence[Extremes], shares: Sequence[float], level: float
) -> int | None:
    """Return the first look that declares the first pattern; None if none does.

    Args:
        statistics: For each look how extreme each pattern is.
        shares: For each look its blocks as a share of the planned ones.
        level: Error level of all looks together.
    """
    patterns = len(statistics[0])
    left = np.ones(patterns, dtype=np.bool_)
    for look, (values, share) in enumerate(zip(statistics, shares, strict=True)):
        here = values[left]
        may_leave = math.floor(level * spent(share) * patterns + 1e-9) - (patterns - here.size)
        if may_leave <= 0:
            continue
        if may_leave >= here.size:
            return look
        # Patterns that are equal leave together or stay.
        bar = np.partition(here, here.size - 1 - may_leave)[here.size - 1 - may_leave]
        leaving = left & (values > bar + _SLACK * abs(bar))
        if leaving[0]:
            return look
        left &= ~leaving
    return None
