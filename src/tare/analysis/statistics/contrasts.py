"""Main effects and two-way interactions of a factorial design, as weights of its runs.

An effect is a weighted sum of the runs' log-values whose weights add up to 0. Weights come from
least squares. A run's columns are centred indicators of its levels and, for interactions, their
products: with two levels these are ±½, so that a main effect is the average difference between
the levels, and an interaction is the difference between two such differences.

Effects are estimated only if they are estimable: no combination of the other effects has the same
column. Interactions with equal columns are aliased; only their sum is estimable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_SLACK = 1e-8


class Term(NamedTuple):
    """One or two factors, each with the level that is compared with level 0."""

    factors: tuple[int, ...]
    levels: tuple[int, ...]


@dataclass(frozen=True)
class Contrast:
    """An estimable effect.

    Args:
        term: The effect.
        weights: The weight of each run.
        aliased: Interactions that the runs do not separate from it.
        assumes: Whether it holds only if unnamed interactions are absent.
    """

    term: Term
    weights: tuple[float, ...]
    aliased: tuple[Term, ...] = ()
    assumes: bool = False


def contrasts(
    runs: Sequence[Sequence[int]],
    named: Sequence[tuple[int, int]],
    counts: Sequence[int],
) -> tuple[Contrast, ...]:
    """Return all estimable main effects and interactions of a set of runs.

    If there are too few runs to separate main effects from all interactions, main effects and named
    interactions are estimated as if there were no others. These contrasts have ``assumes`` set.

    Args:
        runs: The levels of each run.
        named: The interactions of interest.
        counts: The number of levels of each factor, over which other effects are averaged.
    """
    levels = np.array(runs, dtype=np.int64, ndmin=2)
    if levels.size == 0:
        return ()
    mains = [
        Term((factor,), (level,))
        for factor in range(levels.shape[1])
        for level in range(1, int(levels[:, factor].max()) + 1)
        if (levels[:, factor] == level).any() and (levels[:, factor] == 0).any()
    ]
    pairs = [
        Term((one.factors[0], other.factors[0]), (one.levels[0], other.levels[0]))
        for one, other in combinations(mains, 2)
        if one.factors != other.factors
    ]
    found = _estimable(levels, counts, mains, pairs, assumes=False)
    known = {contrast.term for contrast in found}
    wanted = [pair for pair in pairs if pair.factors in named]
    if all(main in known for main in mains):
        return found
    return (
        *found,
        *(
            contrast
            for contrast in _estimable(levels, counts, mains, wanted, assumes=True)
            if contrast.term not in known
        ),
    )


def _estimable(
    levels: NDArray[np.int64],
    counts: Sequence[int],
    mains: Sequence[Term],
    pairs: Sequence[Term],
    *,
    assumes: bool,
) -> tuple[Contrast, ...]:
    columns: list[Floats] = [np.ones(len(levels))]
    terms: list[Term] = []
    aliases: list[list[Term]] = []
    for term in (*mains, *pairs):
        column = _column(levels, counts, term)
        same = None
        if len(term.factors) == 2:
            same = next((i for i, each in enumerate(terms) if _equal(columns[i + 1], column)), None)
        if same is not None and len(terms[same].factors) == 2:
            aliases[same].append(term)
            continue
        columns.append(column)
        terms.append(term)
        aliases.append([])
    matrix = np.stack(columns, axis=1)
    inverse = np.linalg.pinv(matrix)
    identity = inverse @ matrix
    return tuple(
        Contrast(term, tuple(inverse[i].tolist()), tuple(aliases[i - 1]), assumes)
        for i, term in enumerate(terms, start=1)
        if np.abs(identity[i] - np.eye(matrix.shape[1])[i]).max() < _SLACK
    )


def _column(levels: NDArray[np.int64], counts: Sequence[int], term: Term) -> Floats:
    column = np.ones(len(levels))
    for factor, level in zip(term.factors, term.levels, strict=True):
        column = column * ((levels[:, factor] == level) - 1 / counts[factor])
    return column


def _equal(one: Floats, other: Floats) -> bool:
    return bool(np.abs(one - other).max() < _SLACK)


def all_terms(counts: Sequence[int]) -> tuple[Term, ...]:
    """Return every main effect and two-way interaction of factors with some numbers of levels."""
    mains = [Term((f,), (level,)) for f, count in enumerate(counts) for level in range(1, count)]
    pairs = [
        Term((one, other), chosen)
        for one, other in combinations(range(len(counts)), 2)
        for chosen in product(range(1, counts[one]), range(1, counts[other]))
    ]
    return (*mains, *pairs)
