"""Tails beyond the samples: each reason to refuse an extrapolation, at its edge."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from analysis.analysis_tails import counted, fit_of
from tare.analysis.statistics import pareto
from tare.analysis.statistics.histogram import Histogram
from tare.analysis.statistics.pareto import ReturnLevel, Tail, tail_beyond

BOOTS = [counted({10.0: 1249, 30.0: 1})] * 8
GOOD = [fit_of([0.2] * 9)] * 3


def result_of(
    monkeypatch: pytest.MonkeyPatch,
    fits: list[pareto._Fit] = GOOD,
    boots: Sequence[Histogram] = BOOTS,
    misses: tuple[float, bool] = (0.03, False),
    level: Callable[..., ReturnLevel] | None = None,
) -> Tail:
    monkeypatch.setattr(pareto, "_fits", lambda _: fits)
    monkeypatch.setattr(pareto, "_misses", lambda _: misses)
    if level is not None:
        monkeypatch.setattr(pareto, "_level", level)
    return tail_beyond(boots, 0.95)


@pytest.mark.parametrize(("each", "first"), [(1250, 1e4), (1251, 1e5), (12_499, 1e5), (1249, 1e4)])
def test_levels_begin_at_the_power_of_ten_that_was_not_exceeded(
    each: int, first: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def stable(fits: object, share: float) -> int:
        asked.append(share)
        return 0

    monkeypatch.setattr(pareto, "_stable", stable)
    found = result_of(monkeypatch, boots=[counted({10.0: each})] * 8)
    assert asked == [1 / first]
    assert found.levels == tuple(pareto._level(GOOD[0], n, 0.95) for n in (first, 10 * first))
    assert found.thresholds == tuple(pareto._threshold(fit, 0.95) for fit in GOOD)
    assert (found.chosen, found.misses, found.reason) == (0, 0.03, "")


def test_bounded_tails_and_too_few_boots_or_thresholds_are_refused_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert tail_beyond([], 0.95, "it is bounded") == Tail((), (), None, None, "it is bounded")
    few = result_of(monkeypatch, boots=BOOTS[:7])
    reason = "7 boots are too few to estimate a tail; 8 are the least"
    assert few == Tail((), (), None, None, reason)
    two = result_of(monkeypatch, fits=GOOD[:2])
    assert two.reason == "too few samples are far out to show the tail's shape"
    assert (len(two.thresholds), two.chosen, two.levels) == (2, None, ())


def test_a_tail_whose_shape_changes_is_not_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    changing = [fit_of([shape] * 9) for shape in (0.1, 0.2, 0.3)]
    found = result_of(monkeypatch, fits=changing)
    assert found.reason.startswith("the tail changes its shape with every threshold")
    assert (found.chosen, found.misses, found.levels) == (None, None, ())
    # From the second on it stays.
    late = [fit_of([0.1] * 9), *GOOD]
    assert result_of(monkeypatch, fits=late).chosen == 1


@pytest.mark.parametrize(("left", "refused"), [(0.054, True), (0.055001, False), (0.08, False)])
def test_without_any_boot_more_than_half_of_the_tail_must_be_left(
    left: float, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    share = [0.1, left, *[0.1] * 7]
    found = result_of(monkeypatch, fits=[fit_of([0.2] * 9, share=share)] * 3)
    assert found.reason.startswith("one boot has most of the tail") is refused
    assert found.chosen == 0
    assert bool(found.levels) is not refused


def test_exactly_as_much_as_must_be_left_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    fits = [fit_of([0.2] * 9, share=[1.0, 0.55, *[1.0] * 7])] * 3
    assert result_of(monkeypatch, fits=fits).levels


def test_a_fit_that_misses_says_by_how_much(monkeypatch: pytest.MonkeyPatch) -> None:
    found = result_of(monkeypatch, misses=(0.1234, True))
    assert found.reason == "the fitted tail misses what was seen by 12 %"
    assert (found.chosen, found.misses, found.levels) == (0, 0.1234, ())


@pytest.mark.parametrize(("shape", "refused"), [(-0.001, True), (0.0, False), (0.001, False)])
def test_a_shape_surely_below_nothing_has_an_end(
    shape: float, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = result_of(monkeypatch, fits=[fit_of([shape] * 9)] * 3)
    assert found.reason.startswith("the tail comes to an end") is refused
    assert bool(found.levels) is not refused


@pytest.mark.parametrize(("high", "refused"), [(60.0, False), (60.001, True), (80.0, True)])
def test_an_interval_wider_than_thirty_times_is_refused(
    high: float, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only the first of the two levels counts for this.
    def level(fit: object, one_in: float, confidence: float) -> ReturnLevel:
        return (
            ReturnLevel(one_in, 10.0, 2.0, high)
            if one_in == 1e4
            else ReturnLevel(one_in, 1e6, 1e3, 1e9)
        )

    found = result_of(monkeypatch, level=level)
    assert found.reason == (
        "boots are too unlike to tell it: its interval spans more than 30 times" if refused else ""
    )
    assert bool(found.levels) is not refused
