"""Compare two ways of doing the same thing: alternate them, and take medians of pairs.

Both sides of a pair run right after one another, in an order that flips from pair to pair, so
that a slow spell of the machine, or a drift, falls on both alike.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Side:
    """One of the two things compared: its name, and how to do and measure it once."""

    name: str
    measure: Callable[[], float]


@dataclass(frozen=True)
class Interval:
    """A confidence interval of a median, with the coverage it really has."""

    low: float
    high: float
    coverage: float


@dataclass(frozen=True)
class Pairs:
    """What alternating two sides gave; pair i is ``(a[i], b[i])``."""

    a_name: str
    b_name: str
    a: tuple[float, ...]
    b: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.a) != len(self.b) or not self.a:
            raise ValueError("pairs need as many values of one side as of the other, and some")

    @property
    def differences(self) -> tuple[float, ...]:
        """``a - b`` within each pair."""
        return tuple(a - b for a, b in zip(self.a, self.b, strict=True))

    @property
    def ratios(self) -> tuple[float, ...]:
        """``a / b`` within each pair."""
        return tuple(a / b for a, b in zip(self.a, self.b, strict=True))

    @property
    def difference(self) -> float:
        """The median of the differences within pairs."""
        return statistics.median(self.differences)

    @property
    def ratio(self) -> float:
        """The median of the ratios within pairs."""
        return statistics.median(self.ratios)


def alternate(
    a: Side,
    b: Side,
    pairs: int,
    *,
    warmups: int = 1,
    report: Callable[[str], None] = lambda _: None,
) -> Pairs:
    """Measure ``a`` and ``b`` by turns.

    Args:
        a: One side.
        b: The other.
        pairs: How many pairs count.
        warmups: Pairs measured before them and thrown away, so that caches are filled alike.
        report: Gets one line for each pair.

    Returns:
        The pairs that count.
    """
    found: list[tuple[float, float]] = []
    for number in range(-warmups, pairs):
        if number % 2 == 0:
            one = a.measure()
            other = b.measure()
        else:
            other = b.measure()
            one = a.measure()
        label = f"pair {number + 1}/{pairs}" if number >= 0 else "warm-up"
        report(f"{label}: {a.name} {one:.4g}, {b.name} {other:.4g}")
        if number >= 0:
            found.append((one, other))
    return Pairs(a.name, b.name, tuple(x for x, _ in found), tuple(y for _, y in found))


def median_interval(values: Sequence[float], least: float = 0.95) -> Interval:
    """Return the narrowest interval of order statistics that covers the median.

    Source: the sign test's inversion; between the k-th smallest and the k-th largest of n values
    the median is with probability 1 - 2 P(X < k), X binomial (n, 1/2). No distribution is assumed.

    Args:
        values: The sample.
        least: The coverage wanted. Where the sample is too small for it, its whole range is
            returned with the coverage that this has.
    """
    ordered = sorted(values)
    n = len(ordered)
    if n == 0:
        raise ValueError("no values, no interval")

    def coverage(k: int) -> float:
        return 1.0 - 2.0 * sum(math.comb(n, i) for i in range(k)) / 2.0**n

    k = max((k for k in range(1, (n + 1) // 2 + 1) if coverage(k) >= least), default=1)
    return Interval(ordered[k - 1], ordered[n - k], max(0.0, coverage(k)))
