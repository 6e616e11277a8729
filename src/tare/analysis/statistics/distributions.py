"""Probabilities and quantiles of the beta, Student's t, chi-square and noncentral t distributions.

Only a few of them are needed, one value at a time. A library for them would be the second largest
of an installation, and would take longer to load than most reports take to make. The tests compare
every function with SciPy.
"""

from __future__ import annotations

import math
from functools import lru_cache

_EPSILON = 1e-16
_TINY = 1e-300
_STEPS = 100
"""The most iterations of Newton's method with bisection, which needs about ten."""

_TAIL = 9.0
"""Standard deviations beyond which a normal distribution has 1e-19: nothing at double precision."""

_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)


def beta_cdf(a: float, b: float, x: float) -> float:
    """Return the regularized incomplete beta function: the probability below ``x``.

    Args:
        a: First parameter, above 0.
        b: Second parameter, above 0.
        x: From 0 to 1.
    """
    return _beta_cdf(a, b, x, 1 - x)


def beta_quantile(a: float, b: float, p: float) -> float:
    """Return the x below which the beta distribution has the probability ``p``.

    Args:
        a: First parameter, above 0.
        b: Second parameter, above 0.
        p: Between 0 and 1, both excluded.
    """
    return 1 / (1 + math.exp(-_beta_logit(a, b, p)))


@lru_cache(maxsize=1024)
def student_quantile(confidence: float, degrees: float) -> float:
    """Return the two-sided quantile of Student's t: it is within ± t with ``confidence``.

    Args:
        confidence: Between 0 and 1, both excluded.
        degrees: Degrees of freedom, above 0; not necessarily whole.
    """
    # degrees / (degrees + t²) has a beta distribution (Abramowitz & Stegun 1964, 26.7.1).
    logit = -_beta_logit(0.5, degrees / 2, confidence)
    return math.sqrt(degrees) * math.exp(-logit / 2)


def normal_quantile(p: float) -> float:
    """Return the z below which the standard normal distribution has the probability ``p``.

    Args:
        p: Between 0 and 1, both excluded.
    """
    from statistics import NormalDist

    return NormalDist().inv_cdf(p)


def chi_square_cdf(degrees: float, x: float) -> float:
    """Return the probability that chi-square with ``degrees`` of freedom is at most ``x``.

    Source: the series and the continued fraction of the incomplete gamma function (Abramowitz &
    Stegun 1964, 6.5.29 and 6.5.31).

    Args:
        degrees: Above 0.
        x: At least 0.
    """
    a, half = degrees / 2, x / 2
    if half <= 0:
        return 0.0
    # half^a e^-half / Γ(a), without the cancellation of its logarithm.
    factor = math.sqrt(a / (2 * math.pi)) * math.exp(-_deviance(a, half) - _stirling(a))
    if half < a + 1:
        term = total = 1 / a
        k = a
        while term > total * _EPSILON:
            k += 1
            term *= half / k
            total += term
        return min(1.0, factor * total)
    # Lentz's method.
    b = half + 1 - a
    c, d = 1 / _TINY, 1 / b
    fraction, change, i = d, 0.0, 0
    while abs(change - 1) > _EPSILON * 4:
        i += 1
        numerator = -i * (i - a)
        b += 2
        d = 1 / _nonzero(numerator * d + b)
        c = _nonzero(b + numerator / c)
        change = c * d
        fraction *= change
    return 1 - factor * fraction


def noncentral_t_cdf(degrees: float, shift: float, t: float) -> float:
    """Return the probability that noncentral t is at most ``t``.

    It is the mean of Φ(t·s − shift) over s = √(χ²/degrees), by Gauss-Legendre quadrature where both
    vary: above, Φ is 1, and below, 0.

    Args:
        degrees: Degrees of freedom, at least 1.
        shift: The noncentrality, at least 0.
        t: Above 0.
    """
    width = _TAIL / math.sqrt(degrees)
    low = max(0.0, 1 - width, (shift - _TAIL) / t)
    high = min(1 + width, (shift + _TAIL) / t)
    above = 1 - chi_square_cdf(degrees, degrees * high * high)
    if low >= high:
        return above
    scale = math.log(2 * math.sqrt(degrees / (4 * math.pi))) - _stirling(degrees / 2)
    centre, half = (low + high) / 2, (high - low) / 2
    total = 0.0
    for node, weight in _gauss_legendre():
        s = centre + half * node
        density = math.exp(scale - _deviance(degrees / 2, degrees * s * s / 2)) / s
        total += weight * density * math.erfc((shift - t * s) / math.sqrt(2)) / 2
    return min(1.0, above + half * total)


