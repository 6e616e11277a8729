"""Studies of known truth, as arrays: what the rules of verdicts are tried on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks import _former_verdicts
from tare.analysis.effects.block_order import stretched_ratio, with_widening
from tare.analysis.effects.results import Interval
from tare.analysis.effects.verdict import Evidence, judge
from tare.analysis.statistics.exchange import exchanged_p
from tare.analysis.statistics.logratio import mean_interval
from tare.analysis.statistics.maxt import Adjusted, family_p
from tare.analysis.statistics.position import adjust_for_position
from tare.analysis.statistics.serial import serial
from tare.analysis.statistics.shared_slope import mean_at_equal, shared_slopes, without_slopes
from tare.analysis.statistics.trimmed import trimmed_interval
from tare.events.metric import Metric

Floats = NDArray[np.float64]
Law = Literal["normal", "outliers", "heavy", "exponential"]

EQUAL_OF_OLD = ("dead heat", "not distinguishable")
DECLARED = ("worse", "better")


@dataclass(frozen=True)
class Setting:
    """What a study is like.

    Args:
        truth: True log-ratio of each arm and metric to the baseline, shape ``(arms, metrics)``.
        spread: Standard deviation of a boot's log-value.
        blocks: Blocks.
        law: Noise: normal logs; 5 % of boots three times slow in all arms alike; Student's t with
            2.2 degrees of freedom; exponential, which is skewed.
        twin: Whether there is an A/A pair.
        margin: Practical margin.
        gradient: By how much the log-value grows from a block's first boot to its last.
        position: Whether places are a covariate.
        lag: Correlation of a boot's noise with that of the same arm in the block before.
        trimmed: Whether trimmed means are compared.
    """

    truth: Floats
    spread: float = 0.03
    blocks: int = 8
    law: Law = "normal"
    twin: bool = False
    margin: float = 0.02
    gradient: float = 0.0
    position: bool = False
    lag: float = 0.0
    trimmed: bool = False


@dataclass(frozen=True)
class Drawn:
    """One study's values.

    Args:
        logs: Logs of values, shape ``(arms, metrics, blocks)``.
        baseline: Values of the baseline, or of its mean with its twin, shape ``(metrics, blocks)``.
        alone: Values of the baseline by itself.
        control: Log-ratios of the twin to it; None without one.
        boots: Logs of the baseline and of its twin, ``(2, metrics, blocks)``; None without.
        later: By how many positions each arm ran later than the baseline, ``(arms, blocks)``.
        places: The position of each machine: arms, baseline, twin; ``(machines, blocks)``.
    """

    logs: Floats
    baseline: Floats
    alone: Floats
    control: Floats | None
    boots: Floats | None
    later: Floats
    places: Floats


def draw(setting: Setting, rng: np.random.Generator) -> Drawn:
    """Draw one study."""
    arms, metrics = setting.truth.shape
    machines = arms + 1 + setting.twin
    shape = (machines, metrics, setting.blocks)
    noise = _noise(setting, shape, rng)
    places = np.array([rng.permutation(machines) for _ in range(setting.blocks)]).T
    noise += setting.gradient * places[:, None, :] / (machines - 1)
    logs = noise[:arms] + setting.truth[:, :, None]
    alone = noise[arms]
    base_place = places[arms].astype(np.float64)
    baseline, control, boots = alone, None, None
    if setting.twin:
        baseline, control = (alone + noise[-1]) / 2, noise[-1] - alone
        base_place = (base_place + places[-1]) / 2
        boots = noise[arms:]
    return Drawn(logs, baseline, alone, control, boots, places[:arms] - base_place, places * 1.0)


def _noise(setting: Setting, shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
    if setting.law == "heavy":
        return setting.spread * rng.standard_t(2.2, size=shape)
    if setting.law == "exponential":
        return setting.spread * rng.exponential(size=shape)
    noise = setting.spread * rng.standard_normal(shape)
    if setting.law == "outliers":
        noise += np.log(3.0) * (rng.random(shape) < 0.05)
    for block in range(1, shape[-1] if setting.lag else 0):
        fresh = np.sqrt(1 - setting.lag**2) * noise[..., block]
        noise[..., block] = setting.lag * noise[..., block - 1] + fresh
    return noise


def former(setting: Setting, study: Drawn) -> NDArray[np.str_]:
    """Return the verdicts of old, shape ``(arms, metrics)``."""
    return _former_verdicts.verdicts(study.logs - study.alone, study.control, setting.margin)


def present(setting: Setting, study: Drawn) -> list[list[str]]:
    """Return the verdicts of today by arm and metric, by the functions that reports use."""
    found: list[list[str]] = []
    for arm, (logs, later) in enumerate(zip(study.logs, study.later, strict=True)):
        differences = logs - study.baseline
        along = np.broadcast_to(later, differences.shape)
        slopes = shared_slopes(differences, along) if setting.position else None
        tests = _tested(setting, study, arm)
        means = intervals(differences, None, trimmed=setting.trimmed)
        if slopes is not None:
            for i, (slope, taken) in enumerate(zip(*(s.tolist() for s in slopes), strict=True)):
                if taken:
                    mean, half = mean_at_equal(differences[i], later, slope, taken, 0.95)
                    means[i] = (mean, mean - half, mean + half)
        rows = zip(means, tests.raw.tolist(), tests.adjusted.tolist(), strict=True)
        evidence = [_evidence(setting, *row, len(differences)) for row in rows]
        if slopes is not None:
            differences = differences - slopes.slope[:, None] * along
        found.append([judge(each) for each in _ordered(evidence, differences)])
    return found


def _ordered(
    evidence: list[Evidence], differences: Floats, *, looks: bool = False
) -> list[Evidence]:
    """Return the evidence of one arm's headline metrics, widened if its blocks are correlated."""
    blocks = differences.shape[1]
    found = with_widening(serial(differences), blocks, 0.95, len(evidence), looks=looks)
    return [
        replace(
            each,
            interval=stretched_ratio(each.interval, each.estimate, one.wider),
            surest=stretched_ratio(each.interval, each.estimate, max(one.surest, one.held))
            if max(one.wider, one.held) > 1
            else None,
            doubt="its blocks are correlated" if one.is_dependent(0.05) else "",
        )
        for each, one in zip(evidence, found, strict=True)
    ]


