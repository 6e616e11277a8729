"""Flips of whole blocks, by loops over the definition; and each part at its edges."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.special import betainc

from tare.analysis.statistics import maxt
from tare.analysis.statistics.logratio import t_quantile

NAN = math.nan
Rows = list[list[float]]


def share_of(d: list[float], x: list[float]) -> float:
    """r² of the mean in the regression of differences on positions: t² ÷ (t² + degrees)."""
    xx = sum(b * b for b in x)
    slope = sum(a * b for a, b in zip(d, x, strict=True)) / xx if xx else 0.0
    freed = [a - slope * b for a, b in zip(d, x, strict=True)]
    own = len(d) - (sum(x) ** 2 / xx if xx else 0.0)
    energy = own * sum(a * a for a in freed)
    return sum(freed) ** 2 / energy if energy > 1e-12 * sum(a * a for a in d) else 0.0


def surprise(share: float, degrees: int) -> float:
    return -math.log(max(float(betainc(degrees / 2, 0.5, max(1 - share, 1e-16))), 1e-300))


def by_definition(
    rows: Rows, later: Rows | None = None, least: int = 2
) -> tuple[list[float], list[float]]:
    """Raw and adjusted p over all sign patterns, of metrics of two blocks and more."""
    blocks = len(rows[0])
    patterns = list(itertools.product((1.0, -1.0), repeat=blocks))
    there = [[place for place, value in enumerate(row) if not math.isnan(value)] for row in rows]
    positions = [[0.0] * blocks for _ in rows]
    for metric, of in enumerate(later or []):
        if len(there[metric]) >= 5:
            positions[metric] = [0.0 if math.isnan(value) else value for value in of]
    tested = [metric for metric, of in enumerate(there) if len(of) >= 2]
    degrees = {
        metric: len(there[metric]) - 1 - any(positions[metric][place] for place in there[metric])
        for metric in tested
    }
    every: dict[int, list[float]] = {}
    for metric in tested:
        shares = [
            share_of(
                [signs[place] * rows[metric][place] for place in there[metric]],
                [signs[place] * positions[metric][place] for place in there[metric]],
            )
            for signs in patterns
        ]
        unequal = len(set(degrees.values())) > 1
        every[metric] = [surprise(s, degrees[metric]) for s in shares] if unequal else shares
    raw, adjusted = [NAN] * len(rows), [NAN] * len(rows)
    for metric, found in every.items():
        bar = found[0] - 1e-9 * abs(found[0])
        raw[metric] = sum(value >= bar for value in found) / len(patterns)
    family = [metric for metric in tested if len(there[metric]) >= least]
    family.sort(key=lambda metric: -every[metric][0])
    worst = 0.0
    for place, metric in enumerate(family):
        bar = every[metric][0] - 1e-9 * abs(every[metric][0])
        highest = [max(values) for values in zip(*(every[m] for m in family[place:]), strict=True)]
        worst = max(worst, sum(value >= bar for value in highest) / len(patterns))
        adjusted[metric] = worst
    return raw, adjusted


def drawn(seed: int, metrics: int, blocks: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((metrics, blocks)) + np.linspace(0, 1.5, metrics)[:, None]


def holed(rows: np.ndarray, *holes: tuple[int, int]) -> np.ndarray:
    """Without values: of a metric, from a block on."""
    for metric, start in holes:
        rows[metric, start:] = NAN
    return rows


WITH_HOLES = holed(drawn(1, 5, 8), (0, 6), (3, 5), (4, 3))
FEW = holed(drawn(2, 5, 6), (0, 0), (1, 1), (2, 2), (3, 5))
LATER = np.array([1.0, -2, 3, 1, -1, 2, -3, 1])
PLACES = np.array([LATER, LATER[::-1], np.zeros(8), np.full(8, NAN), [NAN, *LATER[1:]]])


@pytest.mark.parametrize("scale", [1.0, 1e-15, 1e9])
@pytest.mark.parametrize(
    ("rows", "later", "least"),
    [
        (drawn(3, 4, 7), None, None),
        (WITH_HOLES, None, None),
        (WITH_HOLES, None, 6),
        (FEW, None, None),
        (FEW, None, 3),
        (drawn(4, 5, 8), PLACES, None),
        (drawn(5, 5, 8), np.resize(LATER, (5, 8)), 8),
        (WITH_HOLES, PLACES, 5),
        # Positions take part from five blocks on.
        (drawn(6, 2, 5), np.resize(LATER, (2, 5)), None),
        (drawn(7, 2, 4), np.resize(LATER, (2, 4)), None),
        # No difference, and only a difference that positions explain.
        (np.array([[0.0] * 6, [1.0, 2.0, 1.5, 1.0, 0.5, 2.0]]), None, None),
        # The sums of two patterns are 5 and 3 thousandths, and of the third one.
        (np.array([[1.0, -1.001, 1.002, -1.004]]), None, None),
    ],
)
def test_p_values_are_those_of_the_definition(
    rows: np.ndarray, later: np.ndarray | None, least: int | None, scale: float
) -> None:
    with np.errstate(divide="raise", invalid="raise"):
        found = (
            maxt.family_p(scale * rows, later)
            if least is None
            else maxt.family_p(scale * rows, later, least=least)
        )
    places = None if later is None else later.tolist()
    raw, adjusted = by_definition(rows.tolist(), places, least or 2)
    assert found.raw.tolist() == pytest.approx(raw, abs=1e-12, nan_ok=True)
    assert found.adjusted.tolist() == pytest.approx(adjusted, abs=1e-12, nan_ok=True)


def test_positions_may_be_in_any_unit() -> None:
    rows, later = drawn(4, 5, 8), np.resize(LATER, (5, 8))
    expected = maxt.family_p(rows, later)
    for unit in (0.01, 1000.0):
        found = maxt.family_p(rows, unit * later)
        assert found.raw.tolist() == expected.raw.tolist()
        assert found.adjusted.tolist() == expected.adjusted.tolist()


def test_one_metric_may_be_given_as_a_row() -> None:
    row = drawn(8, 1, 6)
    assert maxt.family_p(row[0]).raw.tolist() == maxt.family_p(row).raw.tolist()


@pytest.mark.parametrize(
    ("rows", "later"),
    [((2, 3, 4), None), ((2, 3, 4), (2, 3, 4)), ((2, 3), (3,)), ((2, 3), (3, 2)), ((2, 3), (1, 3))],
)
def test_shapes_that_do_not_fit_are_refused(
    rows: tuple[int, ...], later: tuple[int, ...] | None
) -> None:
    with pytest.raises(ValueError, match=r"same shape \(metrics, blocks\)"):
        maxt.family_p(np.ones(rows), None if later is None else np.ones(later))


@pytest.mark.parametrize("seed", [None, 3])
def test_beyond_thirteen_blocks_so_many_patterns_are_drawn(seed: int | None) -> None:
    rows = drawn(9, 3, 14) / 3
    signs = np.random.default_rng(seed or 0).choice((-1.0, 1.0), size=(8191, 14))
    squares = (np.concatenate([np.ones((1, 14)), signs]) @ rows.T) ** 2 / (rows**2).sum(axis=1)
    found = maxt.family_p(rows) if seed is None else maxt.family_p(rows, seed=seed)
    expected = (squares >= squares[0] * (1 - 1e-9)).mean(axis=0)
    assert found.raw.tolist() == pytest.approx(expected.tolist(), abs=1e-12)
    order = np.argsort(-squares[0])
    worst = [(squares[:, order[k:]].max(axis=1) >= squares[0, order[k]] * (1 - 1e-9)).mean()
             for k in range(3)]  # fmt: skip
    assert found.adjusted[order].tolist() == pytest.approx(np.maximum.accumulate(worst).tolist())


def test_up_to_thirteen_blocks_use_all_patterns_regardless_of_the_seed() -> None:
    maxt._signs.cache_clear()
    signs = {tuple(row) for seed in (1, 2) for row in maxt._patterns(13, 5000, seed)[0].tolist()}
    assert len(signs) == 2**12
    assert {last for *_, last in signs} == {1.0}  # The others mirror these.
    assert maxt._signs.cache_info().misses == 1


@pytest.mark.parametrize(("chunk", "sizes"), [(7, [7, 7, 7, 7, 4]), (16, [16, 16]), (99, [32])])
def test_patterns_come_in_pieces_and_none_is_lost(chunk: int, sizes: list[int]) -> None:
    pieces = maxt._patterns(6, chunk, 0)
    assert [len(piece) for piece in pieces] == sizes
    assert np.concatenate(pieces).tolist() == maxt._signs(6, 0).tolist()
    assert pieces[0][0].tolist() == [1.0] * 6


@pytest.mark.parametrize(("room", "chunk"), [(None, (1 << 22) // 4), (42, 10), (3, 1)])
def test_pieces_have_as_many_patterns_as_have_room(
    room: int | None, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    patterns = maxt._patterns
    if room is not None:
        monkeypatch.setattr(maxt, "_CHUNK", room)

    def watched(blocks: int, chunk: int, seed: int) -> list[np.ndarray]:
        asked.append(chunk)
        return patterns(blocks, chunk, seed)

    monkeypatch.setattr(maxt, "_patterns", watched)
    rows = drawn(10, 3, 6)
    assert maxt.family_p(rows).raw.tolist() == by_definition(rows.tolist())[0]
    assert asked == [chunk]


def test_the_least_p_is_that_of_the_pattern_seen_and_its_mirror() -> None:
    assert [maxt.least_p(n) for n in (-1, 0, 1, 2, 13)] == [1, 1, 1, 1 / 2, 1 / 4096]
    assert maxt.least_p(14) == maxt.least_p(50) == 1 / 8192
    wanted = {1.0: 2, 0.5: 3, 0.051: 6, 1 / 32: 7, 1 / 33: 7, 1 / 4096: 14}
    assert {level: maxt.least_blocks(level) for level in wanted} == wanted


def test_signed_ranks_share_ties_and_leave_zeros_and_holes() -> None:
    rows = [[3.0, -1.0, 3.0, 0.0, -3.0, 2.0, NAN], [-5.0, 5.0, NAN, NAN, 1.0, -2.0, 4.0]]
    expected = [[5.0, -2.0, 5.0, 0.0, -5.0, 3.0, NAN], [-4.5, 4.5, NAN, NAN, 1.0, -2.0, 3.0]]
    found = maxt.signed_ranks(rows).tolist()
    assert found == [pytest.approx(row, nan_ok=True) for row in expected]


def test_residuals_from_rounding_are_zero() -> None:
    statistic = maxt._Statistic(np.array([[1.0, 1e-13, 1.2e-13, -0.9e-13]]), None)
    assert statistic.rest.tolist() == [[1.0, 0.0, 1.2e-13, 0.0]]


def test_degrees_of_freedom_are_blocks_less_one_and_less_one_more_for_positions() -> None:
    statistic = maxt._Statistic(WITH_HOLES, PLACES)
    assert statistic.degrees.tolist() == [4, 6, 7, 4, 2]
    assert statistic.count.tolist() == [6, 8, 8, 5, 3]


def test_equal_degrees_leave_shares_and_unequal_ones_make_them_comparable() -> None:
    shares = np.array([[0.0, 0.25, 0.9], [0.1, 0.5, 1.0]])
    assert maxt.common_scale(shares, np.array([3, 3])) is shares
    for degrees in ([3, 5], [5, 3]):
        found = maxt.common_scale(shares, np.array(degrees))
        expected = [[surprise(s, of) for s in row] for row, of in zip(shares, degrees, strict=True)]
        assert found.tolist() == [pytest.approx(row, abs=1e-4) for row in expected]


@pytest.mark.parametrize("degrees", [1, 4, 90])
def test_surprise_is_exact_at_its_grid_and_straight_between(degrees: int) -> None:
    grid = [step * 6.2 / 1024 for step in (0, 1, 2, 100, 500, 750)]
    exact = [surprise(-math.expm1(-(root**2)), degrees) for root in grid]
    found = maxt._surprise(np.array([-math.expm1(-(root**2)) for root in grid]), degrees)
    assert found.tolist() == pytest.approx(exact, rel=1e-7, abs=1e-12)
    # Halfway between two steps: the mean of both.
    for step in (0, 1, 99, 500):
        less, middle, more = (
            -math.expm1(-(((step + part) * 6.2 / 1024) ** 2)) for part in (0, 0.5, 1)
        )
        between = float(maxt._surprise(np.array([middle]), degrees)[0])
        mean = (surprise(less, degrees) + surprise(more, degrees)) / 2
        assert between == pytest.approx(mean, rel=1e-7)


def test_full_correlation_has_the_least_representable_p_value() -> None:
    last = math.sqrt(-math.log(1e-16))
    place = last / (6.2 / 1024)
    ends = [float(betainc(1.5, 0.5, math.exp(-((math.floor(place) + more) * 6.2 / 1024) ** 2)))
            for more in (0, 1)]  # fmt: skip
    weight = place - math.floor(place)
    expected = -(1 - weight) * math.log(ends[0]) - weight * math.log(ends[1])
    assert float(maxt._surprise(np.array([1.0]), 3)[0]) == pytest.approx(expected, rel=1e-9)
    assert float(maxt._surprise(np.array([1.0]), 90)[0]) == pytest.approx(-math.log(1e-300))


def test_no_share_is_above_one() -> None:
    """The mean explains constant values completely, regardless of rounding in sums."""
    for value in (0.1, 0.3, 0.7, 1.1):
        for blocks in range(2, 13):
            statistic = maxt._Statistic(np.full((1, blocks), value), None)
            assert float(statistic(np.ones((1, blocks))).max()) <= 1.0


def test_stepping_down_is_by_the_definition_with_ties_of_rounding() -> None:
    rng = np.random.default_rng(11)
    extreme = rng.integers(0, 7, (6, 40)) * (1 + 1e-11 * rng.standard_normal((6, 40)))
    outside = np.array([False, True, False, False, True, False])
    raw, adjusted = maxt.stepped_down(extreme, outside)
    rows = extreme.tolist()
    for metric, row in enumerate(rows):
        bar = row[0] * (1 - 1e-9)
        assert raw[metric] == sum(value >= bar for value in row) / 40
    family = sorted(np.flatnonzero(~outside).tolist(), key=lambda metric: -rows[metric][0])
    worst = 0.0
    for place, metric in enumerate(family):
        highest = [max(values) for values in zip(*(rows[m] for m in family[place:]), strict=True)]
        worst = max(worst, sum(value >= rows[metric][0] * (1 - 1e-9) for value in highest) / 40)
        assert adjusted[metric] == worst
    assert np.isnan(adjusted[outside]).all()


@pytest.mark.parametrize(("below", "equal"), [(0.9e-9, True), (1.2e-9, False)])
@pytest.mark.parametrize("size", [1.0, -1.0, 1e-6, 1e6])
def test_a_billionth_less_is_as_extreme(below: float, equal: bool, size: float) -> None:
    less = size - below * abs(size)
    raw, adjusted = maxt.stepped_down(np.array([[size, less, less, less]]), np.array([False]))
    assert raw.tolist() == adjusted.tolist() == [1.0 if equal else 0.25]


def test_nothing_at_all_is_as_extreme_as_nothing() -> None:
    raw, adjusted = maxt.stepped_down(np.zeros((2, 3)), np.array([False, False]))
    assert raw.tolist() == adjusted.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("shared", [0.0, 0.9])
@pytest.mark.parametrize("blocks", [6, 8, 14])
def test_intervals_of_the_simultaneous_confidence_cover_together(
    blocks: int, shared: float
) -> None:
    random, rows, studies = np.random.default_rng(7), 8, 400
    covered, confidences = 0, []
    for _ in range(studies):
        own, common = random.normal(size=(rows, blocks)), random.normal(size=blocks)
        values = math.sqrt(1 - shared) * own + math.sqrt(shared) * common
        each = maxt.simultaneous_confidence(values, 0.95, seed=1)
        assert 0.95 <= each <= 1 - 0.05 / rows + 1e-12
        half = t_quantile(each, blocks - 1) * values.std(axis=1, ddof=1) / math.sqrt(blocks)
        covered += bool((np.abs(values.mean(axis=1)) <= half).all())
        confidences.append(each)
    assert covered / studies >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / studies)
    # What rows have in common makes the correction milder than Bonferroni's.
    assert (np.mean(confidences) < 1 - 0.05 / rows - 0.003) == (shared > 0)


def test_one_interval_keeps_its_confidence_and_rows_without_spread_do_not_matter() -> None:
    assert maxt.simultaneous_confidence([[1.0, 2.0, 4.0]], 0.95) == 0.95
    assert maxt.simultaneous_confidence([[1.0] * 6, [2.0] * 6], 0.95) == pytest.approx(0.975)
