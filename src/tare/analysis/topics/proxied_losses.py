"""Losses of a proxy's capacity; cells that client or origin limited are used as bounds.

A limited cell carried at least what was measured. Dropping it would keep the slow cells of the
baseline and the slow cells of the arm, and so bias the loss. So its block remains, with one open
end.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tare.analysis.effects.block_order import BlockOrder, with_widening
from tare.analysis.effects.findings import SlowBoots
from tare.analysis.effects.flags import slow_words
from tare.analysis.effects.results import Interval, IntervalMethod, VerdictWord
from tare.analysis.effects.verdict import LEVEL
from tare.analysis.statistics.bootstrap import seed_from
from tare.analysis.statistics.logratio import mean_interval
from tare.analysis.statistics.maxt import least_blocks
from tare.analysis.statistics.serial import LEAST_BLOCKS, ranks, serial
from tare.analysis.statistics.shares import exact_share
from tare.analysis.statistics.slow_boots import slow_boots
from tare.analysis.statistics.tails import median_interval
from tare.analysis.topics.proxied_cells import ProxiedCell

Ends = tuple[float, float]


@dataclass(frozen=True)
class Loss:
    """The share of the baseline's requests that an arm loses.

    Args:
        verdict: The verdict on the arm against the baseline.
        estimate: The loss; None: limited cells leave it open.
        interval: Its own interval; None: an end is open, or there are too few blocks.
        least: The least loss, by an interval that holds for all losses of the arm; None: open.
        most: The greatest loss by the same interval; None: open.
        blocks: Blocks in the interval.
        family: Losses of the arm that were judged together.
        margin: The practical margin.
        doubt: Why the arm must not be called equal: slow boots that the estimate includes, or
            correlated blocks; empty: nothing speaks against it.
    """

    verdict: VerdictWord
    estimate: float | None
    interval: Interval | None
    least: float | None
    most: float | None
    blocks: int
    family: int
    margin: float
    doubt: str = ""


@dataclass(frozen=True)
class _Size:
    """The log-ratios of an arm to its baseline at one size of objects, by block.

    Args:
        blocks: The blocks that both have.
        lows: The least log-ratio of each block.
        highs: The greatest one; more than the least one if a cell was limited.
        measured: The log-ratio of the measured values in each block.
        doubt: Slow boots of the arm in words; empty: none.
    """

    blocks: tuple[tuple[str, int], ...]
    lows: tuple[float, ...]
    highs: tuple[float, ...]
    measured: tuple[float, ...]
    doubt: str

    @property
    def limited(self) -> bool:
        """Whether a cell was limited."""
        return self.lows != self.highs

    @property
    def centre(self) -> Ends:
        """The mean; with limited cells the least and the greatest median."""
        if not self.limited:
            return (statistics.fmean(self.lows),) * 2
        return statistics.median(self.lows), statistics.median(self.highs)


def capacity_losses(
    sizes: Sequence[tuple[Sequence[ProxiedCell], Sequence[ProxiedCell]]],
    confidence: float,
    margin: float,
    seed: str = "",
) -> list[Loss | None]:
    """Return the losses of an arm at all sizes of objects, which are one family.

    Without limited cells a loss is the geometric mean, with Student's t. With them it is the
    median, with an interval of order statistics. These need to know of a limited block only that
    its ratio is beyond the measured one. As for other effects, intervals are wider if blocks are
    correlated or may be, and slow boots of the arm prevent *equivalent*.

    Args:
        sizes: The arm's cells and the baseline's, at each size.
        confidence: Nominal coverage of the intervals.
        margin: The practical margin, a share.
        seed: Text that the shuffles of blocks depend on.

    Returns:
        One loss for each size; None if no block has both.
    """
    found = [_size(*both, confidence) for both in sizes]
    orders = _orders(found, confidence, seed)
    return [
        None if each is None else _loss(each, order, confidence, margin, len(sizes))
        for each, order in zip(found, orders, strict=True)
    ]


def _size(
    cells: Sequence[ProxiedCell], others: Sequence[ProxiedCell], confidence: float
) -> _Size | None:
    own, base = _capacities(cells), _capacities(others)
    shared = tuple(sorted(block for block in own if block in base))
    lows = tuple(own[block][0] - base[block][1] for block in shared)
    highs = tuple(own[block][1] - base[block][0] for block in shared)
    if not any(map(math.isfinite, (*lows, *highs))):
        return None
    measured = tuple(own[block][0] - base[block][0] for block in shared)
    # A limited cell was faster than it shows, so it is never a slow boot.
    known = [
        [-side[block][0] if side[block][1] == side[block][0] else math.nan for block in shared]
        for side in (own, base)
    ]
    slow, logs = slow_boots(known)[0], np.array(known[0])
    doubt = ""
    if slow.any():
        factor = math.exp(float(np.median(logs[slow]) - np.nanmedian(logs[~slow])))
        boots = int((~np.isnan(logs)).sum())
        share = exact_share(int(slow.sum()), boots, confidence)
        doubt = slow_words(cells[0].cell.arm, SlowBoots(share, factor))
    return _Size(shared, lows, highs, measured, doubt)


def _orders(sizes: Sequence[_Size | None], confidence: float, seed: str) -> list[BlockOrder | None]:
    """Return the serial dependence of each size's blocks, if there are enough."""
    most = max((len(each.blocks) for each in sizes if each is not None), default=0)
    whole = [i for i, each in enumerate(sizes) if each is not None and len(each.blocks) == most]
    found: list[BlockOrder | None] = [None] * len(sizes)
    if most < LEAST_BLOCKS:
        return found
    members = [each for i in whole if (each := sizes[i]) is not None]
    values = np.array([each.measured for each in members])
    if any(each.limited for each in members):
        values = ranks(values)
    tests = serial(values, seed_from(seed, "losses"))
    each_order = with_widening(tests, most, confidence, len(sizes))
    for i, order in zip(whole, each_order, strict=True):
        found[i] = order
    # Sizes that lack blocks were measured in the same boots.
    widest = max(each_order, key=lambda order: (order.wider, order.held))
    return [widest if order is None else order for order in found]


