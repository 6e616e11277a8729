"""All pairs of a study's arms on data of known truth: how often any pair wrongly differs."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from benchmarks._simulated import DECLARED, Floats, Law, Setting, draw, intervals
from tare.analysis.effects.results import Interval
from tare.analysis.effects.verdict import Evidence, judge
from tare.analysis.statistics.maxt import family_p
from tare.events.metric import Metric

Wrong = tuple[float, float]
"""Shares of studies: each pair of arms a family, and all pairs one."""


def wrongly_different(
    setting: Setting, studies: int, seed: int, groups: tuple[int, ...] = ()
) -> Wrong:
    """Return how often any two equal arms are declared different, by two ways of correcting.

    Args:
        setting: Its truth is of all arms but the baseline, which is equal to the first group.
        studies: How many to draw.
        seed: The seed of the draws.
        groups: The group of each arm and then of the baseline; arms of one are equal. Without
            it all are.
    """
    rng = np.random.default_rng(seed)
    arms = setting.truth.shape[0] + 1
    of_group = groups or (0,) * arms
    each = whole = 0
    for _ in range(studies):
        study = draw(setting, rng)
        values = np.concatenate([study.logs, study.baseline[None]])
        pairs = list(combinations(range(arms), 2))
        differences = np.array([values[a] - values[b] for a, b in pairs])
        equal = np.array([of_group[a] == of_group[b] for a, b in pairs])
        by_pair = np.array([family_p(one).adjusted for one in differences])
        together = family_p(differences.reshape(-1, differences.shape[-1])).adjusted
        each += _any_declared(setting, differences[equal], by_pair[equal])
        whole += _any_declared(setting, differences[equal], together.reshape(by_pair.shape)[equal])
    return each / studies, whole / studies


def _any_declared(setting: Setting, differences: Floats, adjusted: NDArray[np.float64]) -> bool:
    rows = differences.reshape(-1, differences.shape[-1])
    level = adjusted.reshape(-1)
    near = np.flatnonzero(level < 0.05)
    found = intervals(rows[near], None) if near.size else []
    return any(
        judge(_evidence(setting, *ends, float(p))) in DECLARED
        for ends, p in zip(found, level[near], strict=True)
    )


def _evidence(setting: Setting, mean: float, low: float, high: float, p: float) -> Evidence:
    return Evidence(
        metric=Metric("m", "1", "lower"),
        scale="ratio",
        estimate=float(np.exp(mean)),
        interval=Interval(float(np.exp(low)), float(np.exp(high)), "student-t", 0.95),
        blocks=setting.blocks,
        p=p,
        adjusted_p=p,
        margin=setting.margin,
        tests=1,
    )


CASES: tuple[tuple[str, Law, float], ...] = (
    ("log-normal noise", "normal", 0.05),
    ("5 % of boots 3× slow", "outliers", 0.07),
    ("heavy tails (t, 2.2)", "heavy", 0.07),
)


def equal_arms(law: Law) -> Setting:
    """Return five arms without any difference in eleven metrics: 110 pairs."""
    return Setting(np.zeros((4, 11)), law=law)


def two_groups(law: Law = "normal") -> tuple[Setting, tuple[int, ...]]:
    """Return five arms, two of them half as fast, and the group of each."""
    truth = np.zeros((4, 11))
    truth[2:] = np.log(2.0)
    return Setting(truth, law=law), (0, 0, 1, 1, 0)
