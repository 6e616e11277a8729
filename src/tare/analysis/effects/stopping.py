"""Decide whether to start one more block, by precision or by verdicts that allow for all looks.

No number of blocks makes maxima as precise as typical values can be. So each kind of metric has its
own target: typical values the asked precision, and maxima none. Tails have their own, or one that
is `TAIL_FACTOR` times as wide. An arm without new values does not keep a run going.

Stopping when an ordinary test turns significant makes false differences likely. Stopping when the
interval is narrow does not depend on the interval's position. The least number of blocks keeps the
estimate of the width reasonable. A group-sequential study stops by its verdicts, whose tests allow
for all looks.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from types import MappingProxyType
from typing import Literal, NamedTuple

from tare.analysis.effects.results import DECLARED, Effect
from tare.analysis.effects.verdict import LEVEL
from tare.analysis.statistics.logratio import (
    mean_interval,
    relative_half_width,
    t_quantile,
)
from tare.analysis.statistics.maxt import least_blocks
from tare.analysis.statistics.tails import median_interval
from tare.analysis.statistics.trimmed import trimmed_interval
from tare.events.metric import Kind
from tare.events.results import FinishedCell
from tare.units import format_percent

Method = Literal["precision", "pilot", "stein"]

TAIL_FACTOR = 4.0
"""The factor by which the asked half-width of tails exceeds that of typical values. The
order-statistic interval of few blocks spans their middle half; a mean's interval spans a third of a
standard deviation."""
ABSENT_BLOCKS = 3
"""A pair without a value in this many of the newest blocks no longer counts for stopping."""


LEAST_LOOKED_AT = 8
"""A run that may reach verdicts stops on precision only from this many blocks on.

