"""Fractional designs have the resolution that they state."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from tare.study.planning.factorial import effects_of, full_runs, single_runs, smallest_fraction


def signs_of(runs: tuple[tuple[int, ...], ...], effect: tuple[int, ...]) -> np.ndarray:
    signs: np.ndarray = np.prod(np.array(runs)[:, list(effect)] * 2 - 1, axis=1)
    return signs


@pytest.mark.parametrize(("factors", "runs"), [(4, 8), (5, 16), (6, 16), (8, 16), (11, 32)])
def test_the_smallest_fraction_of_resolution_iv_keeps_main_effects_clear(
    factors: int, runs: int
) -> None:
    fraction = smallest_fraction(factors, 4)
    assert fraction is not None and len(fraction.runs) == runs
    assert fraction.runs[0] == (0,) * factors
    assert len(set(fraction.runs)) == runs
    for factor in range(factors):
        main = signs_of(fraction.runs, (factor,))
        assert main.sum() == 0
        for other in effects_of(factors):
            if other != (factor,):
                assert main @ signs_of(fraction.runs, other) == 0


@pytest.mark.parametrize(("factors", "runs"), [(5, 16), (6, 32), (8, 64)])
def test_resolution_v_keeps_all_two_way_interactions_clear(factors: int, runs: int) -> None:
    fraction = smallest_fraction(factors, 5)
    assert fraction is not None and len(fraction.runs) == runs
    assert fraction.resolution is not None and fraction.resolution >= 5
    assert fraction.aliases == ()
    for one, other in combinations(list(effects_of(factors)), 2):
        assert signs_of(fraction.runs, one) @ signs_of(fraction.runs, other) == 0


def test_named_interactions_are_clear_in_a_fraction_of_resolution_iv() -> None:
    named = [(0, 1), (2, 7)]
    fraction = smallest_fraction(8, 4, named)
    assert fraction is not None and len(fraction.runs) == 32
    for pair in named:
        column = signs_of(fraction.runs, pair)
        for other in effects_of(8):
            if other != pair:
                assert column @ signs_of(fraction.runs, other) == 0
    assert not any(pair in same for same in fraction.aliases for pair in named)


def test_aliases_are_exactly_the_effects_with_equal_columns() -> None:
    fraction = smallest_fraction(6, 4)
    assert fraction is not None
    listed = {frozenset(pair) for same in fraction.aliases for pair in combinations(same, 2)}
    equal = {
        frozenset((one, other))
        for one, other in combinations(list(effects_of(6)), 2)
        if abs(signs_of(fraction.runs, one) @ signs_of(fraction.runs, other)) == 16
    }
    assert listed == equal and listed


def test_a_generator_is_the_product_of_basis_factors() -> None:
    fraction = smallest_fraction(5, 4)
    assert fraction is not None
    for factor, product in fraction.generators:
        sign = signs_of(fraction.runs, (factor,)) * signs_of(fraction.runs, product)
        assert len(set(sign.tolist())) == 1


def test_a_fraction_that_needs_too_many_runs_does_not_exist() -> None:
    assert smallest_fraction(16, 5) is None


def test_full_and_single_runs() -> None:
    assert full_runs([2, 3]) == ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2))
    assert single_runs([2, 3]) == ((1, 0), (0, 1), (0, 2))
    assert single_runs([2, 3], beyond=2) == ((0, 2),)
