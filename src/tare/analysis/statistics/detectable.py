"""What difference a study can tell, and how many blocks a smaller one takes."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tare.analysis.statistics.anytime import t_that_tells
from tare.analysis.statistics.distributions import noncentral_t_cdf, student_quantile
from tare.analysis.statistics.logratio import t_quantile
from tare.analysis.statistics.maxt import least_p

Floats = NDArray[np.float64]

POWER = 0.8
ASSURANCE_DRAWS = 4000
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


@lru_cache(maxsize=4096)
def _assured(width: float, blocks: int, assurance: float) -> int:
    """Return the blocks that show equality, for a half-width in units of the margin."""
    rng = np.random.default_rng(4)
    normal = np.abs(rng.standard_normal(ASSURANCE_DRAWS))
    spread = width * math.sqrt(blocks) / t_quantile(_SHOWN, blocks - 1)
    # The spread was found with few blocks: it may be as great as they leave open.
    spreads = spread * np.sqrt((blocks - 1) / rng.chisquare(blocks - 1, ASSURANCE_DRAWS))

    def chance(wanted: int) -> float:
        own = np.random.default_rng(5)
        found = np.sqrt(own.chisquare(wanted - 1, ASSURANCE_DRAWS) / (wanted - 1))
        t = t_quantile(_SHOWN, min(wanted - 1, _MANY))
        reach = spreads * (normal + t * found) / math.sqrt(wanted)
        return float((reach <= 1).mean())

    low, high = 1, 2
    while chance(high) < assurance:
        low, high = high, 2 * high
    while high - low > max(1, high // 100):
        middle = (low + high) // 2
        low, high = (low, middle) if chance(middle) >= assurance else (middle, high)
    return high


def blocks_for_equality(
    half_width: float, margin: float, blocks: int, assurance: float = POWER
) -> int:
    """Return how many blocks show two equal arms to be equivalent, with the wanted chance.

    The interval of so many blocks must lie within the margin as a whole. That it is as wide as the
    margin is not enough: then its centre would have to be 0. Found by simulation, over the spreads
    that so few blocks leave open.

    Args:
        half_width: Found with ``blocks``, on the log scale.
        margin: The margin, on the same scale, above 0.
        blocks: How many there were, 2 or more.
        assurance: The wanted chance.
    """
    # So rounded, all effects of a run share some simulations; one part in fifty is no matter.
    width = math.exp(round(math.log(half_width / margin), 2))
    return _assured(width, blocks, assurance)