@lru_cache(maxsize=1)
def _gauss_legendre() -> tuple[tuple[float, float], ...]:
    import numpy as np

    nodes, weights = np.polynomial.legendre.leggauss(80)
    return tuple(zip(nodes.tolist(), weights.tolist(), strict=True))


def _beta_logit(a: float, b: float, p: float) -> float:
    """Return ln(x / (1 − x)) of the quantile, by Newton's method inside a bracket."""
    low, high = -700.0, 700.0
    logit = math.log(a / b)
    for _ in range(_STEPS):
        x, y = 1 / (1 + math.exp(-logit)), 1 / (1 + math.exp(logit))
        error = _beta_cdf(a, b, x, y) - p
        low, high = (low, logit) if error > 0 else (logit, high)
        slope = _beta_power(a, b, x, y)
        moved = logit - error / slope if slope > 0 else math.inf
        if not low <= moved <= high:
            moved = (low + high) / 2
        # A step's error is about its square: after one this short, nothing is left.
        if abs(moved - logit) <= 1e-8:
            return moved
        logit = moved
    return logit


def _beta_cdf(a: float, b: float, x: float, y: float) -> float:
    """Return the regularized incomplete beta function, given ``x`` and ``y`` = 1 − ``x``."""
    if x <= 0:
        return 0.0
    if y <= 0:
        return 1.0
    # Above the mean of about a / (a + b), the complement converges faster. The products make
    # the choice antisymmetric: exchanged arguments never exchange themselves again.
    if x * (b + 1) > y * (a + 1):
        return 1 - _beta_cdf(b, a, y, x)
    # The continued fraction of NIST's handbook (Olver et al. 2010, 8.17.22), by Lentz's method.
    c, d = 1.0, 1 / _nonzero(1 - (a + b) * x / (a + 1))
    fraction, change, m = d, 0.0, 0
    while abs(change - 1) > _EPSILON * 4:
        m += 1
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1 / _nonzero(1 + even * d)
        c = _nonzero(1 + even / c)
        fraction *= c * d
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d = 1 / _nonzero(1 + odd * d)
        c = _nonzero(1 + odd / c)
        change = c * d
        fraction *= change
    return min(1.0, _beta_power(a, b, x, y) / a * fraction)


def _beta_power(a: float, b: float, x: float, y: float) -> float:
    """Return xᵃ yᵇ / B(a, b), exact also for large parameters (Loader 2000)."""
    n = a + b
    corrections = _stirling(n) - _stirling(a) - _stirling(b)
    exponent = corrections - _deviance(a, n * x) - _deviance(b, n * y)
    return math.sqrt(a / n * b / (2 * math.pi)) * math.exp(exponent)


def _deviance(k: float, mean: float) -> float:
    """Return k ln(k / mean) + mean − k, without its cancellation where both are near."""
    off = (k - mean) / mean if mean > 0 else math.inf
    if abs(off) < 0.5:
        return mean * ((1 + off) * math.log1p(off) - off)
    return k * (math.log(k) - math.log(mean)) + mean - k if mean > 0 else math.inf


def _stirling(z: float) -> float:
    """Return ln Γ(z) less the logarithm of √(2π/z) (z/e)ᶻ."""
    if z < 16:
        return math.lgamma(z) - (z - 0.5) * math.log(z) + z - 0.5 * math.log(2 * math.pi)
    square, power, total = z * z, z, 0.0
    for coefficient in _STIRLING:
        total += coefficient / power
        power *= square
    return total


def _nonzero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
