"""Whether one more block is worth its time: precision decides, significance never.

What is asked of typical values no number of blocks reaches of maxima, so each kind has its own
precision: typical values as asked, tails as asked of them or a quarter of that (`TAIL_FACTOR`),
maxima none. An arm that gives no values any more keeps no run going.

Stopping when a test turns significant makes false differences likely; stopping when the interval
is narrow does not look at where the interval lies. Least blocks keep the width's estimate sane.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from statistics import fmean, median
from types import MappingProxyType
from typing import Literal, NamedTuple

from tare.analysis.effects.verdict import LEVEL
from tare.analysis.statistics.anytime import (
    mean_ends,
    mean_evidence,
    median_ends,
    median_evidence,
    sign_evidence,
)
from tare.analysis.statistics.logratio import (
    deviation,
    mean_interval,
    relative_half_width,
    t_quantile,
)
from tare.analysis.statistics.maxt import least_blocks
from tare.analysis.statistics.tails import median_interval
from tare.events.metric import Kind
from tare.events.results import FinishedCell
from tare.units import format_percent

Method = Literal["precision", "pilot", "stein", "anytime"]

TAIL_FACTOR = 4.0
"""How many times less precisely than typical values tails are asked: an order-statistic interval of
few boots spans their middle half, where a mean's spans a third of a standard deviation."""
ABSENT_BLOCKS = 3
"""A pair without a value in so many of the newest blocks is given up."""


LEAST_LOOKED_AT = 8
"""From so many blocks on a run that may have verdicts stops on precision. Of 6 blocks some are
alike by chance, and the run would stop just then."""


class Value(NamedTuple):
    """One observation, as far as stopping looks at it.

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
    """Whether to go on, and why, in words for the user.

    Args:
        go_on: Whether to start another block.
        reason: One clause, e.g. ``tick duration of qemu-pv is known to ± 7.1 %, asked are 5 %``.
        half_width: The widest relative half-width among what is asked, for its kind; None if
            unknown. That of a tail counts a quarter.
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
        for role, metric, value in done.observed:
            if metric.headline:
                key = (cell.scenario, cell.workload, cell.parameters, role, metric.name)
                yield Value(cell.block, cell.arm, key, value, metric.kind)


def decide(
    values: Iterable[Value],
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
    margin: float = 0.0,
) -> Decision:
    """Decide after a block whether to start another one.

    Args:
        values: Headline observations so far (`headline_values`).
        baseline: The baseline arm.
        blocks_done: How many blocks have ended.
        least: Least number of blocks.
        most: Most number of blocks.
        precision: Asked relative half-width of every headline ratio's interval, e.g. 0.05.
        tail_precision: The same of tails; `TAIL_FACTOR` times as much when None.
        confidence: Of those intervals.
        own_baselines: The baseline on its own host, for each arm on another than ``baseline``'s.
        twins: The twin of each baseline that has one: its boots count as the baseline's.
        method: How often precision is looked at: after each block; when a pilot says that it will
            do (Kalibera & Jones 2013); when the least blocks say so, once (Stein 1945); or, of
            ``anytime``, together with whether it is decided, by evidence that may be looked at.
        margin: The practical margin, for ``anytime``.

    Returns:
        Go on below ``least``; stop at ``most``; in between, go on while some headline metric is
        known less precisely than asked. Where values are zero, means are compared, relative to
        the baseline's. What has no value in the newest blocks, or is zero in all of both arms,
        does not keep a run going.
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
    goal = Asked(baseline, own_baselines or {}, confidence, precision, tail_share, twins or {})
    if method == "anytime":
        return _until_decided(given, margin, goal, blocks_done)
    if method != "precision":
        wanted = blocks_wanted(given, goal, least, blocks_done, once=method == "stein")
        if blocks_done < wanted:
            so_many = f"more than {most}" if wanted > most else f"{wanted}"
            return Decision(True, f"the blocks so far say that {so_many} will do", None)
        if method == "stein":
            return Decision(False, f"the first {least} blocks said that {wanted} will do", None)
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


class Asked(NamedTuple):
    """What is asked of a run's precision, as `decide` takes it.

    ``tail_share`` is by how much a tail's half-width counts less than that of a typical value, and
    ``twins`` are of the baselines that have one.
    """

    baseline: str
    own_baselines: Mapping[str, str]
    confidence: float
    precision: float
    tail_share: float = 1 / TAIL_FACTOR
    twins: Mapping[str, str] = MappingProxyType({})

    def of(self, kind: Kind) -> float:
        """Return the precision that is asked of a kind of metric."""
        return self.precision if kind == "typical" else self.precision / self.tail_share


def blocks_wanted(
    values: Sequence[Value], asked: Asked, least: int, blocks_done: int, *, once: bool
) -> int:
    """Return how many blocks will do, by the least blocks, and by as many as those said, and so on.

    It is reckoned anew from the values each time, so that a resumed run decides as another would.

    Args:
        values: Headline observations so far.
        asked: What is asked.
        least: Least blocks, which are looked at first.
        blocks_done: How many there are; more than these are not looked at.
        once: Whether the least blocks alone say it (Stein's two stages).
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


def _reached(width: float, blocks: int, asked: Asked, *, once: bool) -> int:
    """Return how many blocks make a half-width so small; with Stein's t, or that of all blocks."""
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
    """One headline metric of one arm beside its baseline, in the blocks that both have."""

    arm: list[list[float]]
    baseline: list[list[float]]
    kind: Kind
    where: str
    whose: str


def _compared(values: Iterable[Value], asked: Asked, blocks_done: int) -> Iterator[_Compared]:
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
                arm,
            )