def _loss(
    size: _Size, order: BlockOrder | None, confidence: float, margin: float, family: int
) -> Loss:
    plain, wide = (
        _ends(size.lows, size.highs, level) for level in (confidence, 1 - LEVEL / family)
    )
    doubt, centre = size.doubt, size.centre
    if order is not None and max(order.wider, order.held) > 1:
        wide = _widest(wide, _stretched(plain, centre, max(order.surest, order.held)))
        plain = _stretched(plain, centre, order.wider)
    if order is not None and order.is_dependent(LEVEL):
        doubt = doubt or "its blocks seem to depend on each other"
    interval = None
    if plain is not None and all(map(math.isfinite, plain)):
        method: IntervalMethod = "order-statistic" if size.limited else "student-t"
        interval = Interval(-math.expm1(plain[1]), -math.expm1(plain[0]), method, confidence)
    verdict = _judge(len(size.blocks), centre, plain, wide, math.log1p(margin))
    if verdict == "equivalent" and doubt:
        verdict = "inconclusive"
    return Loss(
        verdict=verdict,
        estimate=-math.expm1(centre[0]) if centre[0] == centre[1] else None,
        interval=interval,
        least=-math.expm1(wide[1]) if wide is not None and math.isfinite(wide[1]) else None,
        most=-math.expm1(wide[0]) if wide is not None and math.isfinite(wide[0]) else None,
        blocks=len(size.blocks),
        family=family,
        margin=margin,
        doubt=doubt,
    )


def _stretched(ends: Ends | None, centre: Ends, factor: float) -> Ends | None:
    """Return ends that are ``factor`` times as far from the centre; open ends remain open."""
    if ends is None or factor <= 1:
        return ends
    low, high = (c + factor * (end - c) for c, end in zip(centre, ends, strict=True))
    return low, high


def _widest(one: Ends | None, other: Ends | None) -> Ends | None:
    if one is None or other is None:
        return None
    return min(one[0], other[0]), max(one[1], other[1])


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
