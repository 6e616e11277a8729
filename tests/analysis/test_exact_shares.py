"""Exact shares and Fisher's test, against whole numbers."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from tare.analysis.statistics.shares import exact_share, fisher_p


def at_most(count: int, total: int, share: float) -> float:
    """Return the probability of at most ``count`` of ``total``, each with chance ``share``."""
    return math.fsum(
        math.comb(total, k) * share**k * (1 - share) ** (total - k) for k in range(count + 1)
    )


@pytest.mark.parametrize(("count", "total"), [(1, 2), (1, 9), (4, 9), (8, 9), (3, 40)])
@pytest.mark.parametrize("confidence", [0.5, 0.95])
def test_each_end_leaves_half_of_the_rest_beyond(count: int, total: int, confidence: float) -> None:
    found = exact_share(count, total, confidence)
    tail = (1 - confidence) / 2
    assert (found.count, found.total) == (count, total)
    assert at_most(count, total, found.high) == pytest.approx(tail, rel=1e-9)
    assert 1 - at_most(count - 1, total, found.low) == pytest.approx(tail, rel=1e-9)


def test_none_and_all_are_bounded_from_one_side() -> None:
    none, all_ = exact_share(0, 5, 0.9), exact_share(5, 5, 0.9)
    assert (none.low, all_.high) == (0.0, 1.0)
    assert none.high == pytest.approx(1 - 0.05**0.2, rel=1e-12)
    assert all_.low == pytest.approx(0.05**0.2, rel=1e-12)
    nothing = exact_share(0, 0, 0.9)
    assert (nothing.low, nothing.high) == (0.0, 1.0)


@pytest.mark.parametrize(("count", "total"), [(-1, 5), (6, 5)])
def test_a_count_above_its_total_is_refused(count: int, total: int) -> None:
    with pytest.raises(ValueError, match=f"{count} is not from 0 to {total}"):
        exact_share(count, total, 0.9)


def fisher(count: int, total: int, other_count: int, other_total: int) -> Fraction:
    """The definition, in whole numbers: tables at most as likely as the one seen."""
    successes = count + other_count
    ways = [
        math.comb(total, k) * math.comb(other_total, successes - k) for k in range(successes + 1)
    ]
    seen = math.comb(total, count) * math.comb(other_total, other_count)
    return Fraction(sum(way for way in ways if way <= seen), sum(ways))


@pytest.mark.parametrize(
    "table",
    [
        (0, 5, 0, 5), (5, 5, 5, 5), (0, 5, 5, 5), (5, 5, 0, 5), (1, 9, 6, 8), (6, 8, 1, 9),
        (3, 3, 1, 12), (1, 12, 3, 3), (2, 4, 2, 4), (1, 4, 3, 4), (0, 1, 3, 30), (7, 20, 2, 11),
    ],
)  # fmt: skip
def test_all_tables_at_most_as_likely_count(table: tuple[int, int, int, int]) -> None:
    assert fisher_p(*table) == pytest.approx(float(fisher(*table)), rel=1e-12)


def test_no_p_is_above_one_where_chances_add_up_to_more_by_rounding() -> None:
    assert fisher_p(3, 11, 2, 11) == 1.0
