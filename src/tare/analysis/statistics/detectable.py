"""What difference a study can tell, and how many blocks a smaller one takes."""

from __future__ import annotations

import math

from tare.analysis.statistics.anytime import t_that_tells
from tare.analysis.statistics.distributions import noncentral_t_cdf, student_quantile
from tare.analysis.statistics.logratio import t_quantile
from tare.analysis.statistics.maxt import least_p

POWER = 0.8
_SHOWN = 0.95
_MANY = 1000


def power(
    difference: float,
    spread: float,
    blocks: int,
    tests: int,
    level: float,
    *,
    anytime: bool = False,
) -> float:
    """Return how likely a true difference is declared among so many metrics.

    The t-test at ``level ÷ tests`` stands for max-T: of independent metrics it is nearly that
    (Westfall & Young 1993, §2.2), of correlated ones max-T has more power.

    Args:
        difference: True mean of the block differences (log-ratio).
        spread: Standard deviation of block differences.
        blocks: Number of blocks.
        tests: Metrics of the family.
        level: Familywise error.
        anytime: Whether the test holds at every look, which asks for more.
    """
    if blocks < 2 or least_p(blocks) >= level:
        return 0.0
    if spread <= 0:
        return 1.0 if difference else 0.0
    degrees = blocks - 1
    critical = (
        t_that_tells(blocks, level / tests)
        if anytime
        else student_quantile(1 - level / tests, degrees)
    )
    if math.isinf(critical):
        return 0.0
    shift = abs(difference) * math.sqrt(blocks) / spread
    return 1 - noncentral_t_cdf(degrees, shift, critical)


def detectable(
    spread: float,
    blocks: int,
    tests: int,
    level: float,
    wanted: float = POWER,
    *,
    anytime: bool = False,
) -> float:
    """Return the least difference that is declared with the wanted power; infinite if none is.

    Args:
        spread: Standard deviation of block differences (of log-ratios).
        blocks: Number of blocks.
        tests: Metrics of the family.
        level: Familywise error.
        wanted: How likely it is to be declared.
        anytime: Whether the test holds at every look.
    """
    if blocks < 2 or least_p(blocks) >= level:
        return math.inf
    if anytime and math.isinf(t_that_tells(blocks, level / tests)):
        return math.inf
    if spread <= 0:
        return 0.0
    low, high = 0.0, spread
    while power(high, spread, blocks, tests, level, anytime=anytime) < wanted:
        low, high = high, 2 * high
    for _ in range(40):
        middle = (low + high) / 2
        if power(middle, spread, blocks, tests, level, anytime=anytime) < wanted:
            low = middle
        else:
            high = middle
    return high


def blocks_for(half_width: float, wanted: float, blocks: int) -> int:
    """Return about how many blocks bring a half-width down to the wanted one.

    Args:
        half_width: Found with ``blocks``, on the log scale.
        wanted: Asked, on the same scale, above 0.
        blocks: How many there were.
    """
    if half_width <= wanted or blocks < 2:
        return blocks
    spread = half_width * math.sqrt(blocks) / t_quantile(_SHOWN, blocks - 1)
    # Normal quantiles ask for too few; each further block brings it nearer.
    needed = max(blocks, int((t_quantile(_SHOWN, _MANY) * spread / wanted) ** 2))
    while t_quantile(_SHOWN, min(needed - 1, _MANY)) * spread / math.sqrt(needed) > wanted:
        needed += 1
    return needed
