"""The gain and the cost of duets, by simulation, and the note on a duet without a partner."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import _duet_simulations as sims

STUDIES = 200


def test_noise_at_the_same_time_cancels_out_of_a_duet() -> None:
    before, after = sims.half_widths(sims.Weather(), STUDIES, 1)
    assert after < before / 2
    twice = sims.half_widths(sims.Weather(twice=True), STUDIES, 1)[1]
    assert twice < 0.8 * after


def test_on_a_steady_computer_a_duet_gains_nothing_and_disturbance_costs() -> None:
    steady = sims.half_widths(sims.Weather(shared=0.0), STUDIES, 2)
    assert steady[1] == pytest.approx(steady[0], rel=0.15)
    disturbed = sims.half_widths(sims.Weather(shared=0.0, disturbed=0.02), STUDIES, 2)
    assert disturbed[1] > 1.7 * disturbed[0]


def test_a_slower_core_is_taken_out_by_the_exchange() -> None:
    """Exchange keeps the estimate right by itself; as a covariate the core adds no noise either."""
    weather = sims.Weather(cores=0.05, blocks=10)
    _, after = sims.half_widths(weather, STUDIES, 3)
    assert after < 0.02
    rng = np.random.default_rng(4)
    means = [sims.duets(weather, rng, 0.01)[0].mean() for _ in range(STUDIES)]
    assert abs(float(np.mean(means)) - 0.01) < 0.001


def test_a_duet_declares_what_is_there_and_rarely_what_is_not() -> None:
    error = 3 * np.sqrt(0.0475 / STUDIES)
    assert sims.declared(sims.Weather(), 0.0, STUDIES, 5)[1] <= 0.05 + error
    before, after = sims.declared(sims.Weather(), float(np.log(1.03)), STUDIES, 6)
    assert after > 0.9 > 0.5 > before
