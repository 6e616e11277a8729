"""A long series of durations as data that can be drawn. Nothing here does anything."""

from __future__ import annotations

from dataclasses import dataclass

from tare.analysis.effects.results import Flag, Interval
from tare.analysis.statistics.pareto import Tail
from tare.events.results import SeriesEntry


@dataclass(frozen=True, order=True)
class SeriesKey:
    """Whose series: an arm's, of one workload in one scenario, over all boots.

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

    The typical boot's says what a boot is like; the population's, which share of all samples takes
    longer, wherever they were. Where one boot in ten is slow, the two are far apart.

    Of one boot: the order statistic, in the interval that this boot gives, with what neighbours in
    time have in common; it does not cover other boots, and there is no population. With several
    boots: the median of the boots' quantiles, in the interval that the boots give. Ends that
    nothing bounds are infinite: of too few boots, or of samples whose order in time was not kept.

    Args:
        q: Which, e.g. 0.999.
        value: The quantile of the typical boot, in nanoseconds.
        interval: The interval of that value.
        population: The quantile of all boots' samples together, in nanoseconds; None with one
            boot, and where boots differ so much that what is rare depends on boots not seen.
        population_interval: The interval of that, with boots as the unit.
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
        boots: Over how many boots.
        count: Number of samples, over all boots.
        least: Least sample, in nanoseconds.
        greatest: Greatest sample of all boots, in nanoseconds.
        mean: Mean, in nanoseconds.
        bin_low_ns: Lower ends of the occupied histogram bins, ascending, nanoseconds; at most
            400, of unequal widths: draw counts ÷ width. Bins of several boots may overlap by
            less than a bin.
        bin_high_ns: Upper ends (exclusive), as long.
        counts: Samples per bin, over all boots.
        quantiles: 0.5, 0.9, 0.99, 0.999, ... as far as the samples carry.
        boot_maxima_ns: The greatest sample of each boot, in order of boots.
        envelope_block: The block whose time series the envelope shows: among several, the one
            with the greatest sample; None without one.
        envelope_time_s: Starts of the time intervals, seconds since the first sample; at most
            2000.
        envelope_least_ns: Least sample in each interval.
        envelope_greatest_ns: Greatest sample in each interval.
        envelope_first: How many samples came before each interval; empty where that was not
            recorded.
        flags: Warm-up, no steady state, two humps, missing files.
        tail: What is to be expected beyond all samples, or why that is not known; None where it
            was not asked for.
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
