"""Summarise series of durations, of any length, in a stream."""

from __future__ import annotations

import math
import operator
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tare.analysis.data.parquet import UnreadableSeries, floats, understood
from tare.analysis.data.rundata import RunData
from tare.analysis.data.series_file import read_pieces, read_series
from tare.analysis.effects.results import Flag, Interval
from tare.analysis.series.series_data import Quantile, SeriesKey, SeriesSummary
from tare.analysis.series.steadiness import steady_flags
from tare.analysis.statistics.dependence import SharePrecision, share_ends, size_of, size_over_boots
from tare.analysis.statistics.dip import detect_two_humps
from tare.analysis.statistics.histogram import Counter, Histogram, coarsened, merge, thin
from tare.analysis.statistics.pareto import tail_beyond
from tare.analysis.statistics.tails import median_interval
from tare.analysis.statistics.warmup import thinned
from tare.events.results import SeriesEntry

if TYPE_CHECKING:
    from tare.analysis.data.rundata import RunData

WINDOWS = 4096
"""The number of stretches of time in which samples below a quantile are counted."""
LEAST_BEYOND = 5
"""The least independent samples beyond a quantile; with fewer it is hardly below the maximum."""
MANY_BEYOND = 200
"""The number of samples beyond a quantile that shows whether they come in clusters."""
_MOST_NINES = 8

Pieces = Callable[[int], Iterable[NDArray[np.uint32]]]
"""Returns samples in order of time, in pieces of a multiple of the given number of samples."""


def quantiles_of(
    boots: Sequence[Histogram], pieces: Pieces | None, confidence: float
) -> tuple[Quantile, ...]:
    """Return the quantiles that the samples support: 0.5, 0.9, 0.99 and so on.

    Args:
        boots: The samples of each boot.
        pieces: The samples of the one boot in order of time; None if their order is unknown.
        confidence: Nominal coverage of the intervals.
    """
    fewest = min(histogram.total for histogram in boots)
    asked = [0.5, *(1 - 10.0**-nines for nines in range(1, _MOST_NINES + 1))]
    carried = [q for q in asked if fewest * (1 - q) >= LEAST_BEYOND]
    if len(boots) > 1:
        return _quantiles_of_boots(boots, carried, confidence)
    (boot,) = boots
    if pieces is None:
        return tuple(_unordered_quantile(boot, q, confidence) for q in carried)
    values = [boot.quantile(q) for q in carried]
    shares = _shares_below(pieces, boot.total, values)
    found: list[Quantile] = []
    before = math.inf
    for q, value, below in zip(carried, values, shares, strict=True):
        known = size_of(below, q, boot.total)
        if boot.total * (1 - q) < MANY_BEYOND:
            # A few samples in clusters look like single ones. So a quantile never counts as much
            # better known than the one before.
            known = known._replace(size=min(known.size, 2 * before))
        if known.size * (1 - q) < LEAST_BEYOND:
            break
        before = known.size
        ends = _ends(boot, q, known, confidence)
        found.append(Quantile(q, value, Interval(*ends, "block-bootstrap", confidence)))
    return tuple(found)


def _unordered_quantile(boot: Histogram, q: float, confidence: float) -> Quantile:
    """Return a quantile without an interval, because the correlation of neighbours is unknown."""
    nothing = Interval(-math.inf, math.inf, "block-bootstrap", confidence)
    return Quantile(q, boot.quantile(q), nothing)


def _quantiles_of_boots(
    boots: Sequence[Histogram], asked: Sequence[float], confidence: float
) -> tuple[Quantile, ...]:
    found = []
    samples = [boot.total for boot in boots]
    whole, before = merge(boots), math.inf
    for q in asked:
        values = [boot.quantile(q) for boot in boots]
        typical = median_interval(values, confidence) or (-math.inf, math.inf)
        interval = Interval(*typical, "order-statistic", confidence)
        one = Quantile(q, float(np.median(values)), interval)
        value = whole.quantile(q)
        size = size_over_boots([boot.share_within(value) for boot in boots], samples).size
        # If boots differ, rare samples come from rare boots, and only a few of these were seen.
        before = min(size, 2 * before)
        if before * (1 - q) >= LEAST_BEYOND:
            ends = Interval(*_ends_over_boots(boots, q, confidence), "over-boots", confidence)
            one = replace(one, population=value, population_interval=ends)
        found.append(one)
    return tuple(found)


