"""A long series of durations as data that can be drawn. Nothing here has side effects."""

from __future__ import annotations

from dataclasses import dataclass

from tare.analysis.effects.results import Flag, Interval
from tare.analysis.statistics.pareto import Tail
from tare.events.results import SeriesEntry


@dataclass(frozen=True, order=True)
class SeriesKey:
    """The key of a series: an arm's, of one workload in one scenario, over all boots.

    Args:
        scenario: The scenario's name.
        workload: The workload's name.
        parameters: Its parameters as canonical JSON.
        role: The machine's role.
        arm: The arm.
    """

    scenario: str
    workload: str
    parameters: str
    role: str
    arm: str


@dataclass(frozen=True)
class Quantile:
    """One quantile of a series: of the typical boot, and of the population of all samples.

    The typical boot's quantile shows what a boot is like. The population's shows which share of all
    samples takes longer, in any boot. If one boot in ten is slow, the two are far apart.

    With one boot, the value is the order statistic. Its interval allows for the correlation of
    neighbours in time, but does not cover other boots, and there is no population. With several
    boots, the value is the median of the boots' quantiles, and the interval is over boots. Ends
    that nothing bounds are infinite: with too few boots, or if the order in time was not kept.

    Args:
        q: The quantile, e.g. 0.999.
        value: The quantile of the typical boot, in nanoseconds.
        interval: The interval of that value.
        population: The quantile of all boots' samples together, in nanoseconds. None with one
            boot, or if boots differ so much that rare samples depend on boots not measured.
        population_interval: The interval of ``population``, with boots as the unit.
    """

    q: float
    value: float
    interval: Interval
    population: float | None = None
    population_interval: Interval | None = None


@dataclass(frozen=True)
class SeriesSummary:
    """A series of durations, however long, in a size that can be drawn.

    Args:
        entries: The series that it summarises.
        boots: Number of boots.
        count: Number of samples, over all boots.
        least: Least sample, in nanoseconds.
        greatest: Greatest sample of all boots, in nanoseconds.
        mean: Mean, in nanoseconds.
        bin_low_ns: Lower ends of the occupied histogram bins, ascending, nanoseconds; at most
            400, of unequal widths: draw counts ÷ width. Bins of several boots may overlap by
            less than a bin.
        bin_high_ns: Upper ends (exclusive) of the same bins, in nanoseconds.
        counts: Samples per bin, over all boots.
        quantiles: 0.5, 0.9, 0.99, 0.999, ... up to the last one that the samples support.
        boot_maxima_ns: The greatest sample of each boot, in order of boots.
        envelope_block: The block whose time series the envelope shows, the one with the greatest
            sample; None without any time series.
        envelope_time_s: Starts of the time intervals, seconds since the first sample; at most
            2000.
        envelope_least_ns: Least sample in each interval.
        envelope_greatest_ns: Greatest sample in each interval.
        envelope_first: The number of samples before each interval; empty if that was not
            recorded.
        flags: Warm-up, no steady state, two humps, missing files.
        tail: The levels to expect beyond all samples, or why they are unknown; None if they were
            not estimated.
        envelope_run: The run of `envelope_block`.
    """

    entries: tuple[SeriesEntry, ...]
    boots: int
    count: int
    least: float
    greatest: float
    mean: float
    bin_low_ns: tuple[float, ...]
    bin_high_ns: tuple[float, ...]
    counts: tuple[int, ...]
    quantiles: tuple[Quantile, ...]
    boot_maxima_ns: tuple[float, ...]
    envelope_block: int | None
    envelope_time_s: tuple[float, ...]
    envelope_least_ns: tuple[float, ...]
    envelope_greatest_ns: tuple[float, ...]
    envelope_first: tuple[int, ...] = ()
    flags: tuple[Flag, ...] = ()
    tail: Tail | None = None
    envelope_run: str = ""
