"""The hierarchical bootstrap-t in plain loops, with the same draws."""

from __future__ import annotations

import hashlib
import math
import statistics
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tare.analysis.statistics import bootstrap
from tare.analysis.statistics.bootstrap import (
    Nested,
    block_means,
    nest,
    nest_singles,
    paired_interval,
    seed_from,
)

Blocks = list[list[list[float]]]
ARM: Blocks = [
    [[1.0, 1.2, 0.7], [1.5]],
    [[2.0, 2.2]],
    [[0.4], [0.9, 0.8], [1.1, 1.3, 1.0]],
    [[1.6, 1.9], [1.4, 1.7]],
]
BASE: Blocks = [
    [[0.5]],
    [[0.9, 1.3, 0.8, 1.1], [0.7, 0.6]],
    [[0.2, 0.3], [0.1]],
    [[1.0], [1.1, 0.9]],
]


def with_junk(blocks: Blocks) -> Nested:
    """Return the blocks with junk beyond the counts, which must never be read."""
    nested = nest(blocks)
    values = np.full_like(nested.values, 1e6)
    for i, block in enumerate(blocks):
        for j, repeat in enumerate(block):
            values[0, i, j, : len(repeat)] = repeat
    return nested._replace(values=values)


def both(one: Nested, other: Nested) -> Nested:
    return one._replace(values=np.concatenate([one.values, other.values]))


def scaled(blocks: Blocks, by: float, plus: float = 0.0) -> Blocks:
    return [[[value * by + plus for value in repeat] for repeat in block] for block in blocks]


def drawn_means(blocks: Blocks, chosen: np.ndarray, rng: np.random.Generator) -> list[list[float]]:
    """Return for each draw the mean over the redrawn repeats of each drawn block."""
    widest = max(map(len, blocks))
    longest = max(len(repeat) for block in blocks for repeat in block)
    which = rng.random((*chosen.shape, widest))
    within = rng.random((*chosen.shape, widest, longest)) if longest > 1 else None
    found = []
    for draw, of_draw in enumerate(chosen):
        means = []
        for place, number in enumerate(of_draw):
            block, repeats = blocks[number], []
            for slot in range(len(block)):
                repeat = block[int(which[draw, place, slot] * len(block))]
                picks = list(range(len(repeat)))
                if within is not None:
                    picked = within[draw, place, slot]
                    picks = [int(picked[i] * len(repeat)) for i in range(len(repeat))]
                repeats.append(statistics.fmean(repeat[i] for i in picks))
            means.append(statistics.fmean(repeats))
        found.append(means)
    return found


def ends_of(
    pivots: list[float], observed: Sequence[float], confidence: float
) -> tuple[float, float]:
    mean = statistics.fmean(observed)
    error = statistics.stdev(observed) / math.sqrt(len(observed))
    below, above = np.quantile(pivots, [(1 - confidence) / 2, (1 + confidence) / 2])
    return min(mean, mean - above * error), max(mean, mean - below * error)


def pivots_of(
    samples: list[list[float]], truth: float, negligible: Callable[[list[float]], float]
) -> list[float]:
    """Without those that differ by rounding alone."""
    errors = [statistics.stdev(sample) / math.sqrt(len(sample)) for sample in samples]
    return [
        (statistics.fmean(sample) - truth) / error
        for sample, error in zip(samples, errors, strict=True)
        if error > negligible(sample)
    ]


def plain(
    arm: Blocks, base: Blocks, confidence: float, seed: int, resamples: int, step: int = 10**9
) -> tuple[float, float]:
    rng = np.random.default_rng(seed)
    one, two = (
        [statistics.fmean(map(statistics.fmean, block)) for block in side] for side in (arm, base)
    )
    observed = [a - b for a, b in zip(one, two, strict=True)]
    truth, samples = statistics.fmean(observed), []
    for start in range(0, resamples, step):
        draws = min(step, resamples - start)
        chosen = rng.integers(0, len(arm), size=(draws, len(arm)))
        sides = drawn_means(arm, chosen, rng), drawn_means(base, chosen, rng)
        for over, under in zip(*sides, strict=True):
            samples.append([a - b for a, b in zip(over, under, strict=True)])
    pivots = pivots_of(
        samples, truth, lambda means: 1e-12 * (abs(truth) + max(abs(mean) for mean in means))
    )
    return ends_of(pivots, observed, confidence)


