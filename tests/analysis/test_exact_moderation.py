"""Moderated variances: the prior against SciPy, exactness, and what they gain in simulations."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import polygamma, psi

from tare.analysis.statistics.exchange import exchanged_p
from tare.analysis.statistics.maxt import family_p
from tare.analysis.statistics.moderation import (
    MOST_DEGREES,
    digamma,
    prior_variance,
    trigamma,
)

STUDIES = 250
SLACK = 3 * float(np.sqrt(0.05 * 0.95 / STUDIES))


def test_digamma_and_trigamma_agree_with_scipy() -> None:
    x = np.geomspace(1e-3, 1e3, 101)
    assert digamma(x) == pytest.approx(psi(x), rel=1e-7, abs=1e-9)
    assert trigamma(x) == pytest.approx(polygamma(1, x), rel=1e-7)


@pytest.mark.parametrize(("prior", "scale"), [(4.0, 2.0), (10.0, 1e-4)])
def test_the_prior_of_many_metrics_is_recovered(prior: float, scale: float) -> None:
    rng = np.random.default_rng(1)
    variances = prior * scale / rng.chisquare(prior, 20_000)
    squares = variances * rng.chisquare(8, 20_000)
    found = prior_variance(squares, np.full(20_000, 8), np.full(20_000, True))
    assert found.degrees[0] == pytest.approx(prior, rel=0.1)
    assert found.squares[0] / found.degrees[0] == pytest.approx(scale, rel=0.05)


def test_equal_variances_get_the_greatest_weight_and_few_metrics_none() -> None:
    alike = prior_variance(np.full(5, 8.0), np.full(5, 8), np.full(5, True))
    assert alike.degrees.tolist() == [MOST_DEGREES] * 5
    assert prior_variance([1.0, 2.0], [8, 8], [True, True]).degrees.tolist() == [0, 0]
    apart = prior_variance([1.0, 2.0, 4.0, 9.0, 0.0], [8] * 5, [True, True, True, False, True])
    assert (apart.degrees > 0).tolist() == [True, True, True, False, False]


def test_only_moderated_metrics_of_six_blocks_change() -> None:
    rows = np.random.default_rng(2).standard_normal((6, 8))
    rows[:, 5:] = np.nan
    assert (family_p(rows, moderated=[True] * 6).raw == family_p(rows).raw).all()
    whole = np.random.default_rng(2).standard_normal((6, 8))
    assert (family_p(whole, moderated=[False] * 6).raw == family_p(whole).raw).all()


def test_the_p_of_flipped_data_is_the_patterns_own() -> None:
    """An exact test: over all patterns, the raw p of each metric is uniform on its grid."""
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((5, 6)) * np.array([1, 2, 0.5, 1, 3])[:, None]
    signs = 1 - 2 * ((np.arange(32)[:, None] >> np.arange(6)) & 1)
    p = np.array([family_p(rows * s, moderated=[True] * 5).raw for s in signs])
    for metric in p.T:
        assert np.sort(metric) == pytest.approx(np.arange(1, 33) / 32)


def studies(blocks: int, *, metrics: int = 30, shared: float = 0.0) -> np.ndarray:
    """Draw block differences at CV 3 % (the first metric) and with a spread of 0.5 of log-SDs."""
    rng = np.random.default_rng(blocks)
    scale = 0.03 * np.sqrt(2) * np.exp(0.5 * rng.standard_normal((STUDIES, metrics, 1)))
    scale[:, 0] = 0.03 * np.sqrt(2)
    own = rng.standard_normal((STUDIES, metrics, blocks))
    common = rng.standard_normal((STUDIES, 1, blocks))
    return np.asarray(scale * (np.sqrt(1 - shared) * own + np.sqrt(shared) * common))


def declared(drawn: np.ndarray, *, moderated: bool) -> np.ndarray:
    rows = [moderated] * drawn.shape[1]
    return np.array([family_p(d, moderated=rows, least=6).adjusted < 0.05 for d in drawn])


@pytest.mark.parametrize(
    ("blocks", "gain", "least"), [(6, 0.2, 0.5), (7, 0.15, 0.8), (8, 0.05, 0.9)]
)
def test_a_lone_difference_among_thirty_metrics_is_declared_more_often(
    blocks: int, gain: float, least: float
) -> None:
    drawn = studies(blocks)
    drawn[:, 0] += np.log(1.1)
    before, after = declared(drawn, moderated=False), declared(drawn, moderated=True)
    print(blocks, before[:, 0].mean(), after[:, 0].mean(), after[:, 1:].any(axis=1).mean())
    assert after[:, 0].mean() >= max(least, before[:, 0].mean() + gain)
    assert after[:, 1:].any(axis=1).mean() <= 0.05 + SLACK


@pytest.mark.parametrize("different", [0, 10, 25])
def test_the_familywise_error_keeps_the_level_where_other_metrics_differ(different: int) -> None:
    drawn = studies(7, shared=0.8)
    drawn[:, :different] += np.log(1.1)
    found = declared(drawn, moderated=True)
    assert found[:, different:].any(axis=1).mean() <= 0.05 + SLACK


def test_three_boots_a_block_gain_too_and_keep_the_level() -> None:
    rng = np.random.default_rng(5)
    error, before, after = 0, 0, 0
    for _ in range(40):
        scale = 0.03 * np.exp(0.5 * rng.standard_normal((1, 30, 1)))
        scale[0, 0] = 0.03
        boots = scale * rng.standard_normal((3, 30, 6))
        boots[0, 0] += np.log(1.1)
        places = (
            np.array([rng.permutation(3) * 1.0 for _ in range(6)]).T[:, None, :].repeat(30, axis=1)
        )
        before += bool(exchanged_p(boots, places).adjusted[0] < 0.05)
        found = exchanged_p(boots, places, moderated=[True] * 30).adjusted
        after += bool(found[0] < 0.05)
        error += bool((found[1:] < 0.05).any())
    print("twin", before / 40, after / 40, error / 40)
    assert after > before + 4
    assert error / 40 <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 40)


def test_no_pattern_of_the_equal_metrics_is_declared_too_often_next_to_a_different_one() -> None:
    """Over all patterns of the equal metrics at most 5 % declare one of them."""
    signs = 1 - 2 * ((np.arange(64)[:, None] >> np.arange(7)) & 1)
    for drawn in studies(7)[:3]:
        errors = 0
        for pattern in signs:
            rows = drawn * pattern
            rows[0] = drawn[0] + np.log(1.1)
            errors += bool((family_p(rows, moderated=[True] * 30).adjusted[1:] < 0.05).any())
        assert errors <= 0.05 * 64
