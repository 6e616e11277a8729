"""How often to repeat: variances, optima and prices by their formulas, and both sides of bounds."""

from __future__ import annotations

import itertools
import math
import statistics

import numpy as np
import pytest
from scipy import stats

from tare.analysis.statistics import repeats

PILOT = np.random.default_rng(1).standard_normal((4, 3, 2)).round(2)
COSTS = (1.0, 7.0, 60.0)


def means(values: list[list[float]]) -> list[float]:
    return [statistics.fmean(each) for each in values]


def test_each_level_adds_its_variance_less_what_the_one_below_leaves_in_means() -> None:
    iterations: list[list[list[float]]] = PILOT.tolist()
    lowest = statistics.fmean(statistics.variance(r) for b in iterations for r in b)
    of_repeats = [means(block) for block in iterations]
    middle = statistics.fmean(map(statistics.variance, of_repeats))
    top = statistics.variance(means(of_repeats))
    expected = (lowest, middle - lowest / 2, top - middle / 3)
    assert repeats.level_variances(PILOT) == pytest.approx(expected, rel=1e-12)


def test_a_pilot_of_blocks_alone_has_one_variance() -> None:
    assert repeats.level_variances([1.0, 4.0]) == pytest.approx((4.5,), rel=1e-14)
    assert repeats.choose_repeats([1.0, 4.0], (5.0,)).per_level == ()


@pytest.mark.parametrize("pilot", [3.0, [1.0], [[1.0], [2.0]], np.ones((1, 2, 2))])
def test_a_pilot_needs_two_of_each_level(pilot: object) -> None:
    with pytest.raises(ValueError, match="at least two of everything"):
        repeats.level_variances(np.asarray(pilot))


@pytest.mark.parametrize("costs", [(1.0, 2.0), (1.0, 2.0, 3.0, 4.0), (1.0, 0.0, 2.0)])
def test_every_level_needs_a_cost(costs: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="3 levels need as many costs"):
        repeats.choose_repeats(PILOT, costs)


@pytest.mark.parametrize(
    ("variances", "costs", "expected"),
    [
        ((18.0, 2.0, 1.0), (1.0, 4.0, 100.0), (6, 8)),  # √(4·9) = 6; √(25·2) = 7.07…
        ((0.0, 2.0, 1.0), (1.0, 4.0, 50.0), (1, 5)),  # What does not vary is done once;
        ((-1.0, 2.0, 1.0), (1.0, 4.0, 50.0), (1, 5)),
        ((18.0, 0.0, 2.0), (1.0, 4.0, 5.0), (9, 1)),  # √((4 + 5)·9): past what does not vary,
        ((18.0, -1.0, 2.0), (1.0, 4.0, 5.0), (9, 1)),
        ((18.0, 0.0, 0.0), (1.0, 4.0, 5.0), (30, 1)),  # and most, where nothing above does.
        ((0.0, 0.0, 0.0), (1.0, 4.0, 5.0), (1, 1)),
        ((1.0, 100.0, 1.0), (1.0, 4.0, 5.0), (1, 12)),  # Never less than once, √0.04,
        ((1.0, 1.0, 1e-9), (1.0, 4.0, 5.0), (2, 30)),  # nor more than most.
        # Rounded up, except for floating-point rounding: 3 + 0.5, 1.2 and 2 parts in 10⁹.
        (((3 + 0.5e-9) ** 2, 1.0, 1.0), (1.0, 1.0, 1.0), (3, 1)),
        (((3 + 1.2e-9) ** 2, 1.0, 1.0), (1.0, 1.0, 1.0), (4, 1)),
        (((3 + 2.0e-9) ** 2, 1.0, 1.0), (1.0, 1.0, 1.0), (4, 1)),
    ],
)
def test_a_level_is_repeated_as_far_as_it_is_noisy_and_cheap(
    variances: tuple[float, ...],
    costs: tuple[float, ...],
    expected: tuple[int, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(repeats, "level_variances", lambda _: variances)
    found = repeats.choose_repeats(PILOT, costs, most=30)
    assert found == repeats.RepeatAdvice(expected, None, variances, None, None)


def test_a_hundred_are_the_most_where_nothing_else_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(repeats, "level_variances", lambda _: (1.0, 0.0, 0.0))
    assert repeats.choose_repeats(PILOT, COSTS).per_level == (100, 1)


def test_blocks_half_width_and_price_are_those_of_the_design(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # √(4·9) = 6 iterations, and √49 = 7 repeats of them.
    variances = (18.0, 2.0, 100 / 4 * 2.0 / 49)
    monkeypatch.setattr(repeats, "level_variances", lambda _: variances)
    one_block = variances[2] + 2.0 / 7 + 18.0 / 42

    def reach(blocks: int, confidence: float = 0.95) -> float:
        t = float(stats.t.ppf(0.5 + confidence / 2, blocks - 1))
        return t * math.sqrt(one_block / blocks)

    for asked, confidence in ((0.4, 0.95), (0.4, 0.9), (0.2, 0.95)):
        found = repeats.choose_repeats(
            PILOT, (1.0, 4.0, 100.0), half_width=asked, confidence=confidence
        )
        blocks = next(n for n in itertools.count(8) if reach(n, confidence) <= asked)
        assert blocks > 8
        assert (found.per_level, found.blocks) == ((6, 7), blocks)
        assert found.half_width == pytest.approx(reach(blocks, confidence), rel=1e-12)
        assert found.cost_s == pytest.approx(blocks * (100 + 7 * (4 + 6 * 1)), rel=1e-14)
    usual = repeats.choose_repeats(PILOT, (1.0, 4.0, 100.0), half_width=0.4)
    assert usual.half_width == pytest.approx(reach(usual.blocks or 0), rel=1e-12)
    # Reached exactly is reached, with as few blocks as are allowed.
    least = repeats.choose_repeats(PILOT, (1.0, 4.0, 100.0), half_width=9.0)
    assert least.blocks == 8
    fewer = repeats.choose_repeats(PILOT, (1.0, 4.0, 100.0), half_width=9.0, least_blocks=3)
    assert fewer.blocks == 3
    exactly = least.half_width
    again = repeats.choose_repeats(PILOT, (1.0, 4.0, 100.0), half_width=exactly, least_blocks=3)
    assert again.blocks == 8


def test_variances_below_zero_count_as_none_in_a_blocks_mean() -> None:
    assert repeats._block_variance((0.5, -2.0, 0.25), (5, 4)) == pytest.approx(0.25 + 0.5 / 20)


def test_an_unreachable_precision_ends_at_a_hundred_thousand_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(repeats, "t_quantile", lambda confidence, degrees: 2.0)
    found = repeats.choose_repeats(PILOT, COSTS, half_width=0.0)
    assert found.blocks == 100_000
