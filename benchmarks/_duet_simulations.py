"""Gains and costs of measuring two arms at once; simple: in sequence, Tare: in duets.

A boot's log-value is noise of its own, the computer's state at the time (weather, the same for
all arms measured then), and what the core is like. One after the other, arms meet different
weather, which resembles that of the place before by a lag; side by side they meet the same, and
disturb each other. In the time of one block there are two duets.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks._simulated import intervals
from tare.analysis.statistics.maxt import family_p

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Weather:
    """What a computer is like.

    Args:
        own: Standard deviation of a boot's own noise, of log-values.
        shared: That of the weather.
        lag: Correlation of the weather with that of one boot's time earlier.
        cores: By how much the second core is slower than the first.
        disturbed: Noise of its own that a boot has more in a duet, for having a neighbour.
        blocks: How many there are one after the other.
        twice: Whether duets use the time that they save for twice as many.
    """

    own: float = 0.01
    shared: float = 0.03
    lag: float = 0.0
    cores: float = 0.0
    disturbed: float = 0.0
    blocks: int = 8
    twice: bool = False


def one_after_the_other(weather: Weather, rng: np.random.Generator, truth: float) -> Floats:
    """Return a study's log-ratios, by block, both arms on the better core in turn."""
    there = _weather(weather, 2 * weather.blocks, rng)
    order = rng.permuted(np.tile([0, 1], (weather.blocks, 1)), axis=1)
    boots = weather.own * rng.standard_normal((weather.blocks, 2)) + there.reshape(-1, 2)
    rows = np.arange(weather.blocks)
    return np.asarray(truth + boots[rows, order[:, 0]] - boots[rows, order[:, 1]])


def duets(weather: Weather, rng: np.random.Generator, truth: float) -> tuple[Floats, Floats]:
    """Return a study's log-ratios by block, and by how many halves the arm was further on."""
    blocks = weather.blocks * (2 if weather.twice else 1)
    spread = np.hypot(weather.own, weather.disturbed)
    own = spread * rng.standard_normal((2, blocks))
    # Exchanged as plans do it: of every two blocks each arm has each half in one.
    firsts = np.repeat(rng.integers(0, 2, -(-blocks // 2)), 2)[:blocks]
    later = np.where((firsts + np.arange(blocks)) % 2 == 0, 1.0, -1.0)
    # What both meet at once is in both, and cancels: there is no need to draw it.
    return truth + own[0] - own[1] + weather.cores * later, later


def _weather(weather: Weather, times: int, rng: np.random.Generator) -> Floats:
    found = weather.shared * rng.standard_normal(times)
    for time in range(1, times):
        fresh = np.sqrt(1 - weather.lag**2) * found[time]
        found[time] = weather.lag * found[time - 1] + fresh
    return found


def half_widths(weather: Weather, studies: int, seed: int) -> tuple[float, float]:
    """Return the median half-widths of the ratio's interval, one after the other and in duets."""
    rng = np.random.default_rng(seed)
    before, after = [], []
    for _ in range(studies):
        _, low, high = intervals(one_after_the_other(weather, rng, 0.0)[None], None)[0]
        before.append((high - low) / 2)
        ratios, later = duets(weather, rng, 0.0)
        _, low, high = intervals(ratios[None], later if weather.cores else None)[0]
        after.append((high - low) / 2)
    return float(np.median(before)), float(np.median(after))


def declared(weather: Weather, truth: float, studies: int, seed: int) -> tuple[float, float]:
    """Return in which share of studies a difference is declared, of one metric."""
    rng = np.random.default_rng(seed)
    counts = np.zeros(2)
    for _ in range(studies):
        ratios, later = duets(weather, rng, truth)
        along = later[None] if weather.cores else None
        counts[0] += family_p(one_after_the_other(weather, rng, truth)[None]).adjusted[0] < 0.05
        counts[1] += family_p(ratios[None], along).adjusted[0] < 0.05
    return float(counts[0] / studies), float(counts[1] / studies)


CASES = (
    ("a computer that changes with time, by 3 %; boots by 1 %", Weather()),
    ("… that changes slowly (lag 0.8)", Weather(lag=0.8)),
    ("… in the same time, so with twice the blocks", Weather(twice=True)),
    ("… and one core 5 % slower, as covariate", Weather(cores=0.05, blocks=10)),
    ("a steady computer; boots by 1 %", Weather(shared=0.0)),
    ("… whose arms disturb each other by 2 %", Weather(shared=0.0, disturbed=0.02)),
)


def rows(studies: int) -> list[tuple[str, float, float, str, bool]]:
    """Return lines of the table: case, before, after, what is wanted, and whether it is so."""
    found = []
    for number, (name, weather) in enumerate(CASES):
        before, after = half_widths(weather, studies, 80 + number)
        wanted = "narrower" if weather.shared else "–"
        good = after < before or not weather.shared
        found.append((f"one metric’s half-width, {name}", before, after, wanted, good))
    for truth, name, wanted in ((0.0, "no difference", "≤ 5 %"), (np.log(1.03), "+3 %", "higher")):
        before, after = declared(Weather(), truth, studies, 90)
        limit = 0.05 + 3 * np.sqrt(0.0475 / studies)
        case = f"{name} on a computer that changes by 3 %: declared"
        found.append((case, before, after, wanted, bool(after > 0.9 if truth else after <= limit)))
    (first, *others) = found
    case = f"{first[0]} (simple: one arm after the other; Tare: duets)"
    return [(case, *first[1:]), *others]
