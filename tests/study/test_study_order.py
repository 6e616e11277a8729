"""Balanced orders: each arm as often in each place, and after each other arm."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.study.planning.arm_order import balanced, williams


@pytest.mark.parametrize("size", range(1, 10))
def test_a_square_has_each_in_each_place_and_after_each_other(size: int) -> None:
    rows = williams(size)
    assert len(rows) == (size if size % 2 == 0 or size == 1 else 2 * size)
    assert all(sorted(row) == list(range(size)) for row in rows)
    for column in zip(*rows, strict=True):
        assert set(Counter(column).values()) == {len(rows) // size}
    after = Counter(pair for row in rows for pair in pairwise(row))
    assert len(set(after.values())) <= 1
    assert len(after) == size * (size - 1)


@given(st.integers(2, 8), st.integers(0, 5), st.text(max_size=5))
def test_any_whole_square_of_blocks_is_balanced(size: int, square: int, seed: str) -> None:
    names = [f"arm{i}" for i in range(size)]
    blocks = [balanced(names, size * square + i + 1, seed) for i in range(size)]
    for column in zip(*blocks, strict=True):
        assert sorted(column) == sorted(names)


def test_order_depends_on_seed_and_block_only() -> None:
    names = ["a", "b", "c", "d"]
    assert balanced(names, 3, "s") == balanced(names, 3, "s")
    assert len({tuple(balanced(names, 1, str(seed))) for seed in range(40)}) > 8
    assert balanced(["a"], 7, "s") == ["a"]