def _ends_over_boots(
    boots: Sequence[Histogram], q: float, confidence: float
) -> tuple[float, float]:
    """Return the least and the greatest value that may have the share ``q`` of samples below it.

    Each value is tested by itself (Francisco & Fuller 1991). If one boot of eight is slow, the
    precision of the share at the quantile is not that at the other boots' values.
    """
    samples = [boot.total for boot in boots]
    ends = np.unique(np.concatenate([boot.low + boot.width for boot in boots]))

    def limits(at: int) -> tuple[float, float]:
        shares = [boot.share_within(float(ends[at])) for boot in boots]
        share = sum(map(operator.mul, shares, samples)) / sum(samples)
        return share_ends(share, size_over_boots(shares, samples), confidence)

    first = bisect_left(range(ends.size), True, key=lambda at: limits(at)[1] >= q)
    beyond = bisect_left(range(ends.size), True, key=lambda at: limits(at)[0] > q)
    return (
        float(ends[first]) if first < ends.size and limits(0)[1] < q else -math.inf,
        float(ends[beyond]) if beyond < ends.size else math.inf,
    )


def _ends(
    samples: Histogram, q: float, known: SharePrecision, confidence: float
) -> tuple[float, float]:
    low, high = share_ends(q, known, confidence)
    total = samples.total
    first, last = math.floor(low * total), math.ceil(high * total)
    return (
        samples.bin_ends(first)[0] if first >= 1 else -math.inf,
        samples.bin_ends(last)[1] if high * total <= total - 0.5 else math.inf,
    )


