"""Blocks, repeats and iterations of unequal number: what is padding counts for nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.analysis.statistics import bootstrap

RAGGED = st.lists(
    st.lists(st.lists(st.just(7.0), min_size=1, max_size=4), min_size=1, max_size=3),
    min_size=2,
    max_size=5,
)


@given(RAGGED, st.integers(0, 9))
def test_equal_values_give_equal_resampled_means(
    blocks: list[list[list[float]]], seed: int
) -> None:
    nested, rng = bootstrap.nest(blocks), np.random.default_rng(seed)
    drawn = rng.integers(len(blocks), size=(5, len(blocks)))
    assert bootstrap._resample(nested, drawn, rng) == pytest.approx(7.0)
    assert bootstrap.block_means(nested) == pytest.approx(7.0)


def test_repeats_weigh_the_same_regardless_of_their_length() -> None:
    nested = bootstrap.nest([[[1.0, 1.0, 1.0, 5.0], [4.0]], [[6.0]]])
    assert bootstrap.block_means(nested) == pytest.approx(np.array([[3.0, 6.0]]))
