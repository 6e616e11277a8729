"""Flags: facts that a reader must know about a result, and those that rule out *equivalent*."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tare.analysis.effects.block_order import BlockOrder
from tare.analysis.effects.duets import LEAST_OVERLAP, Cells
from tare.analysis.effects.estimates import Estimate, Pair, timed
from tare.analysis.effects.findings import LostCells, SlowBoots
from tare.analysis.effects.results import Flag, Interval, Key, as_cost, cost_ends
from tare.analysis.effects.survivorship_bias import lost_alone
from tare.analysis.series.series_data import SeriesKey
from tare.analysis.statistics.maxt import least_blocks
from tare.analysis.statistics.rates import mean_ratio
from tare.analysis.statistics.shares import Share, exact_share
from tare.units import format_number, format_percent


@dataclass(frozen=True)
class Known:
    """All findings about values in addition to their means.

    Args:
        unsteady: Flags of series that had not warmed up.
        humped: Metrics and arms whose boots have two humps, with the dip test's p.
        slow: Slow boots by metric and arm.
        lost: Cells that failed or were withheld.
        level: A smaller p is reported.
        confidence: The confidence of intervals.
        overlaps: The share of their time during which cells of a duet ran next to the other arm.
    """

    unsteady: Mapping[SeriesKey, tuple[Flag, ...]]
    humped: Mapping[tuple[Key, str], float]
    slow: Mapping[tuple[Key, str], SlowBoots]
    lost: LostCells
    level: float
    confidence: float
    overlaps: Mapping[Cells, float] = field(default_factory=dict)


def flags_of(
    pair: Pair, baselines: tuple[str, ...], known: Known, order: BlockOrder | None
) -> list[Flag]:
    """Return the flags of one effect.

    Args:
        pair: The pair.
        baselines: The arms that are its baseline: one arm, or that arm and its twin.
        known: The findings.
        order: The serial dependence of its blocks, if it was tested.
    """
    flags = _block_flags(pair, baselines, known)
    flags += _value_flags(pair)
    for arm in (pair.arm, *baselines):
        series = SeriesKey(
            pair.key.scenario, pair.key.workload, pair.key.parameters, pair.key.role, arm
        )
        unsteady = known.unsteady.get(series, ())
        flags += [replace(flag, text=f"{arm}: {flag.text}") for flag in unsteady]
        if (p := known.humped.get((pair.key, arm))) is not None:
            text = (
                f"the boots of {arm} seem to form two groups, which an average hides "
                f"(dip test, p = {p:.2g})"
            )
            flags.append(Flag("two-humped", text))
        key = pair.key
        share = known.overlaps.get(Cells(key.scenario, key.workload, key.parameters, arm), 1.0)
        if share < LEAST_OVERLAP:
            text = f"{arm} was alone for {format_percent(1 - share)} of its time in this duet"
            flags.append(Flag("duet", text))
        if (slow := known.slow.get((pair.key, arm))) is not None:
            flags.append(Flag("slow-boots", slow_words(arm, slow)))
    if order is not None:
        flags += _order_flags(order, known.level, pair.each)
    return flags


def doubts(pair: Pair, baselines: tuple[str, ...], flags: list[Flag], known: Known) -> str:
    """Return why an interval within the margin would not show equality; empty if it would.

    Args:
        pair: The pair.
        baselines: The arms that are its baseline.
        flags: Its flags.
        known: The findings.
    """
    for why in lost_alone(pair, baselines, known.lost).values():
        return why
    ours = known.slow.get((pair.key, pair.arm))
    if ours is not None:
        return slow_words(pair.arm, ours)
    return next((flag.text for flag in flags if flag.kind in ("serial", "together")), "")


def slow_words(arm: str, slow: SlowBoots) -> str:
    """Return slow boots in words, with their size and the interval of their share.

    For example ``1 of 12 boots of kvm was slow, 3× the typical cost (interval of the share: …)``.
    """
    share = slow.share
    were = "was" if share.count == 1 else "were"
    return (
        f"{share.count} of {share.total} boots of {arm} {were} slow, "
        f"{format_number(slow.factor, 2)}× the typical cost (interval of the share: {_ends(share)})"
    )


def _ends(share: Share) -> str:
    return f"{format_percent(share.low).removesuffix(' %')} to {format_percent(share.high, 3)}"


def _block_flags(pair: Pair, baselines: tuple[str, ...], known: Known) -> list[Flag]:
    flags = []
    blocks, least = len(pair.blocks), least_blocks(known.level)
    if blocks < least:
        text = f"{_counted(blocks, pair.each)} shared; {least} are the least for a verdict"
        flags.append(Flag("few-blocks", text))
    for arm, other in ((pair.arm, pair.baseline), (pair.baseline, pair.arm)):
        # The pair has the blocks that both arms have.
        missing = len(pair.measured.arms[other]) - blocks
        if missing:
            name = pair.arm if arm == pair.arm else " and ".join(baselines)
            flags.append(
                Flag("missing-blocks", f"{name} has no value in {_counted(missing, pair.each)}")
            )
    for looks, why in lost_alone(pair, baselines, known.lost).items():
        flags.append(Flag("failures" if looks == "better" else "baseline-failures", why))
    return flags


def _value_flags(pair: Pair) -> list[Flag]:
    flags = []
    if pair.scale == "difference":
        text = "a value is zero or below, so differences are compared, not ratios"
        flags.append(Flag("not-positive", f"{text}{_as_counts(pair)}"))
    if pair.seldom:
        counts = []
        for name, values in ((pair.arm, pair.over), ("the baseline", pair.under)):
            here = [values[block] for block in pair.blocks]
            share = exact_share(sum(value != 0 for value in here), len(here), 0.95)
            counts.append(f"{name} in {share.count} of {share.total}, interval {_ends(share)}")
        flags.append(Flag("seldom", f"boots with any: {'; '.join(counts)}"))
    if pair.step:
        on = "sit on the clock's grid" if timed(pair.measured.unit) else "are rounded"
        text = f"values {on}; what that hides is in the interval"
        flags.append(Flag("resolution", text))
    return flags


def _as_counts(pair: Pair) -> str:
    """Return the ratio of means in words; empty if a value is below zero, or a mean is zero."""
    arm, baseline = ([side[block] for block in pair.blocks] for side in (pair.over, pair.under))
    if len(arm) < 2 or min(*arm, *baseline) < 0 or not (sum(arm) and sum(baseline)):
        return ""
    found = mean_ratio(arm, baseline, 0.95)
    ends = f"{format_number(found.low)} to {format_number(found.high)}"
    return f"; as counts its mean is {format_number(found.ratio)} times the baseline's ({ends})"


def _order_flags(order: BlockOrder, level: float, each: str) -> list[Flag]:
    flags = []
    wider = (
        f"the interval is made {format_number(order.wider, 2)} times as wide"
        if order.wider > 1
        else "the interval may be too narrow"
    )
    if order.drifts(level):
        text = (
            f"it seems to drift over the {each}s (correlation with their order {order.drift:.2f})"
        )
        flags.append(Flag("serial", f"{text}: {wider}"))
    elif order.lags(level):
        text = f"each {each} seems to be like the one before (correlation {order.lag:.2f})"
        flags.append(Flag("serial", f"{text}: {wider}"))
    elif order.all_lag(level):
        made = "intervals are made wider" if order.wider > 1 else "intervals may be too narrow"
        text = f"over all metrics of the arm each {each} seems to be like the one before: {made}"
        flags.append(Flag("together", text))
    elif order.wider > 1:
        flags.append(
            Flag(
                "order",
                f"{each}s seem to depend on each other in another metric of the arm: {wider}",
            )
        )
    return flags


def _blocks(count: int) -> str:
    return _counted(count, "block")


def _counted(count: int, each: str) -> str:
    return f"{count} {each}" if count == 1 else f"{count} {each}s"


def robust_flags(pair: Pair, estimate: Estimate, interval: Interval | None) -> list[Flag]:
    """Return a flag if the mean of all boots and a robust estimate disagree.

    If trimmed means are compared, the mean of all boots is compared with the trimmed mean.

    Args:
        pair: The pair.
        estimate: Its estimates.
        interval: The interval as shown.
    """
    robust, mean = estimate.robust, estimate.student_t
    if robust is None or interval is None or pair.scale != "ratio":
        return []
    other, ends = robust.estimate, robust.interval
    text = "a few boots move the mean: without their weight"
    if pair.trimmed and mean is not None:
        other, ends = math.sqrt(mean.low * mean.high), mean
        text = "a few boots move the mean of all boots, which is not compared: with their weight"
    if ends.holds(estimate.estimate) and interval.holds(other):
        return []
    better = pair.measured.better
    low, high = cost_ends(ends.low, ends.high, better)
    text += (
        f" the {'ratio' if better == 'neither' else 'cost'} is "
        f"{format_number(as_cost(other, better))} ({format_number(low)} to {format_number(high)})"
    )
    return [Flag("robust", text)]