Six blocks are sometimes alike by chance, and the run would stop exactly then."""


class StoppingValue(NamedTuple):
    """One observation, with the fields that the stopping rule uses.

    Args:
        block: The block.
        arm: The arm.
        key: What was measured: scenario, workload, parameters, role and metric, in any form.
        value: The value.
        kind: ``typical``, ``tail`` or ``maximum``.
    """

    block: int
    arm: str
    key: Hashable
    value: float
    kind: Kind = "typical"


class Decision(NamedTuple):
    """Whether to continue, and why, in words for the user.

    Args:
        continues: Whether to start another block.
        reason: One clause, e.g. ``tick duration of qemu-pv is known to ± 7.1 %, asked are 5 %``.
        half_width: The widest relative half-width of all metrics with a target; None if unknown.
            A tail's is first scaled to the target of typical values.
    """

    continues: bool
    reason: str
    half_width: float | None


def headline_values(cells: Iterable[FinishedCell]) -> Iterator[StoppingValue]:
    """Yield the headline observations of all ``ok`` cells, for `decide`.

    Args:
        cells: The run's finished cells so far.
    """
    for done in cells:
        cell = done.result
        if cell.status != "ok":
            continue
        for role, metric, value in done.observed:
            if metric.headline:
                key = (cell.scenario, cell.workload, cell.parameters, role, metric.name)
                yield StoppingValue(cell.block, cell.arm, key, value, metric.kind)


def decide(
    values: Iterable[StoppingValue],
    *,
    baseline: str,
    blocks_done: int,
    least: int,
    most: int,
    precision: float,
    tail_precision: float | None = None,
    confidence: float = 0.95,
    own_baselines: Mapping[str, str] | None = None,
    twins: Mapping[str, str] | None = None,
    method: Method = "precision",
    trimmed: bool = False,
) -> Decision:
    """Decide after a block whether to start another one.

    Args:
        values: Headline observations so far (`headline_values`).
        baseline: The baseline arm.
        blocks_done: How many blocks have ended.
        least: Least number of blocks.
        most: Most number of blocks.
        precision: Asked relative half-width of every headline ratio's interval, e.g. 0.05.
        tail_precision: The same for tails; None: `TAIL_FACTOR` times ``precision``.
        confidence: Confidence level of those intervals.
        own_baselines: The baseline on its own host, for each arm on another than ``baseline``'s.
        twins: The twin of each baseline that has one: its boots count as the baseline's.
        method: When precision is checked. ``precision``: after each block. ``pilot``: when an
            estimate from the blocks so far predicts that it is reached (Kalibera & Jones 2013).
            ``stein``: once, after the least blocks, which set the number (Stein 1945).
        trimmed: Whether trimmed means are compared.

    Returns:
        Continue below ``least`` and stop at ``most``. In between, continue while any headline
        metric is known less precisely than asked. If values are zero, means are compared, relative
        to the baseline's mean. A metric without values in the newest blocks, or with only zeros in
        both arms, does not keep a run going.
    """
    if blocks_done >= most:
        done = "1 block is" if blocks_done == 1 else f"{blocks_done} blocks are"
        return Decision(False, f"{done} done, the most asked for", None)
    if blocks_done < least:
        return Decision(True, f"{blocks_done} of at least {least} blocks are done", None)
    if method in ("precision", "pilot") and least_blocks(LEVEL) <= blocks_done < LEAST_LOOKED_AT:
        early = f"{blocks_done} blocks are done; precision is looked at from {LEAST_LOOKED_AT} on"
        return Decision(True, early, None)
    given = tuple(values)
    tail_share = precision / (tail_precision or TAIL_FACTOR * precision)
    goal = PrecisionTarget(
        baseline, own_baselines or {}, confidence, precision, tail_share, twins or {}, trimmed
    )
    if method != "precision":
        wanted = blocks_wanted(given, goal, least, blocks_done, once=method == "stein")
        if blocks_done < wanted:
            so_many = f"more than {most}" if wanted > most else f"{wanted}"
            return Decision(True, f"by the blocks so far, {so_many} are enough", None)
        if method == "stein":
            return Decision(False, f"by the first {least} blocks, {wanted} are enough", None)
    widest, where = _widest(given, goal, blocks_done)
    if widest is None and not given:
        return Decision(True, "no headline ratio is known yet", None)
    if widest is None:
        reason = "more blocks make nothing here more precise: maxima, zeros, or arms without values"
        return Decision(False, reason, None)
    share = "unknown" if math.isinf(widest) else f"± {format_percent(widest)}"
    asked = f"asked are ± {format_percent(precision)}"
    if widest <= precision:
        return Decision(
            False, f"every headline ratio is known to {share} or better, {asked}", widest
        )
    return Decision(True, f"{where} is known to {share}, {asked}", widest)


class PrecisionTarget(NamedTuple):
    """The target for a run's precision, with the arguments of `decide`.

    ``tail_share`` is the factor by which a tail's half-width counts less than that of a typical
    value. ``twins`` has the twin of each baseline with one, and ``trimmed`` is true if trimmed
    means are compared.
    """

    baseline: str
    own_baselines: Mapping[str, str]
    confidence: float
    precision: float
    tail_share: float = 1 / TAIL_FACTOR
    twins: Mapping[str, str] = MappingProxyType({})
    trimmed: bool = False

    def of(self, kind: Kind) -> float:
        """Return the precision that is asked of a kind of metric."""
        return self.precision if kind == "typical" else self.precision / self.tail_share


def blocks_wanted(
    values: Sequence[StoppingValue],
    asked: PrecisionTarget,
    least: int,
    blocks_done: int,
    *,
    once: bool,
) -> int:
    """Estimate how many blocks are enough, in rounds: each round's blocks set the next number.

    It is calculated from all values each time, so that a resumed run decides like any other run.

    Args:
        values: Headline observations so far.
        asked: What is asked.
        least: The least number of blocks, from which the first estimate is made.
        blocks_done: The number of blocks so far; no estimate uses more.
        once: Whether only the least blocks determine the number (Stein's two stages).
    """
    numbers = sorted({value.block for value in values})
    looked_at = least
    while True:
        seen = set(numbers[:looked_at])
        early = [value for value in values if value.block in seen]
        widest, _ = _widest(early, asked, looked_at)
        if widest is None or widest <= asked.precision:
            return looked_at
        wanted = _reached(widest, looked_at, asked, once=once)
        if once or wanted > blocks_done:
            return wanted
        looked_at = wanted


def _reached(width: float, blocks: int, asked: PrecisionTarget, *, once: bool) -> int:
    """Return the number of blocks that narrows a half-width to the asked precision.

    If ``once``, the t quantile is that of the first blocks (Stein); otherwise that of all blocks.
    """
    if math.isinf(width):
        return blocks + 1
    shrink = math.log1p(asked.precision) / math.log1p(width)
    t = t_quantile(asked.confidence, blocks - 1)
    if once:
        return math.ceil(blocks / shrink**2)
    wanted, goal = blocks + 1, shrink * t / math.sqrt(blocks)
    while t_quantile(asked.confidence, wanted - 1) / math.sqrt(wanted) > goal:
        wanted += 1
    return wanted


class _Compared(NamedTuple):
    """One headline metric of an arm and of its baseline, in the blocks that both have."""

    arm: list[list[float]]
    baseline: list[list[float]]
    kind: Kind
    where: str


def _compared(
    values: Iterable[StoppingValue], asked: PrecisionTarget, blocks_done: int
) -> Iterator[_Compared]:
    arms_of: dict[Hashable, dict[str, dict[int, list[float]]]] = {}
    kinds: dict[Hashable, Kind] = {}
    whose = {twin: baseline for baseline, twin in asked.twins.items()}
    for one in values:
        per_arm = arms_of.setdefault(one.key, {})
        arm = whose.get(one.arm, one.arm)
        per_arm.setdefault(arm, {}).setdefault(one.block, []).append(one.value)
        kinds[one.key] = one.kind
    for key, arms in arms_of.items():
        if kinds[key] == "maximum":
            continue
        for arm, blocks in arms.items():
            against = asked.own_baselines.get(arm, asked.baseline)
            base = arms.get(against, {})
            shared = sorted(block for block in blocks if block in base)
            if arm == against or len(shared) < 2 or blocks_done - shared[-1] >= ABSENT_BLOCKS:
                continue
            yield _Compared(
                [blocks[block] for block in shared],
                [base[block] for block in shared],
                kinds[key],
                f"{_shown(key)} of {arm}",
            )


def _widest(
    values: Iterable[StoppingValue], asked: PrecisionTarget, blocks_done: int
) -> tuple[float | None, str]:
    widest: float | None = None
    where = ""
    for one in _compared(values, asked, blocks_done):
        width = _half_width(one.arm, one.baseline, asked, one.kind)
        if width is not None and (widest is None or width > widest):
            widest, where = width, one.where
    return widest, where


def decide_by_verdicts(
    effects: Iterable[Effect], asked: PrecisionTarget, blocks_done: int
) -> Decision:
    """Decide after a block of a group-sequential study whether to start another one.

    Args:
        effects: The effects so far, whose verdicts and intervals hold at all looks.
        asked: What is asked of their precision.
        blocks_done: How many blocks have ended.

    Returns:
        Stop once each headline metric is declared, equivalent, or as precise as asked. Maxima, and
        metrics without a value in the newest blocks, do not keep a run going.
    """
    any_values = False
    for effect in effects:
        if not effect.headline:
            continue
        any_values = True
        absent = effect.each == "block" and (
            blocks_done - effect.block_effects[-1].block >= ABSENT_BLOCKS
        )
        if effect.kind == "maximum" or absent or _is_decided(effect, asked):
            continue
        key = effect.key
        where = f"{key.workload} {key.metric} ({key.scenario}) of {effect.arm}"
        return Decision(True, f"{where} is not decided yet", None)
    if not any_values:
        return Decision(True, "no headline ratio is known yet", None)
    return Decision(False, "every headline metric is decided, or known as well as asked", None)


def _is_decided(effect: Effect, asked: PrecisionTarget) -> bool:
    if effect.verdict in DECLARED or effect.verdict == "equivalent":
        return True
    if effect.verdict == "preliminary" or effect.half_width is None:
        return False
    wanted = asked.of(effect.kind)
    if effect.scale == "ratio":
        return effect.half_width <= wanted
    summaries = (effect.arm_summary, effect.baseline_summary)
    # Counts that are zero in all boots of both arms are as equal as blocks can show.
    scale = max(abs(each.mean) for each in summaries)
    return effect.half_width <= wanted * scale


def _half_width(
    arm: list[list[float]], baseline: list[list[float]], asked: PrecisionTarget, kind: Kind
) -> float | None:
    """Return the relative half-width of one effect, scaled to the target of typical values."""
    share, confidence = 1.0 if kind == "typical" else asked.tail_share, asked.confidence
    if min(value for block in (*arm, *baseline) for value in block) > 0:
        ratios = [_mean_log(a) - _mean_log(b) for a, b in zip(arm, baseline, strict=True)]
        ends = _ends(ratios, asked, kind)
        return math.inf if ends is None else share * relative_half_width(*ends)
    differences = [fmean(a) - fmean(b) for a, b in zip(arm, baseline, strict=True)]
    scale = abs(fmean(fmean(block) for block in baseline))
    scale = max(scale, abs(fmean(fmean(block) for block in arm)))
    if scale == 0:
        return None
    found = mean_interval(differences, confidence)
    return share * float(found.high - found.low) / 2 / scale


def _ends(ratios: list[float], asked: PrecisionTarget, kind: Kind) -> tuple[float, float] | None:
    if kind != "typical":
        return median_interval(ratios, asked.confidence)
    interval = trimmed_interval if asked.trimmed else mean_interval
    found = interval(ratios, asked.confidence)
    return float(found.low), float(found.high)


def _mean_log(values: list[float]) -> float:
    return fmean(map(math.log, values))


def _shown(key: Hashable) -> str:
    if isinstance(key, tuple) and len(key) == 5:
        scenario, workload, _, _, metric = key
        return f"{workload} {metric} ({scenario})"
    return str(key)
