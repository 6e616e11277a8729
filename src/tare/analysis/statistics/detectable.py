"""Estimate the difference that a study can detect, and the blocks that a smaller one needs."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tare.analysis.statistics.distributions import noncentral_t_cdf, student_quantile
from tare.analysis.statistics.logratio import t_quantile
from tare.analysis.statistics.maxt import least_p
from tare.analysis.statistics.moderation import prior_degrees
from tare.analysis.statistics.sequential import LookPlan, spent

Floats = NDArray[np.float64]

POWER = 0.8
ASSURANCE_DRAWS = 4000
_SHOWN = 0.95
_MANY = 1000


_LEVEL = 0.05
_TESTS = (1, 2, 3, 5, 8, 11, 16, 30, 60, 120)
# fmt: off
_PLAIN = {
    6: (6.781, 7.903, 8.100, 8.248, 7.927, 8.125, 8.269, 8.848, 9.824, 11.092),
    7: (6.253, 6.196, 6.171, 5.555, 5.552, 5.669, 5.814, 6.215, 6.674, 7.420),
    8: (5.722, 5.078, 4.852, 4.636, 4.775, 4.923, 5.065, 5.258, 5.680, 6.321),
    9: (5.261, 4.438, 4.258, 4.291, 4.314, 4.412, 4.569, 4.810, 5.278, 5.840),
    10: (4.770, 4.041, 3.928, 4.064, 4.037, 4.183, 4.282, 4.546, 4.976, 5.499),
    12: (3.780, 3.564, 3.574, 3.649, 3.686, 3.757, 3.864, 4.116, 4.518, 4.950),
    16: (3.004, 2.997, 3.118, 3.215, 3.250, 3.329, 3.471, 3.763, 4.094, 4.418),
    20: (2.865, 2.942, 2.967, 3.089, 3.204, 3.302, 3.452, 3.699, 4.017, 4.331),
    40: (2.316, 2.464, 2.550, 2.697, 2.855, 2.973, 3.109, 3.344, 3.580, 3.800),
}
_ALIKE = {
    6: (6.781, 7.903, 7.639, 7.392, 6.883, 6.798, 6.616, 6.288, 4.837, 4.006),
    7: (6.253, 6.196, 5.874, 5.482, 5.381, 5.296, 5.161, 4.137, 3.567, 3.532),
    8: (5.722, 5.078, 4.990, 4.754, 4.545, 4.386, 4.100, 3.690, 3.471, 3.480),
    9: (5.261, 4.438, 4.269, 4.035, 3.964, 3.997, 3.778, 3.443, 3.342, 3.459),
    10: (4.770, 4.041, 3.848, 3.722, 3.618, 3.591, 3.503, 3.347, 3.340, 3.489),
    12: (3.780, 3.564, 3.399, 3.364, 3.309, 3.241, 3.165, 3.168, 3.285, 3.439),
    16: (3.004, 2.997, 3.077, 3.065, 3.031, 2.995, 3.010, 3.135, 3.320, 3.427),
    20: (2.865, 2.942, 2.749, 2.824, 2.866, 2.898, 3.004, 3.158, 3.312, 3.476),
    40: (2.316, 2.464, 2.482, 2.613, 2.757, 2.868, 3.003, 3.161, 3.321, 3.478),
}
_APART = {
    6: (6.781, 7.903, 7.691, 7.560, 6.824, 6.900, 6.682, 6.831, 6.487, 6.338),
    7: (6.253, 6.196, 5.820, 5.597, 5.398, 5.465, 5.516, 5.130, 4.858, 5.330),
    8: (5.722, 5.078, 5.096, 4.872, 4.655, 4.566, 4.510, 4.449, 4.612, 5.093),
    9: (5.261, 4.438, 4.339, 4.163, 4.139, 4.201, 4.161, 4.158, 4.384, 4.774),
    10: (4.770, 4.041, 3.905, 3.823, 3.803, 3.868, 3.935, 4.034, 4.290, 4.663),
    12: (3.780, 3.564, 3.475, 3.479, 3.513, 3.559, 3.625, 3.786, 4.102, 4.493),
    16: (3.004, 2.997, 3.151, 3.208, 3.244, 3.276, 3.367, 3.592, 3.877, 4.082),
    20: (2.865, 2.942, 2.805, 2.923, 3.031, 3.132, 3.287, 3.523, 3.797, 4.068),
    40: (2.316, 2.464, 2.501, 2.673, 2.857, 2.982, 3.124, 3.319, 3.541, 3.759),
}
# fmt: on
"""Critical t-values by number of blocks, and by number of metrics as in ``_TESTS``.

