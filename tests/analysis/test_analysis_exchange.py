"""Max-T where the baseline was booted twice in each block: by its definition, and its errors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from tare.analysis.statistics.exchange import exchanged_p
from tare.analysis.statistics.maxt import family_p


def by_hand(boots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All ways to choose which boot of each block is the arm's; single step for the greatest t."""
    blocks = boots.shape[2]
    found = []
    for arms in itertools.product(range(3), repeat=blocks):
        differences = np.stack(
            [
                boots[arm, :, block] - np.delete(boots[:, :, block], arm, axis=0).mean(axis=0)
                for block, arm in enumerate(arms)
            ],
            axis=1,
        )
        found.append(np.abs(stats.ttest_1samp(differences, 0, axis=1).statistic))
    every = np.array(found)
    raw = (every >= every[0] - 1e-9).mean(axis=0)
    return raw, (every.max(axis=1)[:, None] >= every[0] - 1e-9).mean(axis=0)


def test_p_is_the_share_of_exchanges_that_are_as_extreme() -> None:
    boots = np.random.default_rng(1).exponential(size=(3, 2, 6))
    boots[0, 0] += 0.6
    raw, greatest = by_hand(boots)
    found = exchanged_p(boots)
    assert found.raw == pytest.approx(raw, abs=0.03)
    assert found.adjusted.min() == pytest.approx(greatest.min(), abs=0.03)


def test_boots_of_the_baseline_may_be_missing() -> None:
    rng = np.random.default_rng(2)
    boots = rng.standard_normal((3, 4, 10))
    boots[0] += 3
    boots[2, :, ::2] = np.nan
    boots[1, 0, 1] = np.nan
    assert (exchanged_p(boots).adjusted < 0.01).all()
    alone = boots.copy()
    alone[2] = np.nan
    alone[1, 0, 1] = 0.0
    # Without any twin it is the flip of signs, except for the draws.
    expected = family_p(alone[0] - alone[1], seed=1)
    null = rng.standard_normal((3, 4, 10))
    null[2] = np.nan
    assert exchanged_p(alone).raw == pytest.approx(expected.raw, abs=0.01)
    assert exchanged_p(null).raw == pytest.approx(family_p(null[0] - null[1]).raw, abs=0.05)
    nothing = np.full((3, 1, 5), np.nan)
    assert np.isnan(exchanged_p(nothing).raw).all()


def test_few_blocks_are_in_no_family() -> None:
    boots = np.random.default_rng(3).standard_normal((3, 2, 8))
    boots[:, 1, 3:] = np.nan
    found = exchanged_p(boots, least=6)
    assert np.isnan(found.adjusted[1]) and not np.isnan(found.raw[1])
    assert found.adjusted[0] == found.raw[0]


def test_places_are_taken_out() -> None:
    """A gradient within the block of ten times the noise hides a difference, without places."""
    rng = np.random.default_rng(4)
    places = np.stack([rng.permutation(3) for _ in range(16)]).T.astype(float)
    boots = 0.1 * rng.standard_normal((3, 1, 16)) + places[:, None, :]
    boots[0] += 0.3
    along = np.broadcast_to(places[:, None, :], boots.shape)
    assert exchanged_p(boots).raw[0] > 0.05
    assert exchanged_p(boots, along).raw[0] < 0.005


def test_ranks_are_not_moved_by_one_boot() -> None:
    rng = np.random.default_rng(5)
    boots = rng.standard_normal((3, 1, 12))
    boots[0] += 2
    boots[1, 0, 3] = 1e6
    assert exchanged_p(boots).raw[0] > 0.05
    assert exchanged_p(boots, ranked=[True]).raw[0] < 0.05
