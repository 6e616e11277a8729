"""Whether one more block is worth its time: precision decides, significance never.

Stopping when a test turns significant makes false differences likely; stopping when the interval
is narrow does not look at where the interval lies. Least blocks keep the width's estimate sane.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import NamedTuple

from tare.analysis.statistics.logratio import mean_interval, relative_half_width
from tare.analysis.statistics.tails import median_interval
from tare.events.results import FinishedCell


class Value(NamedTuple):
    """One observation, as far as stopping looks at it.

    Args:
        block: The block.
        arm: The arm.
        key: What was measured: scenario, workload, parameters, role and metric, in any form.
        value: The value.
        typical: False for tails and maxima, whose precision is that of their median.
    """

    block: int
    arm: str
    key: Hashable
    value: float
    typical: bool = True


class Decision(NamedTuple):
    """Whether to go on, and why, in words for the user.

    Args:
        go_on: Whether to start another block.
        reason: One clause, e.g. ``tick duration of qemu-pv is known to ± 7.1 %, asked are 5 %``.
        half_width: The widest relative half-width among headline ratios; None if unknown.
    """

    go_on: bool
    reason: str
    half_width: float | None


def headline_values(cells: Iterable[FinishedCell]) -> Iterator[Value]:
    """Yield the headline observations of all ``ok`` cells, for `decide`.

    Args:
        cells: The run's finished cells so far.
    """
    for done in cells:
        cell = done.result
        if cell.status != "ok":
            continue
        for metric, value in done.observed:
            if metric.headline:
                key = (cell.scenario, cell.workload, cell.parameters, metric.role, metric.name)
                yield Value(cell.block, cell.arm, key, value, metric.kind == "typical")


def decide(
    values: Iterable[Value],
    *,
    baseline: str,
    blocks_done: int,
    least: int,
    most: int,
    precision: float,
    confidence: float = 0.95,
    own_baselines: Mapping[str, str] | None = None,
) -> Decision:
    """Decide after a block whether to start another one.

    Args:
        values: Headline observations so far (`headline_values`).
        baseline: The baseline arm.
        blocks_done: How many blocks have ended.
        least: Least number of blocks.
        most: Most number of blocks.
        precision: Asked relative half-width of every headline ratio's interval, e.g. 0.05.
        confidence: Of those intervals.
        own_baselines: The baseline on its own host, for each arm on another than ``baseline``'s.

    Returns:
        Go on below ``least``; stop at ``most``; in between, go on while some headline ratio is
        known less precisely than asked. Pairs without a positive value in at least two shared
        blocks have no ratio and do not keep a run going.
    """
    if blocks_done >= most:
        return Decision(False, f"{blocks_done} blocks are done, the most asked for", None)
    if blocks_done < least:
        return Decision(True, f"{blocks_done} of at least {least} blocks are done", None)
    widest, where = _widest(values, baseline, own_baselines or {}, confidence)
    if widest is None:
        return Decision(True, "no headline ratio is known yet", None)
    share = "unknown" if math.isinf(widest) else f"± {100 * widest:.2g} %"
    asked = f"asked are ± {100 * precision:.2g} %"
    if widest <= precision:
        return Decision(
            False, f"every headline ratio is known to {share} or better, {asked}", widest
        )
    return Decision(True, f"{where} is known to {share}, {asked}", widest)


def _widest(
    values: Iterable[Value], baseline: str, own_baselines: Mapping[str, str], confidence: float
) -> tuple[float | None, str]:
    logs: dict[Hashable, dict[str, dict[int, list[float]]]] = {}
    typical: dict[Hashable, bool] = {}
    for one in values:
        if one.value > 0:
            per_arm = logs.setdefault(one.key, {})
            per_arm.setdefault(one.arm, {}).setdefault(one.block, []).append(math.log(one.value))
            typical[one.key] = one.typical
    widest: float | None = None
    where = ""
    for key, arms in logs.items():
        for arm, blocks in arms.items():
            against = own_baselines.get(arm, baseline)
            base = _means(arms.get(against, {}))
            other = _means(blocks)
            ratios = [other[block] - base[block] for block in other if block in base]
            if arm == against or len(ratios) < 2:
                continue
            width = _half_width(ratios, confidence, typical[key])
            if widest is None or width > widest:
                widest, where = width, f"{_shown(key)} of {arm}"
    return widest, where


def _half_width(ratios: list[float], confidence: float, typical: bool) -> float:
    if typical:
        found = mean_interval(ratios, confidence)
        return relative_half_width(float(found.low), float(found.high))
    ends = median_interval(ratios, confidence)
    return math.inf if ends is None else relative_half_width(*ends)


def _means(blocks: dict[int, list[float]]) -> dict[int, float]:
    return {block: sum(logs) / len(logs) for block, logs in blocks.items()}


def _shown(key: Hashable) -> str:
    if isinstance(key, tuple) and len(key) == 5:
        scenario, workload, _, _, metric = key
        return f"{workload} {metric} ({scenario})"
    return str(key)
