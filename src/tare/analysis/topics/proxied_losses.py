"""Losses of a proxy's capacity, where cells that client or origin limited are bounds.

A limited cell carried at least what was measured. Dropping it would keep the slow cells of the
baseline and the slow cells of the arm, and so bias the loss. Its block stays in, with one end open.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from tare.analysis.effects.results import Interval, IntervalMethod, VerdictWord
from tare.analysis.effects.verdict import LEVEL
from tare.analysis.statistics.logratio import mean_interval
from tare.analysis.statistics.maxt import least_blocks
from tare.analysis.statistics.tails import median_interval
from tare.analysis.topics.proxied_cells import ProxiedCell

Ends = tuple[float, float]


@dataclass(frozen=True)
class Loss:
    """The share of the baseline's requests that is lost.

    Args:
        verdict: The verdict on the arm against the baseline.
        estimate: The loss; None: limited cells leave it open.
        interval: The interval by itself; None: an end is open, or there are too few blocks.
        least: The least loss, by an interval that holds for all losses of the arm; None: open.
        most: The greatest loss by the same interval; None: open.
        blocks: Blocks in the interval.
        family: Losses of the arm that were judged together.
        margin: The practical margin.
    """

    verdict: VerdictWord
    estimate: float | None
    interval: Interval | None
    least: float | None
    most: float | None
    blocks: int
    family: int
    margin: float


def capacity_loss(
    cells: Sequence[ProxiedCell],
    others: Sequence[ProxiedCell],
    confidence: float,
    margin: float,
    family: int,
) -> Loss | None:
    """Return the loss of an arm at one size; None: no block has both.

    Without limited cells it is the geometric mean, with Student's t. With them it is the median,
    with the ends of order statistics: these need to know of a limited block only that it is beyond.

    Args:
        cells: The arm's cells.
        others: The baseline's.
        confidence: Nominal coverage of the interval.
        margin: The practical margin, a share.
        family: Losses of the arm that are judged together (Bonferroni).
    """
    own, base = _capacities(cells), _capacities(others)
    shared = [block for block in own if block in base]
    lows = [own[block][0] - base[block][1] for block in shared]
    highs = [own[block][1] - base[block][0] for block in shared]
    if not any(map(math.isfinite, (*lows, *highs))):
        return None
    if lows == highs:
        centre = (statistics.fmean(lows),) * 2
    else:
        centre = statistics.median(lows), statistics.median(highs)
    plain, wide = (_ends(lows, highs, level) for level in (confidence, 1 - LEVEL / family))
    interval = None
    if plain is not None and all(map(math.isfinite, plain)):
        method: IntervalMethod = "student-t" if lows == highs else "order-statistic"
        interval = Interval(-math.expm1(plain[1]), -math.expm1(plain[0]), method, confidence)
    return Loss(
        verdict=_judge(len(shared), centre, plain, wide, math.log1p(margin)),
        estimate=-math.expm1(centre[0]) if centre[0] == centre[1] else None,
        interval=interval,
        least=-math.expm1(wide[1]) if wide is not None and math.isfinite(wide[1]) else None,
        most=-math.expm1(wide[0]) if wide is not None and math.isfinite(wide[0]) else None,
        blocks=len(shared),
        family=family,
        margin=margin,
    )


def _capacities(cells: Sequence[ProxiedCell]) -> dict[tuple[str, int], Ends]:
    """Return the least and greatest logarithm of the capacity in each block."""
    found: dict[tuple[str, int], list[ProxiedCell]] = {}
    for each in cells:
        if each.requests > 0:
            found.setdefault(each.block, []).append(each)
    ends = {}
    for block, members in found.items():
        low = statistics.fmean(math.log(each.requests) for each in members)
        ends[block] = (low, math.inf if any(each.limited for each in members) else low)
    return ends


def _ends(lows: Sequence[float], highs: Sequence[float], confidence: float) -> Ends | None:
    if lows == highs:
        if len(lows) < 2:
            return None
        whole = mean_interval(lows, confidence)
        return float(whole.low), float(whole.high)
    below, above = median_interval(lows, confidence), median_interval(highs, confidence)
    return None if below is None or above is None else (below[0], above[1])


def _judge(
    blocks: int, centre: Ends, plain: Ends | None, wide: Ends | None, margin: float
) -> VerdictWord:
    if blocks < least_blocks(LEVEL):
        return "preliminary"
    if plain is not None and -margin <= plain[0] and plain[1] <= margin:
        return "equivalent"
    if wide is not None and wide[1] < 0 and centre[1] < -margin:
        return "worse"
    if wide is not None and wide[0] > 0 and centre[0] > margin:
        return "better"
    return "inconclusive"
