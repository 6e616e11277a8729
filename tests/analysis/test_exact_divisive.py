"""E-divisive by its definition: the energy of each place, and the same shuffles."""

from __future__ import annotations

import numpy as np
import pytest

from tare.analysis.statistics import divisive
from tare.analysis.statistics.divisive import ChangePoint, changes_of

Rows = list[np.ndarray]


def energies(values: np.ndarray) -> list[float]:
    """Matteson & James 2014: of each place that leaves three on either side."""
    found, n = [], len(values)
    for place in range(3, n - 2):
        before, after = values[:place], values[place:]
        a, b = place, n - place
        across = 2 * np.abs(before[:, None] - after).sum() / (a * b)
        within = np.abs(before[:, None] - before).sum() / (a * (a - 1))
        within += np.abs(after[:, None] - after).sum() / (b * (b - 1))
        found.append(float(a * b / n * (across - within)))
    return found


def searched(rows: Rows, seed: int, draws: int) -> list[tuple[int, float]]:
    """Return each sequence's best place, and how often a shuffle has as much in any of them."""
    n = len(rows[0])
    scaled = []
    for row in rows:
        size = np.abs(row[:, None] - row).mean()
        scaled.append(row / size if size > 0 else row * 0)
    observed = [energies(row) for row in scaled]
    rng = np.random.default_rng(seed)
    greatest = []
    for _ in range(draws):
        order = rng.permutation(n)
        greatest.append(max(max(energies(row[order])) for row in scaled))
    return [
        (
            3 + each.index(max(each)),
            (1 + sum(most >= max(each) - 1e-7 for most in greatest)) / (draws + 1),
        )
        for each in observed
    ]


def plain(rows: Rows, level: float, seed: int, draws: int) -> list[ChangePoint]:
    found: list[ChangePoint] = []

    def search(start: int, end: int, members: list[int]) -> None:
        if end - start < 8:
            return
        part = searched([rows[member][start:end] for member in members], seed + start, draws)
        changed = {m: (place, p) for m, (place, p) in zip(members, part, strict=True) if p < level}
        found.extend(ChangePoint(m, start + place, p) for m, (place, p) in changed.items())
        for at in {place for place, _ in changed.values()}:
            those = [m for m in changed if changed[m][0] == at]
            search(start, start + at, those)
            search(start + at, end, those)

    search(0, len(rows[0]), list(range(len(rows))))
    placed = []
    for member, row in enumerate(rows):
        own = sorted(change for change in found if change.sequence == member)
        ends = [*(change.start for change in own[1:]), len(row)]
        start = 0
        for change, end in zip(own, ends, strict=False):
            best = energies(row[start:end])
            start += 3 + best.index(max(best))
            placed.append(ChangePoint(member, start, change.p))
    return sorted(placed)


def close(found: tuple[ChangePoint, ...], expected: list[ChangePoint]) -> bool:
    assert [change[:2] for change in found] == [change[:2] for change in expected]
    assert [change.p for change in found] == pytest.approx([change.p for change in expected])
    return bool(found)


def test_energy_is_the_definitions() -> None:
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((2, 9))
    found = divisive._energy(np.abs(rows[:, :, None] - rows[:, None, :]))
    assert found == pytest.approx(np.array([energies(row) for row in rows]))


def test_p_is_the_share_of_shuffles_of_any_sequence_and_what_is_constant_has_none() -> None:
    """Each sequence is held against the greatest of all, whatever its unit."""
    rng = np.random.default_rng(2)
    step = np.round(rng.standard_normal(8), 1)
    step[4:] += 3
    other = rng.standard_normal(8)
    other[:3] += 2
    rows = [1e-3 * step, other, np.full(8, 7.0)]
    with np.errstate(all="raise"):
        found = changes_of(rows, 0.999)
    assert close(found, plain(rows, 0.999, 0, 1999))
    assert {change.sequence for change in found} == {0, 1}
    expected = searched(rows, 4, 1999)
    places, p = divisive._greatest_changes(np.array(rows), 4)
    assert list(zip(places, p, strict=True)) == [pytest.approx(each) for each in expected]
    assert p[2] == 1


@pytest.mark.parametrize("seed", range(3))
def test_each_part_is_searched_by_itself_with_those_that_changed_there(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(divisive, "DRAWS", 59)
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((3, 24))
    values[:2, 9:] += 2
    values[:, 16:] -= 1.5
    values[2] = np.round(values[2])
    found = changes_of(values, 0.8, seed)
    assert close(found, plain(list(values), 0.8, seed, 59))
    assert len(found) > 3


def test_changes_at_either_end_are_placed_there() -> None:
    """Three values are the least that tell a distribution."""
    first = 0.1 * np.random.default_rng(3).standard_normal(20)
    last = first.copy()
    first[:3] += 4
    last[17:] += 4
    (found,) = changes_of([first])
    assert found[:2] == (0, 3) and found.p < 0.01
    (found,) = changes_of([last])
    assert found[:2] == (0, 17)


def test_eight_values_are_searched_and_seven_are_not() -> None:
    step = [0.0, 0.1, 0.2, 0.3, 9.0, 9.1, 9.2, 9.3]
    (found,) = changes_of([step])
    assert found[:2] == (0, 4)
    assert changes_of([step[1:]], 0.9) == changes_of([step[:7]], 0.9) == ()
    assert changes_of(np.empty((0, 10))) == ()


def test_changes_are_reported_only_below_the_level() -> None:
    step = [0.0, 0.1, 0.2, 0.3, 9.0, 9.1, 9.2, 9.3]
    ((_, _, p),) = changes_of([step])
    # There are 70 ways to have four of them first; two have the highest or the lowest.
    assert p == pytest.approx(2 / 70, abs=0.01)
    assert changes_of([step], p) == ()
    assert len(changes_of([step], p * 1.001)) == 1


def test_a_p_value_above_the_level_is_not_a_change() -> None:
    row = np.round(np.random.default_rng(1).standard_normal(10), 1)
    row[5:] += 1.2
    assert changes_of([row]) == ()
    ((_, place, p),) = changes_of([row], 0.075)
    assert place == 5 and 0.05 < p < 0.075