def plain_singles(
    values: Sequence[float], confidence: float, seed: int, resamples: int
) -> tuple[float, float]:
    n, spread = len(values), statistics.stdev(values)
    drawn = np.random.default_rng(seed).multinomial(n, [1 / n] * n, size=resamples)
    samples = [
        [value for value, often in zip(values, times, strict=True) for _ in range(often)]
        for times in drawn.tolist()
    ]
    pivots = pivots_of(samples, statistics.fmean(values), lambda _: 1e-6 * spread)
    return ends_of(pivots, values, confidence)


@pytest.mark.parametrize("step", [1, 3, 10**9])
@pytest.mark.parametrize("confidence", [0.95, 0.5])
def test_blocks_repeats_and_iterations_are_redrawn(
    monkeypatch: pytest.MonkeyPatch, confidence: float, step: int
) -> None:
    arm = both(with_junk(ARM), with_junk(scaled(ARM, -20, 1)))
    base = both(with_junk(BASE), with_junk(scaled(BASE, 3)))
    both_sides = arm.values.size + base.values.size
    monkeypatch.setattr(bootstrap, "_CHUNK", step * both_sides if step > 1 else 1)
    low, high = paired_interval(arm, base, confidence, 5, 40)
    one = plain(ARM, BASE, confidence, 5, 40, step)
    two = plain(scaled(ARM, -20, 1), scaled(BASE, 3), confidence, 5, 40, step)
    assert list(zip(low, high, strict=True)) == [pytest.approx(one), pytest.approx(two)]
    assert low[0] < high[0] and low[1] < high[1]


def test_repeats_of_one_iteration_are_resampled_and_a_single_block_gives_no_interval() -> None:
    several = [[[1.0], [2.5]], [[0.2]], [[0.7], [0.9], [1.8]]]
    others = [[[0.1]], [[0.2], [0.3]], [[0.0]]]
    found = paired_interval(with_junk(several), with_junk(others), 0.9, 3, 50)
    assert np.ravel(found).tolist() == pytest.approx(plain(several, others, 0.9, 3, 50))
    # With three blocks whose repeats are alike, a ninth of resamples is one block three times.
    alike: Blocks = [[[value], [value]] for value in (1e6 / 3, 7e6 / 3, 1e5)]
    zero = scaled(alike, 0)
    found = paired_interval(nest(alike), nest(zero), 0.95, 4, 200)
    assert np.ravel(found).tolist() == pytest.approx(plain(alike, zero, 0.95, 4, 200))


@pytest.mark.parametrize("times", [0.8, 1.25])
def test_rounding_errors_are_not_spread(times: float) -> None:
    """Two of three blocks differ by a little more, or less, than what is taken for rounding."""
    apart = 3 * 2.3333e-12 * times
    alike: Blocks = [[[value], [value]] for value in (1.0, 1 + apart, 2.0)]
    found = paired_interval(nest(alike), nest(scaled(alike, 0)), 0.95, 1, 60)
    expected = plain(alike, scaled(alike, 0), 0.95, 1, 60)
    assert np.ravel(found).tolist() == pytest.approx(expected, rel=1e-3)
    assert (expected[1] > 1e9) == (times > 1)
    singles = [0.0, 3e-6 * math.sqrt(1 / 3) * math.sqrt(times), 1.0]
    ends = paired_interval(nest_singles(singles), nest_singles([0.0] * 3), 0.95, 1, 60)
    expected = plain_singles(singles, 0.95, 1, 60)
    assert np.ravel(ends).tolist() == pytest.approx(expected, rel=1e-3)
    assert (expected[1] > 1e4) == (times > 1)