A t-test with these values has the power that was simulated for the verdicts
(``python -m benchmarks._power_simulations``). Few blocks have few sign patterns, so the p of max-T
is coarse, and verdicts of few metrics allow for correlated blocks (`serial.held`). A t-test at
5 % ÷ metrics would promise too much. ``_PLAIN`` is without moderated variances. The other tables
are with them, for metrics whose log deviations differ as in `DISPERSIONS`.
"""
DISPERSIONS = (0.0, 0.5)
"""Standard deviations of the metrics' log deviations: of ``_ALIKE``, then of ``_APART``."""
_SPREADS = 400


def _critical(
    blocks: int, tests: int, level: float, plan: LookPlan | None, dispersion: float = 0.0
) -> float:
    """Return the least t at which a difference is declared; infinite if none can be."""
    if plan is not None:
        if least_p(blocks) > level * spent(blocks / plan.most) or blocks < plan.least:
            return math.inf
        once = _critical(blocks, tests, level, None, dispersion)
        here = student_quantile(1 - plan.level(blocks, level / tests), blocks - 1)
        return once * here / student_quantile(1 - level / tests, blocks - 1)
    students = student_quantile(1 - level / tests, blocks - 1)
    known = [n for n in _PLAIN if n <= blocks]
    if level != _LEVEL or not known:
        return students
    nearest = max(known)
    # With more blocks than the table has, max-T is nearly a t-test.
    weights = [0.0, *(prior_share(each, nearest) for each in reversed(DISPERSIONS))]
    rows = np.log([_PLAIN[nearest], _APART[nearest], _ALIKE[nearest]])
    share = prior_share(dispersion, nearest)
    row = [float(np.interp(share, weights, column)) for column in rows.T]
    found = math.exp(float(np.interp(math.log(tests), [math.log(n) for n in _TESTS], row)))
    if tests > _TESTS[-1] or nearest < blocks:
        at = min(tests, _TESTS[-1])
        found *= students / student_quantile(1 - level / at, nearest - 1)
    return found


def prior_share(dispersion: float, blocks: int) -> float:
    """Return the weight of the other metrics in a moderated variance, from 0 to 1.

    Args:
        dispersion: Standard deviation of the metrics' log deviations; infinite: no moderation.
        blocks: Number of blocks.
    """
    degrees = prior_degrees(4 * dispersion**2)
    return degrees / (degrees + blocks - 1)


def power(
    difference: float,
    spread: float,
    blocks: int,
    tests: int,
    level: float,
    *,
    margin: float = 0.0,
    plan: LookPlan | None = None,
    dispersion: float = 0.0,
) -> float:
    """Return the probability that a true difference is declared in a family of metrics.

    It is calculated as for a t-test, in place of max-T over independent metrics. For correlated
    metrics max-T has more power.

    Args:
        difference: True mean of the block differences (log-ratio).
        spread: Standard deviation of block differences.
        blocks: Number of blocks.
        tests: Metrics of the family.
        level: Familywise error.
        margin: The practical margin, which the estimate must exceed as well, on the scale of
            ``difference``.
        plan: The looks of a group-sequential study, whose tests are stricter.
        dispersion: How far the metrics' deviations differ: the standard deviation of their
            logarithms. The smaller it is, the more power moderated variances give. Infinite if no
            variances are moderated.
    """
    if blocks < 2 or least_p(blocks) >= level:
        return 0.0
    if spread <= 0:
        return 1.0 if abs(difference) > margin else 0.0
    critical = _critical(blocks, tests, level, plan, dispersion)
    if math.isinf(critical):
        return 0.0
    shift = abs(difference) * math.sqrt(blocks) / spread
    if margin <= 0:
        return 1 - noncentral_t_cdf(blocks - 1, shift, critical)
    bars = np.maximum(margin * math.sqrt(blocks) / spread, critical * _spreads(blocks - 1))
    return (
        math.fsum(math.erfc((bar - shift) / math.sqrt(2)) for bar in bars.tolist()) / 2 / _SPREADS
    )


