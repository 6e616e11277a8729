"""The exact interval of a share, such as how often something failed."""

from __future__ import annotations


def exact_interval(hits: int, tries: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the interval of the share that ``hits`` out of ``tries`` come from.

    Source: Clopper and Pearson, "The use of confidence or fiducial limits illustrated in the case
    of the binomial", Biometrika 26 (1934). It never covers less than it says.

    Args:
        hits: How often it happened.
        tries: How often it was tried, at least 1.
        confidence: Of the interval, between 0 and 1.

    Raises:
        ValueError: There are no tries, or more hits than tries.
    """
    if not 0 <= hits <= tries or tries == 0:
        raise ValueError(f"{hits} of {tries} is no share")
    # The functions alone; with its distributions the library takes three times as long to load.
    from scipy.special import betaincinv

    outside = (1 - confidence) / 2
    low = betaincinv(hits, tries - hits + 1, outside) if hits else 0.0
    high = betaincinv(hits + 1, tries - hits, 1 - outside) if hits < tries else 1.0
    return float(low), float(high)
