"""Factorial designs: which combinations of settings to measure, and which effects they confuse.

In a two-level fraction, every factor is a column of signs. The columns are elements of a vector
space over {0, 1}: the first factors are its basis, and each further factor is the product of some
of them. Two effects are aliased if their columns are equal, so the fraction cannot separate them.
A design of resolution IV keeps main effects clear of each other and of two-way interactions. One
of resolution V also keeps all two-way interactions clear of each other (Box, Hunter & Hunter 2005,
chapter 6).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations, product
from operator import xor

MOST_RUNS_LOG2 = 7
"""A fraction has at most 2⁷ runs: every run is one more boot in each block."""
MOST_STEPS = 200_000
"""Steps of the search in one size of fraction, before the next size is tried."""

Effect = tuple[int, ...]
"""A main effect (one factor) or a two-way interaction (two factors, in order)."""


@dataclass(frozen=True)
class Fraction:
    """A two-level fraction.

    Args:
        columns: For each factor its column: bit b is set if basis factor b is part of the product.
        basis: The number of basis factors; there are 2^basis runs.
    """

    columns: tuple[int, ...]
    basis: int

    @property
    def runs(self) -> tuple[tuple[int, ...], ...]:
        """The level of each factor, 0 or 1, in each run; the first run is the default."""
        return tuple(
            tuple((column & run).bit_count() % 2 for column in self.columns)
            for run in range(1 << self.basis)
        )

    @property
    def resolution(self) -> int | None:
        """The length of the shortest product of factors that is constant; None in a full design."""
        lengths = (
            size
            for size in range(1, len(self.columns) + 1)
            if any(reduce(xor, chosen) == 0 for chosen in combinations(self.columns, size))
        )
        return next(lengths, None)

    @property
    def generators(self) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """Each factor outside the basis, with the factors whose product it is."""
        of_bit = {column: factor for factor, column in enumerate(self.columns) if _is_bit(column)}
        return tuple(
            (factor, tuple(of_bit[1 << bit] for bit in range(self.basis) if column >> bit & 1))
            for factor, column in enumerate(self.columns)
            if not _is_bit(column)
        )

    def column_of(self, effect: Effect) -> int:
        """Return the column of a main effect or interaction."""
        return reduce(xor, (self.columns[factor] for factor in effect))

    @property
    def aliases(self) -> tuple[tuple[Effect, ...], ...]:
        """The sets of main effects and two-way interactions that the fraction cannot separate."""
        found: dict[int, list[Effect]] = {}
        for effect in effects_of(len(self.columns)):
            found.setdefault(self.column_of(effect), []).append(effect)
        return tuple(tuple(same) for same in found.values() if len(same) > 1)


def _is_bit(column: int) -> bool:
    return column.bit_count() == 1


def effects_of(factors: int) -> Iterator[Effect]:
    """Return all main effects, and then all two-way interactions."""
    yield from ((factor,) for factor in range(factors))
    yield from combinations(range(factors), 2)


def smallest_fraction(
    factors: int, resolution: int = 4, clear: Sequence[Effect] = ()
) -> Fraction | None:
    """Return the smallest fraction of a resolution that also keeps some interactions clear.

    Args:
        factors: The number of two-level factors.
        resolution: The least resolution: 4, or 5 to separate all two-way interactions.
        clear: The interactions that must not be aliased with any main effect or any other two-way
            interaction, whatever the resolution of the whole.

    Returns:
        The fraction, or None if it would need more runs than are allowed.
    """
    # Factors of named interactions come first: their conflicts appear early in the search.
    named = [factor for pair in clear for factor in pair]
    order = sorted(range(factors), key=lambda factor: (-named.count(factor), factor))
    place = {factor: position for position, factor in enumerate(order)}
    wanted = {tuple(sorted((place[one], place[other]))) for one, other in clear}
    for basis in range(1, min(factors, MOST_RUNS_LOG2) + 1):
        columns = _search(factors, basis, resolution, wanted)
        if columns is not None:
            return Fraction(tuple(columns[place[factor]] for factor in range(factors)), basis)
    return None


def _search(
    factors: int, basis: int, resolution: int, wanted: set[tuple[int, ...]]
) -> list[int] | None:
    """Give each factor a column, depth first; return None if there is no solution."""
    steps = 0
    columns: list[int] = []

    def fits(column: int) -> bool:
        pairs = {one ^ other for one, other in combinations(columns, 2)}
        if column in columns or column in pairs:
            return False
        if resolution >= 5 and any(column ^ each in pairs for each in columns):
            return False
        return not _confuses([*columns, column], wanted)

    def extend() -> bool:
        nonlocal steps
        if len(columns) == factors:
            return True
        used = max((column.bit_length() for column in columns), default=0)
        # A new basis column first, and then products of the basis columns that exist.
        new = [1 << used] if used < basis else []
        products = [each for each in range(1, 1 << used) if not _is_bit(each)]
        if used + factors - len(columns) < basis:
            return False
        for column in (*new, *sorted(products, key=lambda each: (-each.bit_count(), each))):
            steps += 1
            if steps > MOST_STEPS:
                return False
            if fits(column):
                columns.append(column)
                if extend():
                    return True
                columns.pop()
        return False

    return columns if extend() else None


def _confuses(columns: Sequence[int], wanted: set[tuple[int, ...]]) -> bool:
    """Return whether the last column makes a wanted interaction equal to another pair."""
    pairs = {pair: columns[pair[0]] ^ columns[pair[1]] for pair in wanted if pair[1] < len(columns)}
    if not pairs:
        return False
    counts: dict[int, int] = {}
    for one, other in combinations(columns, 2):
        counts[one ^ other] = counts.get(one ^ other, 0) + 1
    return any(counts[column] > 1 or column in columns for column in pairs.values())


def full_runs(levels: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return all combinations of levels.

    Args:
        levels: The number of levels of each factor.
    """
    return tuple(product(*map(range, levels)))


def single_runs(levels: Sequence[int], beyond: int = 1) -> tuple[tuple[int, ...], ...]:
    """Return the runs that change one factor each.

    Args:
        levels: The number of levels of each factor.
        beyond: The first level that is measured alone.
    """
    return tuple(
        tuple(level if each == factor else 0 for each in range(len(levels)))
        for factor, count in enumerate(levels)
        for level in range(beyond, count)
    )
