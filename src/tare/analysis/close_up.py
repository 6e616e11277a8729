"""A few milliseconds of a series, sample by sample."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tare.analysis.parquet import UnreadableSeries, floats
from tare.analysis.series import raw_column
from tare.analysis.series_data import SeriesSummary
from tare.analysis.series_file import read_pieces
from tare.events.results import SeriesEntry

LONGEST = 100_000
"""Samples that are read at most; a close-up that would need more shows less time."""


def close_up(summary: SeriesSummary, span_s: float) -> SeriesSummary | None:
    """Return the summary with its course over time narrowed to its first ``span_s`` seconds.

    Args:
        summary: Of one arm; its series must hold single samples.
        span_s: How much time to show.

    Returns:
        The summary with one entry of its envelope a sample; None where no series holds single
        samples or none can be read.
    """
    for entry in summary.entries:
        samples = _first_samples(entry)
        if samples.size:
            break
    else:
        return None
    ends_s = np.cumsum(samples) / 1e9
    shown = samples[: max(1, int(np.searchsorted(ends_s, span_s)))]
    times_s = (0.0, *ends_s[: shown.size - 1].tolist())
    values_ns = tuple(shown.tolist())
    return replace(
        summary,
        envelope_block=entry.block,
        envelope_time_s=times_s,
        envelope_least_ns=values_ns,
        envelope_greatest_ns=values_ns,
    )


def _first_samples(entry: SeriesEntry) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    column = raw_column(entry)
    if column is None:
        return np.empty(0)
    try:
        pieces = read_pieces(entry, column, LONGEST)
        return next((floats(piece) for piece in pieces), np.empty(0))
    except UnreadableSeries:
        return np.empty(0)