def _shares_below(pieces: Pieces, total: int, values: Sequence[float]) -> list[Floats]:
    """Return for each value the share of samples at or below it, in each stretch of time."""
    width = max(1, -(-total // WINDOWS))
    found: list[list[Floats]] = [[] for _ in values]
    for samples in pieces(width):
        whole = samples.size // width * width
        windows = samples[:whole].reshape(-1, width)
        for shares, value in zip(found, values, strict=True):
            shares.append((windows <= value).mean(axis=1))
    return [np.concatenate(shares) if shares else np.empty(0) for shares in found]


Floats = NDArray[np.float64]

MOST_BINS = 400
MOST_INTERVALS = 2000
BINS_OF_ALL = 1 << 20
"""The most bins of all cells of a summary together: 24 MiB, in addition to one cell's."""
_CHUNK = 1 << 22


@dataclass(frozen=True)
class _TimeSeries:
    """Durations over time: the start, least, greatest and mean of each interval, in nanoseconds.

    ``first`` is the number of samples before each interval; it is empty if that was not recorded.
    """

    time: Floats
    least: Floats
    greatest: Floats
    mean: Floats
    first: Floats = field(default_factory=lambda: np.empty(0))


@dataclass(frozen=True)
class _Cell:
    """The contents of one cell's series."""

    entry: SeriesEntry
    histogram: Histogram
    least: float
    greatest: float
    mean: float
    over_time: _TimeSeries | None
    raw: bool = False


def group_series(runs: Sequence[RunData]) -> dict[SeriesKey, tuple[SeriesEntry, ...]]:
    """Return the series that hold durations, by key, in order of first appearance.

    Args:
        runs: The runs.
    """
    groups: dict[SeriesKey, list[SeriesEntry]] = {}
    for run in runs:
        for entry in run.series:
            if raw_column(entry) or _is_histogram(entry) or _has_extremes(entry):
                key = SeriesKey(
                    entry.scenario, entry.workload, entry.parameters, entry.role, entry.arm
                )
                groups.setdefault(key, []).append(entry)
    return {key: tuple(entries) for key, entries in groups.items()}


def summarise_series(
    entries: Sequence[SeriesEntry], confidence: float = 0.95, bound: str = ""
) -> SeriesSummary | None:
    """Summarise the series of one arm and workload, from one boot or from all.

    The columns of a series define what it holds, in nanoseconds: raw durations (one column), a
    histogram (``low_ns``, ``width_ns``, ``count``), or the extremes of time intervals
    (``time_ns``, ``min_ns``, ``max_ns``, ``samples``). If there are gaps between the samples,
    intervals also have ``mean_ns`` and ``first``, the number of samples before. Raw samples are
    read in chunks. If the samples of many cells all differ, bins are joined, so memory does not
    grow with the number of samples.

    Args:
        entries: As `group_series` returns them, or those of one cell.
        confidence: Nominal coverage of the quantiles' intervals.
        bound: Why the platform limits the samples to a greatest value; empty if it does not.

    Returns:
        The summary; None if no file could be read, or none holds a sample.
    """
    cells: dict[tuple[str, str], list[SeriesEntry]] = {}
    for entry in entries:
        cells.setdefault((entry.run, entry.cell), []).append(entry)
    read, missing = [], []
    most_bins = BINS_OF_ALL // max(1, len(cells))
    for of_cell in cells.values():
        try:
            with understood(of_cell[0].path):
                cell = _read_cell(of_cell)
        except UnreadableSeries:
            missing.append(of_cell[0].cell)
            continue
        if cell is not None:
            histogram = coarsened(cell.histogram, most_bins)
            read.append(replace(cell, histogram=histogram, over_time=_reduced(cell.over_time)))
    if not read:
        return None
    boots = _boots(read)
    whole = merge([cell.histogram for cell in read])
    worst = max(read, key=lambda cell: (cell.over_time is not None, cell.greatest))
    # Bins of several boots interleave: draw no more of them than the finest boot has.
    drawn = thin(whole, min(MOST_BINS, max(cell.histogram.low.size for cell in read)))
    over_time = worst.over_time
    return SeriesSummary(
        entries=tuple(entries),
        boots=len(boots),
        count=whole.total,
        least=min(cell.least for cell in read),
        greatest=max(cell.greatest for cell in read),
        mean=sum(cell.mean * cell.histogram.total for cell in read) / whole.total,
        bin_low_ns=tuple(drawn.low.tolist()),
        bin_high_ns=tuple((drawn.low + drawn.width).tolist()),
        counts=tuple(drawn.count.tolist()),
        quantiles=_quantiles(boots, confidence),
        boot_maxima_ns=tuple(max(cell.greatest for cell in boot) for boot in boots),
        envelope_run=worst.entry.run,
        envelope_block=worst.entry.block if over_time else None,
        envelope_time_s=tuple((over_time.time / 1e9).tolist()) if over_time else (),
        envelope_least_ns=tuple(over_time.least.tolist()) if over_time else (),
        envelope_greatest_ns=tuple(over_time.greatest.tolist()) if over_time else (),
        envelope_first=tuple(map(int, over_time.first)) if over_time else (),
        flags=(*_flags(read), *(Flag("missing-series", f"no series of {c}") for c in missing)),
        tail=tail_beyond(_boot_histograms(boots), confidence, bound),
    )


def _boot_histograms(boots: Sequence[Sequence[_Cell]]) -> list[Histogram]:
    return [merge([cell.histogram for cell in boot]) for boot in boots]


def _boots(cells: Sequence[_Cell]) -> list[list[_Cell]]:
    boots: dict[tuple[str, int], list[_Cell]] = {}
    for cell in cells:
        boots.setdefault((cell.entry.run, cell.entry.block), []).append(cell)
    return list(boots.values())


def _quantiles(boots: Sequence[Sequence[_Cell]], confidence: float) -> tuple[Quantile, ...]:
    histograms = _boot_histograms(boots)
    in_time = None
    if len(boots) == 1 and all(cell.raw for cell in boots[0]):
        entries = [cell.entry for cell in boots[0]]
        in_time = lambda width: _samples_in_time_order(entries, width)  # noqa: E731
    return quantiles_of(histograms, in_time, confidence)


def _samples_in_time_order(
    entries: Sequence[SeriesEntry], width: int
) -> Iterator[NDArray[np.uint32]]:
    """Yield the raw samples of a boot in order of time, whole stretches at a time."""
    step = max(1, _CHUNK // width) * width
    for entry in entries:
        yield from map(_whole_nanoseconds, read_pieces(entry, str(raw_column(entry)), step))


def _whole_nanoseconds(samples: NDArray[Any]) -> NDArray[np.uint32]:
    if samples.dtype != np.uint32:
        samples = np.clip(samples, 0, 2**32 - 1)
    return samples.astype(np.uint32, copy=False)


def _flags(cells: Sequence[_Cell]) -> list[Flag]:
    timed = [(cell, cell.over_time.mean) for cell in cells if cell.over_time]
    boots = [(cell.entry.run, cell.entry.block) for cell, _ in timed]
    flags = list(steady_flags([thinned(means) for _, means in timed], boots))
    humps = sum(
        detect_two_humps(cell.histogram.spread_out(MOST_INTERVALS)).flagged for cell in cells
    )
    if humps:
        flags.append(Flag("two-humped", f"{humps} of {len(cells)} series have two humps"))
    return flags


def _read_cell(entries: Sequence[SeriesEntry]) -> _Cell | None:
    raw = next((entry for entry in entries if raw_column(entry)), None)
    table = next((entry for entry in entries if _is_histogram(entry)), None)
    intervals = next((entry for entry in entries if _has_extremes(entry)), None)
    over_time = _read_intervals(intervals) if intervals else None
    stored = _read_histogram(table) if table else None
    # Raw samples may have been kept for a part of the time only; the histogram has all samples.
    if raw is not None and raw.rows and (stored is None or raw.rows >= stored.total):
        read = _read_raw(raw)
        # There are gaps between the samples, so their sum is not the elapsed time.
        apart = over_time is not None and over_time.first.size > 0
        return replace(read, over_time=over_time) if apart else read
    if stored is None or not stored.total:
        return None
    least, greatest = float(stored.low[0]), float((stored.low + stored.width)[-1])
    if over_time is not None:
        least, greatest = float(over_time.least.min()), float(over_time.greatest.max())
    return _Cell(entries[0], stored, least, greatest, stored.mean, over_time)


def _is_histogram(entry: SeriesEntry) -> bool:
    # Other series have counts too, such as the operations of Filebench's loops by kind.
    return {"low_ns", "width_ns", "count"} <= {*entry.columns}


def _has_extremes(entry: SeriesEntry) -> bool:
    # Other series have a greatest value too, such as an HTTP load's steps.
    return {"time_ns", "min_ns", "max_ns"} <= {*entry.columns}


def raw_column(entry: SeriesEntry) -> str | None:
    """Return the column of single samples, in nanoseconds; None if the series has none."""
    if len(entry.columns) == 1:
        (name,) = entry.columns
        return name if name.endswith("_ns") else None
    return None


def _read_histogram(entry: SeriesEntry) -> Histogram:
    table = read_series(entry)
    held = table["count"] > 0
    table = {name: values[held] for name, values in table.items()}
    if not np.all(table["width_ns"] > 0):
        raise UnreadableSeries(f"{entry.path}: it has bins of no width")
    order = np.argsort(table["low_ns"], kind="stable")
    return Histogram(
        floats(table["low_ns"][order]),
        floats(table["width_ns"][order]),
        table["count"][order].astype(np.int64),
    )


def _read_intervals(entry: SeriesEntry) -> _TimeSeries | None:
    table = read_series(entry)
    time, least, greatest = (floats(table[name]) for name in ("time_ns", "min_ns", "max_ns"))
    if time.size == 0:
        return None
    mean, first = np.empty(0), np.empty(0)
    if "mean_ns" in table and "first" in table:
        mean, first = floats(table["mean_ns"]), floats(table["first"])
    elif "samples" in table and time.size > 1:
        # Samples follow each other without a gap, so an interval's length is their sum.
        samples = floats(table["samples"])[:-1]
        mean = np.diff(time)[samples > 0] / samples[samples > 0]
    return _TimeSeries(time, least, greatest, mean, first)


def _read_raw(entry: SeriesEntry) -> _Cell:
    counter, column = Counter(), str(raw_column(entry))
    width = max(1, -(-entry.rows // MOST_INTERVALS))
    step = max(1, _CHUNK // width) * width
    least, greatest, sums, sizes = [], [], [], []
    for samples in map(_whole_nanoseconds, read_pieces(entry, column, step)):
        counter.add(samples)
        starts = np.arange(0, samples.size, width)
        least.append(np.minimum.reduceat(samples, starts))
        greatest.append(np.maximum.reduceat(samples, starts))
        sums.append(_window_sums(samples, width))
        sizes.append(np.diff(np.append(starts, samples.size)))
    total = np.concatenate(sums)
    ends = np.cumsum(total)
    over_time = _TimeSeries(
        time=np.concatenate([[0.0], ends[:-1]]),
        least=np.concatenate(least).astype(np.float64),
        greatest=np.concatenate(greatest).astype(np.float64),
        mean=total / np.concatenate(sizes),
    )
    return _Cell(
        entry,
        counter.histogram(),
        float(over_time.least.min()),
        float(over_time.greatest.max()),
        float(ends[-1]) / entry.rows,
        over_time,
        raw=True,
    )


def _window_sums(samples: NDArray[np.uint32], width: int) -> Floats:
    whole = samples.size // width * width
    windows = samples[:whole].reshape(-1, width)
    sums: Floats = windows.sum(axis=1, dtype=np.uint64).astype(np.float64)
    if whole < samples.size:
        sums = np.concatenate([sums, [float(samples[whole:].sum(dtype=np.uint64))]])
    return sums


def _reduced(over_time: _TimeSeries | None) -> _TimeSeries | None:
    """Return the time series in at most `MOST_INTERVALS` intervals, extremes kept.

    Each of many boots then keeps no more than is drawn of a single one.
    """
    if over_time is None or over_time.time.size <= MOST_INTERVALS:
        return over_time
    width = -(-over_time.time.size // MOST_INTERVALS)
    starts = np.arange(0, over_time.time.size, width)
    return _TimeSeries(
        over_time.time[starts],
        np.minimum.reduceat(over_time.least, starts),
        np.maximum.reduceat(over_time.greatest, starts),
        thinned(over_time.mean),
        over_time.first[starts] if over_time.first.size else over_time.first,
    )


def platform_bound(runs: Iterable[RunData], arm: str) -> str:
    """Return why an arm's platform limits how long its machines wait; empty if it does not.

    Args:
        runs: The runs.
        arm: The arm.
    """
    for run in runs:
        options = next((one.options for one in run.platforms if one.arm == arm), {})
        own = options.get("scheduling")
        if isinstance(own, Mapping) and own.get("cap") is not None:
            return (
                "a cap stops its machines until the next period begins, and no longer: what it "
                "takes is bounded"
            )
    return ""
