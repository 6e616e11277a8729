"""The rule that verdicts were made by until simulations found it wrong, kept to be held against.

Sign-flip p-values of each metric, corrected by Benjamini & Hochberg over all arms and metrics of a
study, and the A/A pair's interval as a gate before every verdict.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tare.analysis.statistics.logratio import mean_interval

Floats = NDArray[np.float64]
LEVEL = 0.05


def sign_flip_p(differences: Floats) -> Floats:
    """Return exact two-sided p-values of block differences, shape ``(..., n)`` with n ≤ 20."""
    # The first sign stays: turning all of them round leaves the absolute sum unchanged.
    sums = differences[..., :1]
    for block in range(1, differences.shape[-1]):
        each = differences[..., block, None]
        sums = np.concatenate([sums + each, sums - each], axis=-1)
    bar = np.abs(differences.sum(axis=-1)) - 1e-9 * np.abs(differences).sum(axis=-1)
    result: Floats = (np.abs(sums) >= bar[..., None]).mean(axis=-1)
    return result


def benjamini_hochberg(p: Floats) -> Floats:
    """Return q-values over all of ``p``, in its shape."""
    flat = p.ravel()
    order = np.argsort(flat, kind="stable")
    scaled = flat[order] * flat.size / np.arange(1, flat.size + 1)
    q = np.empty_like(flat)
    q[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)
    return q.reshape(p.shape)


def verdicts(differences: Floats, control: Floats | None, margin: float) -> NDArray[np.str_]:
    """Return the former verdicts of metrics where less is better.

    Args:
        differences: Log-ratios of arms to the baseline, shape ``(arms, metrics, blocks)``.
        control: The A/A pair's, shape ``(metrics, blocks)``; None without one.
        margin: Practical margin, relative.
    """
    q = benjamini_hochberg(sign_flip_p(differences))
    found = mean_interval(differences, 0.95)
    floor = np.zeros(differences.shape[1])
    if control is not None:
        floors = mean_interval(control, 0.95)
        floor = np.maximum(np.abs(floors.low), np.abs(floors.high))
    bar = np.log1p(margin)
    declared = (q < LEVEL) & ((found.low > 0) | (found.high < 0)) & (np.abs(found.mean) > bar)
    words = np.where(declared, np.where(found.mean > 0, "worse", "better"), "undecided")
    words = np.where(np.abs(found.mean) <= floor, "not distinguishable", words)
    inside = (found.low >= -bar) & (found.high <= bar)
    result: NDArray[np.str_] = np.where(inside, "dead heat", words)
    return result
