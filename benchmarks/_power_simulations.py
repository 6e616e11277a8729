"""The critical t that stands for max-T by flips, found by simulation; `detectable` has the table.

Few blocks have few sign patterns, so the least p is coarse: of 6 blocks only the observed pattern
may be as extreme as it is. A t-test at the same level therefore promises more power than max-T has.
"""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from tare.analysis.statistics.logratio import t_quantile
from tare.analysis.statistics.maxt import _signs
from tare.analysis.statistics.serial import held, open_correlation

Floats = NDArray[np.float64]
BLOCKS = (6, 7, 8, 9, 10, 12, 16, 20, 40)
TESTS = (1, 2, 3, 5, 8, 11, 16, 30, 60, 120)


def shares(values: Floats, signs: Floats) -> Floats:
    """Return r² of each row under each pattern, which orders like t²."""
    whole = values.shape[-1] * (values**2).sum(axis=-1)
    found: Floats = (values @ signs.T) ** 2 / whole[..., None]
    return found


def lag_of(values: Floats) -> Floats:
    """Return the correlation of each row's values with the ones before."""
    centred = values - values.mean(axis=-1, keepdims=True)
    found: Floats = (centred[..., 1:] * centred[..., :-1]).sum(axis=-1) / (centred**2).sum(axis=-1)
    return found


def critical(
    blocks: int, tests: tuple[int, ...], studies: int, level: float, wanted: float
) -> list[float]:
    """Return by number of tests the t that a t-test of equal power would ask for.

    Args:
        blocks: Blocks.
        tests: Numbers of metrics, ascending; one of them truly differs.
        studies: Simulated studies.
        level: Familywise error.
        wanted: The power at which both tests are equal.
    """
    rng = np.random.default_rng(blocks)
    lags, spread = np.zeros(studies), float(lag_of(rng.standard_normal((20_000, blocks))).std())
    signs = _signs(blocks, 1)[: 1 << 12]
    own = rng.standard_normal((studies, blocks))
    greatest = np.zeros((studies, len(signs)))
    found, done = [], 1
    for number in tests:
        for study in range(studies):
            others = rng.standard_normal((number - done, blocks))
            if len(others):
                lags[study] += lag_of(others).sum()
                highest = shares(others, signs).max(axis=0)
                greatest[study] = np.maximum(greatest[study], highest)
        done = number
        # What `serial.held` asks for in addition, where a correlation of blocks is not excluded.
        mean_lags = (lags + lag_of(own)) / number
        wider = np.array([
            held(open_correlation(lag, spread / number**0.5, blocks), blocks, 1 - level, number)
            for lag in mean_lags.tolist()
        ])  # fmt: skip
        ends = (
            t_quantile(1 - level, blocks - 1)
            * wider
            * (
                np.array(
                    [open_correlation(lag, spread / number**0.5, blocks) > 0 for lag in mean_lags]
                )
            )
        )
        low, high = 0.0, 60.0
        for _ in range(14):
            shift = (low + high) / 2
            declared = 0
            for start in range(0, studies, 500):
                part = slice(start, start + 500)
                flipped = shares(own[part] + shift / np.sqrt(blocks), signs)
                bar = flipped[:, :1] * (1 - 1e-9)
                beyond = (np.maximum(flipped, greatest[part]) >= bar).mean(axis=1)
                shifted = own[part] + shift / np.sqrt(blocks)
                t = shifted.mean(axis=1) / (shifted.std(axis=1, ddof=1) / np.sqrt(blocks))
                declared += int(((beyond < level) & (t > ends[part])).sum())
            low, high = (low, shift) if declared / studies >= wanted else (shift, high)
        found.append(float(stats.nct.ppf(1 - wanted, blocks - 1, high)))
    return found


def main() -> None:
    """Print the table of `tare.analysis.statistics.detectable`."""
    studies = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    for blocks in BLOCKS:
        row = critical(blocks, TESTS, studies, 0.05, 0.8)
        print(f"    {blocks}: ({', '.join(f'{t:.3f}' for t in row)}),", flush=True)


if __name__ == "__main__":
    main()