SINGLES = [0.31, 0.1, 0.44, 0.25, 0.6]


@pytest.mark.parametrize("rows", [2, 256])
def test_blocks_of_one_value_are_drawn_by_how_often(
    monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(bootstrap, "_ROWS", rows)
    metrics = [
        [value * by + plus for value in SINGLES]
        for by, plus in ((1.0, 0.0), (-3.0, 2.0), (1e-9, 0.0), (1e7, 0.0), (0.01, 5.0))
    ]
    arm, base = nest_singles(metrics[0]), nest_singles([0.0] * 5)
    for values in metrics[1:]:
        arm, base = both(arm, nest_singles(values)), both(base, nest_singles([0.0] * 5))
    low, high = paired_interval(arm, base, 0.9, 7, 100)
    expected = [plain_singles(values, 0.9, 7, 100) for values in metrics]
    assert list(zip(low, high, strict=True)) == [pytest.approx(ends) for ends in expected]


@pytest.mark.parametrize("n", [2, 3, 9])
def test_resamples_are_two_thousand_unless_asked(n: int) -> None:
    values = [*SINGLES, 0.07, 0.92, 0.51, 0.38][:n]
    found = paired_interval(nest_singles(values), nest_singles([0.0] * n), 0.95, 2)
    assert np.ravel(found).tolist() == pytest.approx(plain_singles(values, 0.95, 2, 2000))


def test_blocks_that_agree_leave_no_doubt_and_nothing_is_divided_by_nothing() -> None:
    repeated: Blocks = [[[0.0], [0.0]]] * 3
    with np.errstate(all="raise"):
        for arm in (nest_singles([0.0] * 3), nest(repeated)):
            assert np.ravel(paired_interval(arm, arm, 0.95, 1, 30)).tolist() == [0, 0]
        four = paired_interval(nest_singles([4.0] * 3), nest_singles([1.0] * 3), 0.95, 1, 30)
    assert np.ravel(four).tolist() == [3, 3]


def test_sides_that_do_not_belong_together_are_refused() -> None:
    two, three = nest_singles([1.0, 2.0]), nest_singles([1.0, 2.0, 4.0])
    for one, other in ((two, three), (both(three, three), three)):
        with pytest.raises(ValueError, match="same metrics and blocks"):
            paired_interval(one, other, 0.95, 1)
    with pytest.raises(ValueError, match="at least two blocks"):
        paired_interval(nest_singles([1.0]), nest_singles([1.0]), 0.95, 1)


def test_blocks_of_unequal_size_are_packed_into_one_array() -> None:
    nested = nest([[[1.0, 2.0, 3.0]], [[4.0], [5.0, 6.0]]])
    assert nested.values.tolist() == [[[[1, 2, 3], [0, 0, 0]], [[4, 0, 0], [5, 6, 0]]]]
    assert nested.repeats.tolist() == [1, 2]
    assert nested.iterations.tolist() == [[3, 1], [1, 2]]
    one_each = [[[value]] for value in SINGLES]
    for one, other in zip(nest_singles(SINGLES), nest(one_each), strict=True):
        assert np.array_equal(one, other)
    holes: list[Blocks] = [[], [[]], [[[]]], [[[1.0]], []], [[[1.0], []]], [[], [[1.0]]]]
    for blocks in holes:
        with pytest.raises(ValueError, match="every block needs a repeat"):
            nest(blocks)


def test_padding_is_not_in_any_mean() -> None:
    found = block_means(both(with_junk(ARM), with_junk(scaled(ARM, 2))))
    means = [statistics.fmean(map(statistics.fmean, block)) for block in ARM]
    assert found.tolist() == [pytest.approx(means), pytest.approx([2 * mean for mean in means])]


def test_a_seed_is_of_its_texts_alone() -> None:
    expected = int(hashlib.sha256(b"run\0typical").hexdigest()[:16], 16)
    assert seed_from("run", "typical") == expected != seed_from("runtypical")