def _tested(setting: Setting, study: Drawn, arm: int) -> Adjusted:
    differences = study.logs[arm] - study.baseline
    later = np.broadcast_to(study.later[arm], differences.shape)
    moderated, trimmed = [True] * len(differences), [setting.trimmed] * len(differences)
    values, places = differences[None], later[None]
    if study.boots is not None:
        values = np.concatenate([study.logs[arm][None], study.boots])
        own = np.concatenate([study.places[[arm]], study.places[-2:]])
        places = np.broadcast_to(own[:, None, :], values.shape)
    left = None
    if setting.position:
        values, along = without_slopes(values, places, np.ones(len(differences)))
        left = None if np.isnan(along).all() else along
    if study.boots is not None:
        return exchanged_p(values, left, moderated=moderated, trimmed=trimmed)
    along_ = None if left is None else left[0]
    return family_p(values[0], along_, moderated=moderated, trimmed=trimmed)


def intervals(
    differences: Floats, later: Floats | None, *, trimmed: bool = False
) -> list[tuple[float, float, float]]:
    """Return means and ends of 95 % intervals of log-ratios, row by row."""
    if later is not None:
        rows = [adjust_for_position(list(row), list(later), 0.95) for row in differences]
        if all(row is not None for row in rows):
            known = [row for row in rows if row is not None]
            return [(r.mean, r.mean - r.half_width, r.mean + r.half_width) for r in known]
    found = (trimmed_interval if trimmed else mean_interval)(differences, 0.95)
    return list(zip(found.mean, found.low, found.high, strict=True))


def _evidence(
    setting: Setting, mean: tuple[float, float, float], p: float, adjusted: float, tests: int
) -> Evidence:
    centre, low, high = (float(np.exp(one)) for one in mean)
    return Evidence(
        metric=Metric("m", "1", "lower"),
        scale="ratio",
        estimate=centre,
        interval=Interval(low, high, "student-t", 0.95),
        blocks=setting.blocks,
        p=p,
        adjusted_p=adjusted,
        margin=setting.margin,
        tests=tests,
    )


def any_of(words: Sequence[str], wanted: Sequence[str]) -> bool:
    """Return whether any verdict is one of those."""
    return any(word in wanted for word in words)
