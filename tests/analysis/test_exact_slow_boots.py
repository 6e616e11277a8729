"""Slow boots, by loops over the definition, and on both sides of each bound."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest

from tare.analysis.statistics import slow_boots as module
from tare.analysis.statistics.slow_boots import slow_boots

NAN = math.nan


def by_definition(rows: list[list[float]]) -> list[list[bool]]:
    off = []
    for row in rows:
        known = [value for value in row if not math.isnan(value)]
        middle = statistics.median(known) if known else NAN
        off.append([value - middle for value in row])
    found = []
    for row in off:
        known = [value for value in row if not math.isnan(value)]
        slow = []
        for block, value in enumerate(row):
            of_block = [each[block] for each in off if not math.isnan(each[block])]
            if len(known) < 6 or math.isnan(value):
                slow.append(False)
                continue
            common = statistics.median(of_block)
            if len(of_block) < 3:
                common = min(of_block, key=abs) if len(of_block) == 2 else 0.0
            spread = 1.4826 * statistics.median(map(abs, known))
            far = value > module._reach(len(known)) * spread
            slow.append(far and value - common > math.log(1.2))
        found.append(slow)
    return found


@pytest.mark.parametrize("arms", [1, 2, 3, 4])
def test_boots_are_slow_as_the_definition_says(arms: int) -> None:
    rng = np.random.default_rng(arms)
    some = 0
    for _ in range(60):
        logs = 0.02 * rng.standard_normal((arms, 8))
        logs += rng.choice([0.0, 0.3, 0.5, 1.0], size=(arms, 8), p=[0.8, 0.1, 0.05, 0.05])
        logs += rng.choice([0.0, 0.4], size=8, p=[0.8, 0.2])  # Slow blocks.
        logs[rng.random((arms, 8)) < 0.1] = NAN
        expected = by_definition(logs.tolist())
        some += sum(map(sum, expected))
        assert slow_boots(logs).tolist() == expected
    assert some > 5


STEADY = [0.0, 0.01, -0.01, 0.02, -0.02]
"""Together with a slow boot, their median is 0.005."""


@pytest.mark.parametrize(("factor", "slow"), [(1.19, False), (1.21, True)])
def test_a_slow_boot_is_slower_by_a_fifth(factor: float, slow: bool) -> None:
    row = [*(value / 10 for value in STEADY), 0.0005 + math.log(factor)]
    assert slow_boots([row]).tolist() == [[False] * 5 + [slow]]


@pytest.mark.parametrize(("times", "slow"), [(0.99, False), (1.01, True)])
def test_a_slow_boot_is_further_off_than_noise_reaches(times: float, slow: bool) -> None:
    # Off the median by 0.005, 0.005, 0.015, 0.015, 0.025 tenfold, and more.
    bar = module._reach(6) * 1.4826 * 0.15
    row = [*(10 * value for value in STEADY), 0.05 + times * bar]
    assert slow_boots([row]).tolist() == [[False] * 5 + [slow]]


def test_five_boots_are_too_few_for_a_slow_one() -> None:
    assert not slow_boots([[*STEADY[:4], 5.0]]).any()
    assert slow_boots([[*STEADY, 5.0]]).sum() == 1
    assert not slow_boots([[*STEADY[:4], NAN, 5.0]]).any()
    assert slow_boots([[*STEADY, 5.0], [NAN] * 6]).tolist() == [[False] * 5 + [True], [False] * 6]
    assert slow_boots([[NAN] * 6] * 2).tolist() == [[False] * 6] * 2


def test_exactly_a_fifth_slower_is_not_slow() -> None:
    assert not slow_boots([[0.0] * 5 + [math.log(1.2)]]).any()
    assert slow_boots([[0.0] * 5 + [math.log(1.2) + 1e-9]]).sum() == 1


@pytest.mark.parametrize(("boots", "spread"), [(6, 0.03), (8, 0.03), (20, 0.03), (8, 0.3)])
def test_normal_boots_are_rarely_slow(boots: int, spread: float) -> None:
    logs = spread * np.random.default_rng(boots).standard_normal((2000, 1, boots))
    assert np.mean([slow_boots(one).any() for one in logs]) <= 0.005 + 3 * math.sqrt(0.005 / 2000)


def test_boots_slower_by_a_quarter_are_found_where_noise_is_small() -> None:
    logs = 0.01 * np.random.default_rng(1).standard_normal((500, 2, 8))
    logs[:, 0, 3] += math.log(1.25)
    assert np.mean([slow_boots(one)[0, 3] for one in logs]) > 0.9


def test_a_typical_boot_is_not_slow_where_others_were_fast() -> None:
    fast = [0.0] * 5 + [-0.5]
    assert not slow_boots([[0.0] * 6, fast, fast]).any()


def test_the_reach_is_that_of_so_many_normal_boots() -> None:
    rng = np.random.default_rng(6)
    drawn = rng.standard_normal((40_000, 6))
    middle = np.sort(drawn, axis=1)[:, 2:4].mean(axis=1)
    away = np.sort(np.abs(drawn - middle[:, None]), axis=1)[:, 2:4].mean(axis=1)
    expected = np.quantile((drawn.max(axis=1) - middle) / (1.4826 * away), 0.995)
    assert module._simulated(6) == pytest.approx(float(expected), rel=1e-12)
    assert module._USUAL[0] == module._simulated(6)
    assert module._USUAL[-1] == module._simulated(40)


def test_only_what_the_table_lacks_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_simulated", lambda boots: -float(boots))
    assert module._reach(5) == -5
    assert [module._reach(boots) for boots in range(6, 41)] == list(module._USUAL)
    assert module._reach(41) == -41


def test_every_figure_of_the_table_is_near_that_of_other_draws() -> None:
    for boots, figures in enumerate(module._USUAL, 6):
        drawn = np.random.default_rng(1000 + boots).standard_normal((6000, boots))
        middle = np.median(drawn, axis=1, keepdims=True)
        away = 1.4826 * np.median(np.abs(drawn - middle), axis=1)
        near = float(np.quantile((drawn.max(axis=1) - middle[:, 0]) / away, 0.995))
        assert figures == pytest.approx(near, rel=0.2)
