"""Where a sequence changed: against sums of squares about means, with the same shuffles."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from tare.analysis.statistics import change_point
from tare.analysis.statistics.change_point import place_ends


def squares(values: np.ndarray) -> np.ndarray:
    """About their mean, over the last axis."""
    found: np.ndarray = ((values - values.mean(axis=-1, keepdims=True)) ** 2).sum(axis=-1)
    return found


def gains(values: np.ndarray, least: int) -> np.ndarray:
    """By how much less the squares are about two means than about one, by place."""
    places = range(least, values.shape[-1] - least + 1)
    found = [
        squares(values) - squares(values[..., :place]) - squares(values[..., place:])
        for place in places
    ]
    return np.stack(found, axis=-1)


class Searched:
    """The search in plain words: how likely each place is, and how far outward that goes."""

    def __init__(self, values: Sequence[float], place: int, least: int, seed: int) -> None:
        self.values, self.place, self.least = np.array(values), place, least
        before, after = np.split(self.values, [place])
        off = [
            (part - part.mean()) * (len(part) / (len(part) - 1)) ** 0.5 for part in (before, after)
        ]
        rng = np.random.default_rng(seed)
        self.noise = np.concatenate(off)[rng.random((399, len(values))).argsort(axis=1)]
        self.places = range(least, len(values) - least + 1)

    @functools.cache  # noqa: B019
    def chance(self, tried: int) -> float:
        before, after = np.split(self.values, [tried])
        means = [before.mean()] * len(before) + [after.mean()] * len(after)
        observed, drawn = gains(self.values, self.least), gains(means + self.noise, self.least)
        gain = observed.max() - observed[tried - self.least]
        by_chance = drawn.max(axis=1) - drawn[:, tried - self.least]
        slack = 1e-9 * float(squares(self.values))
        return float((1 + sum(by_chance >= gain - slack)) / 400)

    def ends(self, level: float) -> tuple[int, int]:
        found = []
        for step in (-1, 1):
            tried, farthest, refused = self.place + step, self.place, 0
            while refused < 3 and tried in self.places:
                refused += 1
                if self.chance(tried) > level / 2:
                    farthest, refused = tried, 0
                tried += step
            found.append(farthest)
        return found[0], found[1]


Case = tuple[list[float], int, int, int]


def cases() -> Iterator[Case]:
    """Yield noise with and without a change, found at its true place and next to it."""
    for seed, missed_by in enumerate((-3, -2, 2, 3)):
        values = np.round(np.random.default_rng(seed).standard_normal(16))
        values[8:] += 4
        yield values.tolist(), 8 + missed_by, 2, seed
    for seed in range(6):
        rng = np.random.default_rng(seed)
        n, least = 11 + seed, 2 + seed % 3
        values = rng.standard_t(4, n)
        place = int(rng.integers(least + 1, n - least - 1))
        values[place:] += 0.6 * seed
        yield values.tolist(), place, least, seed
        yield np.round(values).tolist(), place, least, seed


@pytest.mark.parametrize(("values", "place", "least", "seed"), list(cases()))
def test_ends_equal_those_of_the_search_at_every_level_that_separates_two_places(
    values: list[float], place: int, least: int, seed: int
) -> None:
    searched = Searched(values, place, least, seed)
    chances = sorted({searched.chance(tried) for tried in searched.places if tried != place})
    for chance in [each + step for each in chances for step in (-1e-9, 0, 1e-9)]:
        confidence = 1 - 2 * chance
        if confidence > 0 and 0.5 * (1 - confidence) >= chance:
            expected = searched.ends(2 * chance)
            assert place_ends(values, place, least, confidence, seed) == expected, chance
            small = [2**-20 * value + 8 for value in values]
            assert place_ends(small, place, least, confidence, seed) == expected, chance


def test_without_a_seed_the_shuffles_are_the_first_seeds() -> None:
    for values, place, least, _ in list(cases())[4:]:
        searched = Searched(values, place, least, 0)
        for level in (0.1, 0.2, 0.4):
            assert place_ends(values, place, least, 1 - level) == searched.ends(level)


def test_values_beyond_the_reach_are_not_looked_at() -> None:
    rng = np.random.default_rng(3)
    values = rng.standard_normal(150)
    values[70:] += 1.5
    values[[5, 134]] = 1e6
    first, last = place_ends(values[6:134], 64, 3, 0.95)
    assert 0 < first < 64 < last < 128
    assert place_ends(values, 70, 3, 0.95) == (first + 6, last + 6)


def test_a_sequence_without_a_change_may_have_changed_anywhere() -> None:
    assert place_ends([0.0] * 12, 5, 3, 0.95) == (3, 9)


def test_a_fit_is_by_how_much_two_means_have_less_squares() -> None:
    values = np.array([[3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0], [2.0, 7.0, 1.0, 8.0, 2.0, 8.0, 1.0]])
    assert change_point._fits(values, np.arange(2, 6)) == pytest.approx(gains(values, 2))


@pytest.mark.parametrize("confidence", [0.1, 0.5, 0.95])
def test_two_places_that_fit_equally_are_both_in_the_set(confidence: float) -> None:
    values = [0.0] * 4 + [0.5] + [1.0] * 4
    assert place_ends(values, 4, 2, confidence) == (4, 5)
    assert place_ends(values, 5, 2, confidence) == (4, 5)
