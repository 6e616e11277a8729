"""One arm's own values over its blocks, whatever it is compared with."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping

from tare.analysis.data.grouping import BlockId, Measured
from tare.analysis.effects.results import ArmSummary, BlockValue, Interval, Key
from tare.analysis.statistics.logratio import deviation, error_of_mean
from tare.analysis.statistics.tails import median_interval


def summarise_arm(
    key: Key,
    measured: Measured,
    arm: str,
    *,
    emulated: bool,
    confidence: float,
    session_of: Callable[[BlockId], Hashable] | None = None,
) -> ArmSummary:
    """Summarise one arm's values over all its blocks, whichever blocks other arms have.

    Args:
        key: What was measured.
        measured: Its values.
        arm: The arm.
        emulated: Whether the arm is emulated.
        confidence: Nominal coverage of the interval.
        session_of: Returns the session of a block. The interval is then based on the means of
            sessions. None: each block is an independent value.
    """
    blocks = measured.arms[arm]
    means = measured.values(arm, logs=measured.positive((arm,)))
    sample = list(means.values())
    values = tuple(
        [
            BlockValue(run, number, value, len(block))
            for ((run, number), block), value in zip(blocks.items(), sample, strict=True)
        ]
    )
    apart = sample if session_of is None else _by_session(means, session_of)
    typical = measured.kind == "typical"
    mean, median = math.fsum(sample) / len(sample), statistics.median(sample)
    interval, error = None, None
    if typical and len(apart) >= 2:
        error = error_of_mean(apart, confidence)
        interval = Interval(mean - error, mean + error, "student-t", confidence)
    elif not typical and len(apart) >= 2:
        ends = median_interval(apart, confidence)
        interval = Interval(*ends, "order-statistic", confidence) if ends else None
    greatest = max(sample)
    if measured.kind == "maximum":
        greatest = max(measured.pooled(arm))
    return ArmSummary(
        key=key,
        arm=arm,
        metric=measured.metric,
        emulated=emulated,
        blocks=values,
        mean=mean,
        median=median,
        least=min(sample),
        greatest=greatest,
        deviation=deviation(sample) if len(sample) >= 2 else None,
        error=error,
        interval=interval,
        centre=mean if typical else median,
    )


def _by_session(
    means: Mapping[BlockId, float], session_of: Callable[[BlockId], Hashable]
) -> list[float]:
    """Return the mean of each session's blocks."""
    sessions: dict[Hashable, list[float]] = defaultdict(list)
    for block, value in means.items():
        sessions[session_of(block)].append(value)
    return [math.fsum(each) / len(each) for each in sessions.values()]
