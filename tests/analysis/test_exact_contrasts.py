"""Contrasts of factorial designs: known effects are found exactly, aliased ones are named."""

from __future__ import annotations

import numpy as np
import pytest

from tare.analysis.statistics.contrasts import Term, contrasts
from tare.study.planning.factorial import full_runs, smallest_fraction


def test_a_full_two_level_design_finds_effects_and_interaction_exactly() -> None:
    runs = full_runs([2, 2])
    # 0.1 for the first, 0.4 for the second, and 0.2 more if both are changed.
    values = [0.0, 0.4, 0.1, 0.7]
    found = {
        contrast.term: sum(w * v for w, v in zip(contrast.weights, values, strict=True))
        for contrast in contrasts(runs, (), (2, 2))
    }
    assert found[Term((0,), (1,))] == pytest.approx(0.1 + 0.2 / 2)
    assert found[Term((1,), (1,))] == pytest.approx(0.4 + 0.2 / 2)
    assert found[Term((0, 1), (1, 1))] == pytest.approx(0.2)


def test_three_levels_are_each_compared_with_the_first() -> None:
    runs = full_runs([3, 2])
    values = [0.0, 1.0, 0.3, 1.3, 0.5, 1.5]
    found = {
        contrast.term: sum(w * v for w, v in zip(contrast.weights, values, strict=True))
        for contrast in contrasts(runs, (), (3, 2))
    }
    assert found[Term((0,), (1,))] == pytest.approx(0.3)
    assert found[Term((0,), (2,))] == pytest.approx(0.5)
    assert found[Term((1,), (1,))] == pytest.approx(1.0)
    assert found[Term((0, 1), (2, 1))] == pytest.approx(0.0, abs=1e-12)


def test_weights_add_up_to_nothing_so_that_a_block_cancels_out() -> None:
    fraction = smallest_fraction(6, 4)
    assert fraction is not None
    found = contrasts(fraction.runs, (), (2,) * 6)
    assert len([each for each in found if len(each.term.factors) == 1]) == 6
    for contrast in found:
        assert sum(contrast.weights) == pytest.approx(0, abs=1e-12)


def test_aliased_interactions_are_one_contrast_that_names_the_others() -> None:
    fraction = smallest_fraction(4, 4)
    assert fraction is not None
    found = contrasts(fraction.runs, (), (2,) * 4)
    pairs = [each for each in found if len(each.term.factors) == 2]
    assert len(pairs) == 3
    assert all(len(each.aliased) == 1 for each in pairs)
    # The sum of both interactions is measured.
    levels = np.array(fraction.runs) - 0.5
    one, other = pairs[0].term.factors, pairs[0].aliased[0].factors
    values = 0.2 * levels[:, one[0]] * levels[:, one[1]]
    values += 0.3 * levels[:, other[0]] * levels[:, other[1]]
    assert float(np.dot(pairs[0].weights, values)) == pytest.approx(0.5)


def test_a_lost_run_leaves_main_effects_that_assume_no_other_interaction() -> None:
    fraction = smallest_fraction(4, 4)
    assert fraction is not None
    found = contrasts(fraction.runs[:-1], (), (2,) * 4)
    mains = [each for each in found if len(each.term.factors) == 1]
    assert len(mains) == 4 and all(each.assumes for each in mains)


def test_a_level_that_no_run_has_is_not_estimated() -> None:
    fraction = smallest_fraction(4, 4)
    assert fraction is not None
    left = [run for run in fraction.runs if run[3] == 0]
    terms = {each.term for each in contrasts(left, (), (2, 2, 2, 1))}
    assert Term((3,), (1,)) not in terms
    assert {Term((factor,), (1,)) for factor in range(3)} <= terms


def test_two_settings_that_always_change_together_are_not_separated() -> None:
    found = contrasts([(0, 0), (1, 1)], (), (2, 2))
    assert found == ()
