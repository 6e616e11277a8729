"""Student's t quantiles for the confidence that is usual, without a library.

The library that computes them takes longer to load than most reports take to be made. For numbers
of blocks that are usual there is a table, of the library's own values (`scipy.special.stdtrit`);
for more, formulas that are as exact. So it does not matter where one comes from.
"""

from __future__ import annotations

import math

CONFIDENCE = 0.95
"""Of a study that asks for no other."""

_QUANTILES = (
    12.706204736174694,
    4.302652729749462,
    3.1824463052837078,
    2.7764451051977934,
    2.5705818356363146,
    2.4469118511449786,
    2.364624251592784,
    2.306004135204166,
    2.262157162798205,
    2.228138851986274,
    2.200985160091639,
    2.1788128296672284,
    2.1603686564627913,
    2.144786687917804,
    2.131449545559776,
    2.1199052992212546,
    2.1098155778333156,
    2.1009220402410382,
    2.0930240544083087,
    2.085963447265864,
    2.0796138447276795,
    2.0738730679040254,
    2.0686576104190486,
    2.0638985616280245,
    2.0595385527532972,
    2.0555294386428735,
    2.0518305164802846,
    2.0484071417952454,
    2.045229642132703,
    2.0422724563012378,
    2.039513446396408,
    2.0369333434601016,
    2.0345152974493383,
    2.0322445093177186,
    2.030107928250343,
    2.0280940009804502,
    2.0261924630291093,
    2.0243941639119694,
    2.022690920036761,
    2.021075390306273,
    2.019540970441376,
    2.0180817028184443,
    2.016692199227824,
    2.0153675744437636,
    2.014103388880846,
    2.012895598919429,
    2.0117405137297655,
    2.010634757624232,
    2.0095752371292392,
    2.008559112100761,
    2.007583770315836,
    2.006646805061688,
    2.0057459953178687,
    2.0048792881880564,
    2.0040447832891455,
    2.003240718847872,
    2.002465459291007,
    2.0017174841452356,
    2.000995378088267,
    2.0002978220142604,
    1.999623584994939,
    1.9989715170333788,
    1.998340542520741,
)


_NORMAL = 1.959963984540054
"""What the quantiles come down to: the normal distribution's (`scipy.special.ndtri`)."""


def student_quantile(confidence: float, degrees: int) -> float:
    """Return the t that Student's t lies within, to either side, with ``confidence``.

    Args:
        confidence: Between 0 and 1, both excluded.
        degrees: Degrees of freedom, at least 1.
    """
    if confidence == CONFIDENCE:
        usual = degrees <= len(_QUANTILES)
        return _QUANTILES[degrees - 1] if usual else _of_many(degrees)
    from scipy.special import stdtrit

    return float(stdtrit(degrees, 0.5 + confidence / 2))


def _of_many(degrees: int) -> float:
    """Return the usual confidence's t for more degrees of freedom than the table has.

    The expansion is near enough for one step of Newton's method to reach it.
    """
    near = _expanded(degrees)
    gamma = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)
    density = math.exp(gamma - (degrees + 1) / 2 * math.log1p(near**2 / degrees))
    both = 2 * density / math.sqrt(math.pi * degrees)
    return near + (CONFIDENCE - within(near, degrees)) / both


def _expanded(degrees: int) -> float:
    """Return the same by an expansion in 1 ÷ degrees (Abramowitz & Stegun 1964, 26.7.5)."""
    z = _NORMAL
    return (
        z
        + (z**3 + z) / (4 * degrees)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * degrees**3)
    )


def within(t: float, degrees: int) -> float:
    """Return how likely Student's t lies within ``t``, to either side.

    Source: Abramowitz & Stegun 1964, 26.7.3 and 26.7.4.

    Args:
        t: At least 0.
        degrees: Degrees of freedom, at least 1. It takes half as many steps.
    """
    angle = math.atan2(t, math.sqrt(degrees))
    square = math.cos(angle) ** 2
    odd = degrees % 2
    # Each term is the one before it, times a factor that comes near the square of the cosine.
    term = math.cos(angle) if odd else 1.0
    terms = [] if degrees == 1 else [term]
    for k in range(2 + odd, degrees, 2):
        term *= square * (k - 1) / k
        terms.append(term)
    total = math.sin(angle) * math.fsum(terms)
    return 2 / math.pi * (angle + total) if odd else total
