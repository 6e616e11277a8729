"""A long series of durations as data that can be drawn. Nothing here does anything."""

from __future__ import annotations

from dataclasses import dataclass

from tare.analysis.results import Flag, Interval
from tare.analysis.rundata import SeriesEntry


@dataclass(frozen=True)
class Quantile:
    """One quantile of a series, with its order-statistic interval.

    Args:
        q: Which, e.g. 0.999.
        value: In the series' unit (nanoseconds for tick).
        interval: Distribution-free order-statistic interval within this boot; its upper end is
            ``inf`` where the samples are too few to bound it. It says nothing about other boots.
    """

    q: float
    value: float
    interval: Interval


@dataclass(frozen=True)
class SeriesSummary:
    """A series of durations, however long, in a size that can be drawn.

    Args:
        entries: The series it is made of (several when pooled over boots).
        count: Number of samples.
        least: Least sample, in nanoseconds.
        greatest: Greatest sample, in nanoseconds.
        mean: Mean, in nanoseconds.
        bin_low_ns: Lower ends of the occupied histogram bins, ascending, nanoseconds.
        bin_high_ns: Upper ends (exclusive), as long; bins grow in proportion to the value, or
            are the agent's own.
        counts: Samples per bin.
        quantiles: 0.5, 0.9, 0.99, 0.999, ... as far as the count carries.
        envelope_time_s: Starts of the time intervals, seconds since the first sample.
        envelope_least_ns: Least sample in each interval.
        envelope_greatest_ns: Greatest sample in each interval.
        flags: Warm-up, no steady state, two humps.
    """

    entries: tuple[SeriesEntry, ...]
    count: int
    least: float
    greatest: float
    mean: float
    bin_low_ns: tuple[float, ...]
    bin_high_ns: tuple[float, ...]
    counts: tuple[int, ...]
    quantiles: tuple[Quantile, ...]
    envelope_time_s: tuple[float, ...]
    envelope_least_ns: tuple[float, ...]
    envelope_greatest_ns: tuple[float, ...]
    flags: tuple[Flag, ...] = ()
