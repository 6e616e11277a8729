"""A shared run host by host: differences between hosts are found, and only those."""

from __future__ import annotations

import math

import numpy as np
import pytest

from analysis.analysis_shared import shared


def test_differing_hosts_have_their_share_of_the_variance() -> None:
    shares = [shared(0.1, 0.02, 6, 4, seed)[0].share for seed in range(40)]
    # Truth: 0.1² / (0.1² + 0.02²) = 0.96.
    assert np.median(shares) > 0.9


def test_equal_hosts_have_next_to_nothing_between_them() -> None:
    shares = [shared(0.0, 0.02, 6, 4, seed)[0].share for seed in range(40)]
    assert np.median(shares) < 0.05


def test_the_interval_over_hosts_covers_the_mean_of_hosts_like_these() -> None:
    inside = 0
    for seed in range(200):
        (found,) = shared(0.1, 0.02, 5, 3, seed)
        inside += found.together.low <= 0.1 <= found.together.high
    assert inside >= 180


def test_each_host_has_its_own_ratio() -> None:
    (found,) = shared(0.2, 0.0, 3, 2, 5)
    assert set(found.ratios) == {"h0", "h1", "h2"}
    rng = np.random.default_rng(5)
    assert found.ratios["h0"] == pytest.approx(math.exp(0.1 + 0.2 * rng.standard_normal()))


def test_one_host_has_no_variance_between_hosts() -> None:
    assert shared(0.1, 0.02, 1, 6, 1) == ()
