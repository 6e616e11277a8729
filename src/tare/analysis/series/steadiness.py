"""Check whether repeated work had warmed up, by the trend of a cell's iterations over time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence

import numpy as np

from tare.analysis.data.parquet import UnreadableSeries
from tare.analysis.data.rundata import RunData
from tare.analysis.data.series_file import read_series
from tare.analysis.effects.results import Flag, FlagKind
from tare.analysis.series.series_data import SeriesKey
from tare.analysis.statistics.unsteady import stand_out
from tare.analysis.statistics.warmup import Shape, thinned, trends
from tare.events.results import SeriesEntry

ITERATIONS = ("iteration_ns", "duration_ns")
"""Columns of one repetition's duration, next to one that names what was repeated."""

_KINDS: tuple[tuple[Shape, FlagKind, str], ...] = (
    ("warm-up", "warm-up", "began slower than they continued"),
    ("slowdown", "no-steady-state", "became slower"),
    ("no steady state", "no-steady-state", "had no steady state"),
)


def steadiness(runs: Sequence[RunData]) -> Mapping[SeriesKey, tuple[Flag, ...]]:
    """Return flags for the series whose iterations were not steady, by key.

    Args:
        runs: The runs; a series that cannot be read is left out.
    """
    found: dict[SeriesKey, list[tuple[np.ndarray, Hashable]]] = {}
    for run in runs:
        for entry in run.series:
            if len(entry.columns) > 1 and any(name in entry.columns for name in ITERATIONS):
                key = SeriesKey(
                    entry.scenario, entry.workload, entry.parameters, entry.role, entry.arm
                )
                for durations in _series_of(entry):
                    boot = (entry.run, entry.block)
                    found.setdefault(key, []).append((thinned(durations), boot))
    flagged = ((key, steady_flags(*zip(*of_key, strict=True))) for key, of_key in found.items())
    return {key: flags for key, flags in flagged if flags}


def steady_flags(series: Sequence[np.ndarray], boots: Sequence[Hashable]) -> tuple[Flag, ...]:
    """Return one flag for each way in which series were not steady, with the number of them.

    Args:
        series: Durations in order of time.
        boots: The boot of each series.
    """
    count = Counter(stand_out(series, trends(series), boots))
    return tuple(
        Flag(kind, f"{count[shape]} of {len(series)} series {text}")
        for shape, kind, text in _KINDS
        if count[shape]
    )


def _series_of(entry: SeriesEntry) -> Iterator[np.ndarray]:
    """Yield the durations of each thread or kernel of a cell, in order of time."""
    column = next(name for name in ITERATIONS if name in entry.columns)
    label = next((name for name in entry.columns if name not in ITERATIONS), None)
    if label is None:
        return
    try:
        table = read_series(entry, (label, column))
    except UnreadableSeries:
        return
    labels, values = table[label], table[column]
    for one in np.unique(labels):
        yield values[labels == one]
