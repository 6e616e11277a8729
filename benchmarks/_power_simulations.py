"""The critical t that stands for max-T by flips, found by simulation; `detectable` has the table.

Few blocks have few sign patterns, so the least p is coarse: of 6 blocks only the observed pattern
may be as extreme as it is. A t-test at the same level therefore promises more power than max-T has.
From three metrics on, moderated variances give max-T more power; how much depends on how far the
metrics' deviations differ.
"""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from tare.analysis.statistics.detectable import DISPERSIONS
from tare.analysis.statistics.logratio import t_quantile
from tare.analysis.statistics.maxt import _signs
from tare.analysis.statistics.moderation import LEAST_METRICS, prior_variance
from tare.analysis.statistics.serial import held, open_correlation

Floats = NDArray[np.float64]
BLOCKS = (6, 7, 8, 9, 10, 12, 16, 20, 40)
TESTS = (1, 2, 3, 5, 8, 11, 16, 30, 60, 120)
PATTERNS = 1024
LEVEL = 0.05
_HIGHEST = 40.0
"""No study asks for a greater difference, in standard errors."""


def lag_of(values: Floats) -> Floats:
    """Return the correlation of each row's values with the ones before."""
    centred = values - values.mean(axis=-1, keepdims=True)
    found: Floats = (centred[..., 1:] * centred[..., :-1]).sum(axis=-1) / (centred**2).sum(axis=-1)
    return found


def least_shift(values: Floats, signs: Floats, *, moderated: bool, needed_t: float) -> float:
    """Return the difference of the first metric from which on it is declared, in standard errors.

    Args:
        values: Differences of one study without any true one, shape ``(metrics, blocks)``.
        signs: Sign patterns, the observed one first.
        moderated: Whether variances are moderated.
        needed_t: The t that the interval asks for.
    """
    metrics, blocks = values.shape
    others = (values[1:] @ signs.T) ** 2
    energy = (values**2).sum(axis=1)

    def declared(shift: float) -> bool:
        own = values[0] + shift / np.sqrt(blocks)
        if own.mean() < needed_t * own.std(ddof=1) / np.sqrt(blocks):
            return False
        energy[0], added = (own**2).sum(), np.zeros(metrics)
        if moderated:
            added = prior_variance(energy, np.full(metrics, blocks), np.full(metrics, True)).squares
        highest = (own @ signs.T) ** 2 / (energy[0] + added[0])
        bar = highest[0] * (1 - 1e-9)
        if metrics > 1:
            each = others / (energy[1:] + added[1:])[:, None]
            highest = np.maximum(highest, each.max(axis=0))
        return bool((highest >= bar).mean() < LEVEL)

    low, high = 0.0, _HIGHEST
    while high - low > 0.02:
        middle = (low + high) / 2
        low, high = (low, middle) if declared(middle) else (middle, high)
    return high


def critical(blocks: int, tests: int, dispersion: float | None, studies: int) -> float:
    """Return the t that a t-test of equal power would ask for.

    Args:
        blocks: Blocks.
        tests: Metrics; one of them truly differs, and has the typical deviation.
        dispersion: Standard deviation of the others' log deviations; None: no moderation.
        studies: Simulated studies.
    """
    rng = np.random.default_rng((blocks, tests))
    spread = float(lag_of(rng.standard_normal((20_000, blocks))).std())
    signs = _signs(blocks, 1)[:PATTERNS]
    if len(signs) == PATTERNS and blocks <= 13:
        drawn = rng.choice((-1.0, 1.0), size=(PATTERNS - 1, blocks))
        signs = np.concatenate([np.ones((1, blocks)), drawn])
    moderated = dispersion is not None and tests >= LEAST_METRICS
    found = []
    for _ in range(studies):
        values = rng.standard_normal((tests, blocks))
        # What `serial.held` asks for in addition, where a correlation of blocks is not excluded.
        open_ = open_correlation(float(lag_of(values).mean()), spread / tests**0.5, blocks)
        wider = held(open_, blocks, 1 - LEVEL, tests) if open_ > 0 else 1.0
        needed = t_quantile(1 - LEVEL, blocks - 1) * wider
        values[1:] *= np.exp((dispersion or 0.0) * rng.standard_normal((tests - 1, 1)))
        found.append(least_shift(values, signs, moderated=moderated, needed_t=needed))
    return float(stats.nct.ppf(0.2, blocks - 1, np.quantile(found, 0.8)))


def main() -> None:
    """Print the tables of `tare.analysis.statistics.detectable`."""
    studies = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    for dispersion in (None, *DISPERSIONS):
        print(f"dispersion {dispersion}")
        for blocks in BLOCKS:
            row = [critical(blocks, tests, dispersion, studies) for tests in TESTS]
            print(f"    {blocks}: ({', '.join(f'{t:.3f}' for t in row)}),", flush=True)


if __name__ == "__main__":
    main()
