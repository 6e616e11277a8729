"""A few milliseconds of a series, sample by sample."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tare.analysis.data.parquet import UnreadableSeries, floats
from tare.analysis.data.series_file import read_pieces
from tare.analysis.series.series_data import SeriesSummary
from tare.analysis.series.summaries import raw_column
from tare.events.results import SeriesEntry

Samples = NDArray[np.float64]

LONGEST = 100_000
"""The most samples that are read. A close-up that would need more shows less time."""


SHOWN_PERIODS = 2.0
"""The length of a close-up in tick periods: it shows a tick and the next one."""
LEAST_EXCESS_NS = 1e3
"""A sample contains a tick if it exceeds the median by more than this; `tick` calls it a gap."""


def close_up(
    summary: SeriesSummary, span_s: float, tick_hz: float | None = None
) -> SeriesSummary | None:
    """Return the summary with its time series narrowed to a few milliseconds.

    If the kernel's tick rate is known, the close-up is two tick periods long. It begins half a
    period before the first sample that something interrupted, normally the tick, so it shows the
    next tick as well. Otherwise, and if nothing interrupted, it is the first ``span_s`` seconds.

    Args:
        summary: One arm's summary; its series must hold single consecutive samples.
        span_s: The time to show if there is no tick to find, in seconds.
        tick_hz: Clock ticks per second of its kernel.

    Returns:
        The summary with one entry of its envelope for each sample; None if no series holds single
        samples, or none can be read.
    """
    for entry in summary.entries:
        samples = _first_samples(entry)
        if samples.size:
            break
    else:
        return None
    ends_s = np.cumsum(samples) / 1e9
    first, last = _stretch(samples, ends_s, span_s, tick_hz)
    shown = samples[first:last]
    times_s = tuple((ends_s - samples / 1e9)[first:last].tolist())
    values_ns = tuple(shown.tolist())
    return replace(
        summary,
        envelope_run=entry.run,
        envelope_block=entry.block,
        envelope_time_s=times_s,
        envelope_least_ns=values_ns,
        envelope_greatest_ns=values_ns,
        envelope_first=(),
    )


def _stretch(
    samples: Samples, ends_s: Samples, span_s: float, tick_hz: float | None
) -> tuple[int, int]:
    """Return the range of samples to show: the index of the first, and the one after the last."""
    start_s, length_s = 0.0, span_s
    if tick_hz is not None:
        period_s = 1 / tick_hz
        long = samples > np.median(samples) + LEAST_EXCESS_NS
        # The close-up begins half a period before the tick: skip ticks before that.
        far = np.flatnonzero(long & (ends_s > period_s / 2))
        if far.size:
            start_s, length_s = ends_s[far[0]] - period_s / 2, SHOWN_PERIODS * period_s
    first = int(np.searchsorted(ends_s, start_s))
    last = int(np.searchsorted(ends_s, start_s + length_s))
    return first, max(first + 1, last)


def _first_samples(entry: SeriesEntry) -> Samples:
    column = raw_column(entry)
    if column is None:
        return np.empty(0)
    try:
        pieces = read_pieces(entry, column, LONGEST)
        return next((floats(piece) for piece in pieces), np.empty(0))
    except UnreadableSeries:
        return np.empty(0)