@lru_cache(maxsize=64)
def _spreads(degrees: int) -> Floats:
    """Return equally likely standard deviations of a sample, relative to the true one."""
    grid = np.linspace(0.0, 1 + 8 / math.sqrt(2 * degrees), 4001)[1:]
    logs = (degrees - 1) * np.log(grid) - degrees * grid**2 / 2
    below = np.cumsum(np.exp(logs - logs.max()))
    levels = (np.arange(_SPREADS) + 0.5) / _SPREADS
    found: Floats = np.interp(levels, below / below[-1], grid)
    return found


def detectable(
    spread: float,
    blocks: int,
    tests: int,
    level: float,
    wanted: float = POWER,
    *,
    margin: float = 0.0,
    plan: LookPlan | None = None,
    dispersion: float = 0.0,
) -> float:
    """Return the least difference that is declared with the wanted power; infinite if none is.

    Args:
        spread: Standard deviation of block differences (of log-ratios).
        blocks: Number of blocks.
        tests: Metrics of the family.
        level: Familywise error.
        wanted: The wanted probability that it is declared.
        margin: The practical margin, which the estimate must exceed as well.
        plan: The looks of a group-sequential study.
        dispersion: How far the metrics' deviations differ; see `power`.
    """
    if blocks < 2 or least_p(blocks) >= level:
        return math.inf
    if math.isinf(_critical(blocks, tests, level, plan, dispersion)):
        return math.inf
    if spread <= 0:
        return margin

    def reached(difference: float) -> bool:
        found = power(
            difference, spread, blocks, tests, level,
            margin=margin, plan=plan, dispersion=dispersion,
        )  # fmt: skip
        return found >= wanted

    low, high = 0.0, max(spread, margin)
    while not reached(high):
        low, high = high, 2 * high
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


@lru_cache(maxsize=4096)
def _assured(width: float, blocks: int, assurance: float) -> int:
    """Return the number of blocks that show equality.

    Args:
        width: The half-width that was found, divided by the margin.
        blocks: The number of blocks that it was found with.
        assurance: The wanted probability.
    """
    rng = np.random.default_rng(4)
    normal = np.abs(rng.standard_normal(ASSURANCE_DRAWS))
    spread = width * math.sqrt(blocks) / t_quantile(_SHOWN, blocks - 1)
    # Few blocks determined the spread, so the true one may be as large as they leave open.
    spreads = spread * np.sqrt((blocks - 1) / rng.chisquare(blocks - 1, ASSURANCE_DRAWS))

    def chance(wanted: int) -> float:
        own = np.random.default_rng(5)
        found = np.sqrt(own.chisquare(wanted - 1, ASSURANCE_DRAWS) / (wanted - 1))
        t = t_quantile(_SHOWN, min(wanted - 1, _MANY))
        reach = spreads * (normal + t * found) / math.sqrt(wanted)
        return float((reach <= 1).mean())

    low, high = 1, 2
    while chance(high) < assurance:
        low, high = high, high * 2
    while high - low > max(1, high // 100):
        middle = (low + high) // 2
        low, high = (low, middle) if chance(middle) >= assurance else (middle, high)
    return high


def blocks_for_equality(
    half_width: float, margin: float, blocks: int, assurance: float = POWER
) -> int:
    """Return how many blocks show two equal arms to be equivalent, with the wanted probability.

    The whole interval of that many blocks must be within the margin. An interval exactly as wide as
    the margin is not enough: its centre would have to be 0. The number is found by simulation, over
    the true spreads that the few blocks are compatible with.

    Args:
        half_width: The half-width that was found with ``blocks``, on the log scale.
        margin: The margin, on the same scale, above 0.
        blocks: The number of blocks that it was found with, 2 or more.
        assurance: The wanted probability.
    """
    # Rounding to about 1 % lets all effects of a run share simulations.
    width = math.exp(round(math.log(half_width / margin), 2))
    return _assured(width, blocks, assurance)