def _widest(values: Iterable[Value], asked: Asked, blocks_done: int) -> tuple[float | None, str]:
    widest: float | None = None
    where = ""
    for one in _compared(values, asked, blocks_done):
        width = _half_width(one.arm, one.baseline, asked, one.kind)
        if width is not None and (widest is None or width > widest):
            widest, where = width, one.where
    return widest, where


def _until_decided(
    values: Sequence[Value], margin: float, asked: Asked, blocks_done: int
) -> Decision:
    """Go on while some metric is neither decided nor known as precisely as asked, at this look."""
    # Maxima stop no run, but are of the family that the level is shared among.
    tests = Counter(arm for arm, _ in {(one.arm, one.key) for one in values})
    for one in _compared(values, asked, blocks_done):
        look = Look(margin, asked.of(one.kind), asked.confidence, tests[one.whose])
        if min(value for block in (*one.arm, *one.baseline) for value in block) > 0:
            logs = [_mean_log(a) - _mean_log(b) for a, b in zip(one.arm, one.baseline, strict=True)]
            done = settled(logs, one.kind, look)
        else:
            arm, baseline = ([fmean(block) for block in side] for side in (one.arm, one.baseline))
            # What is zero in all of both arms is as equal as blocks can show.
            done = not any((*arm, *baseline)) or settled_difference(arm, baseline, look)
        if not done:
            return Decision(True, f"{one.where} is not decided yet", None)
    return Decision(False, "every headline metric is decided, or known as well as asked", None)


def _half_width(
    arm: list[list[float]], baseline: list[list[float]], asked: Asked, kind: Kind
) -> float | None:
    """Return how precisely one effect is known, on the scale of what is asked of typical values."""
    share, confidence = 1.0 if kind == "typical" else asked.tail_share, asked.confidence
    if min(value for block in (*arm, *baseline) for value in block) > 0:
        ratios = [_mean_log(a) - _mean_log(b) for a, b in zip(arm, baseline, strict=True)]
        ends = _ends(ratios, confidence, kind)
        return math.inf if ends is None else share * relative_half_width(*ends)
    differences = [fmean(a) - fmean(b) for a, b in zip(arm, baseline, strict=True)]
    scale = abs(fmean(fmean(block) for block in baseline))
    scale = max(scale, abs(fmean(fmean(block) for block in arm)))
    if scale == 0:
        return None
    found = mean_interval(differences, confidence)
    return share * float(found.high - found.low) / 2 / scale


def _ends(ratios: list[float], confidence: float, kind: Kind) -> tuple[float, float] | None:
    if kind != "typical":
        return median_interval(ratios, confidence)
    found = mean_interval(ratios, confidence)
    return float(found.low), float(found.high)


def _mean_log(values: list[float]) -> float:
    return fmean(map(math.log, values))


def _shown(key: Hashable) -> str:
    if isinstance(key, tuple) and len(key) == 5:
        scenario, workload, _, _, metric = key
        return f"{workload} {metric} ({scenario})"
    return str(key)


class Look(NamedTuple):
    """What is asked at one look.

    Args:
        margin: The practical margin, a share.
        precision: Asked relative half-width.
        confidence: Of intervals.
        tests: Metrics of the arm's family, which the level is shared among.
    """

    margin: float
    precision: float
    confidence: float
    tests: int


def settled(ratios: Sequence[float], kind: Kind, look: Look) -> bool:
    """Return whether a metric is decided, or known as precisely as asked.

    Args:
        ratios: Log-ratio of each block.
        kind: Of the metric; tails are decided by their median.
        look: What is asked.
    """
    if len(ratios) < least_blocks(LEVEL):
        return False
    typical = kind == "typical"
    ends = (mean_ends if typical else median_ends)(ratios, look.confidence)
    if ends is None or math.isinf(ends[0]):
        return False
    low, high = ends
    if relative_half_width(low, high) <= look.precision:
        return True
    if -math.log1p(look.margin) <= low and high <= math.log1p(look.margin):
        return True
    evidence = (mean_evidence if typical else median_evidence)(ratios)
    centre = fmean(ratios) if typical else median(ratios)
    return evidence >= look.tests / LEVEL and abs(centre) > math.log1p(look.margin)


def settled_difference(arm: Sequence[float], baseline: Sequence[float], look: Look) -> bool:
    """Return the same of a metric that is zero at times, by its differences.

    Counts are not normal: where few values are there at all, differences that are alike by chance
    would be endless evidence. Their signs assume nothing but that arms may change names.

    Args:
        arm: The arm's value in each block.
        baseline: The baseline's.
        look: What is asked.
    """
    differences = [a - b for a, b in zip(arm, baseline, strict=True)]
    scale = max(abs(fmean(arm)), abs(fmean(baseline)))
    if len(differences) < least_blocks(LEVEL) or deviation(differences) == 0 or scale == 0:
        return False
    low, high = mean_ends(differences, look.confidence)
    if (high - low) / 2 <= look.precision * scale:
        return True
    if -look.margin * scale <= low and high <= look.margin * scale:
        return True
    decided = sign_evidence(differences) >= look.tests / LEVEL
    return decided and abs(fmean(differences)) > look.margin * scale
