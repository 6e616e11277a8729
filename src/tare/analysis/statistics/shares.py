"""Shares of boots and of cells: exact intervals, and exact tests of one share against another."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tare.analysis.statistics.distributions import beta_quantile


@dataclass(frozen=True)
class Share:
    """A count out of a total, with the interval of the true share.

    Args:
        count: The count.
        total: The total.
        low: Lower end of the share's interval, from 0.
        high: Upper end, to 1.
    """

    count: int
    total: int
    low: float
    high: float


def exact_share(count: int, total: int, confidence: float) -> Share:
    """Return a share with its exact interval (Clopper & Pearson 1934), never too narrow.

    Args:
        count: The count, from 0 to ``total``.
        total: The total; if it is 0, the interval is from 0 to 1.
        confidence: Nominal coverage; at most half of the error is on each side.

    Raises:
        ValueError: ``count`` is not from 0 to ``total``.
    """
    if not 0 <= count <= total:
        raise ValueError(f"{count} is not from 0 to {total}")
    tail = (1 - confidence) / 2
    low = 0.0 if count == 0 else beta_quantile(count, total - count + 1, tail)
    high = 1.0 if count == total else beta_quantile(count + 1, total - count, 1 - tail)
    return Share(count, total, low, high)


def fisher_p(count: int, total: int, other_count: int, other_total: int) -> float:
    """Return the two-sided p of Fisher's exact test (1935) that two shares are the same.

    All tables with the same margins that are at most as likely as the observed one count.
    """
    successes, size = count + other_count, total + other_total
    least, most = max(0, successes - other_total), min(total, successes)

    def log_choose(n: int, k: int) -> float:
        return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)

    whole = log_choose(size, successes)
    chances = {
        k: math.exp(log_choose(total, k) + log_choose(other_total, successes - k) - whole)
        for k in range(least, most + 1)
    }
    bar = chances[count] * (1 + 1e-7)
    return min(1.0, math.fsum(chance for chance in chances.values() if chance <= bar))
