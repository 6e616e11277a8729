"""A run's observations as a table, one row each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from tare.events.metric import Metric
from tare.events.results import CellResult, FinishedCell


def observation_frame(
    counted: Sequence[FinishedCell],
    columns_of: Callable[[CellResult], Mapping[str, Any]],
    columns: Mapping[str, type],
) -> pl.DataFrame:
    """Return one row per observation.

    Args:
        counted: The cells that count, in order.
        columns_of: Returns the values that all rows of a cell share, by column.
        columns: All columns in order, with their types.
    """
    metrics = {(seen.role, seen.metric): None for done in counted for seen in done.observed}
    numbers = {metric: number for number, metric in enumerate(metrics)}
    values = np.fromiter((seen.value for done in counted for seen in done.observed), np.float64)
    if not values.size:
        return pl.DataFrame(schema=columns)
    # Many rows share the same few texts: select these by index, not row by row.
    described = [_described(role, metric) for role, metric in metrics]
    of_metric = np.fromiter(
        (numbers[seen.role, seen.metric] for done in counted for seen in done.observed), np.int64
    )
    cells = [columns_of(done.result) for done in counted]
    of_cell = np.repeat(np.arange(len(counted)), [len(done.observed) for done in counted])
    return pl.concat(
        [
            _table(cells, columns)[of_cell],
            _table(described, columns)[of_metric],
            pl.DataFrame({"value": values}),
        ],
        how="horizontal",
    ).select(list(columns))


def _described(role: str, metric: Metric) -> dict[str, Any]:
    return {
        "role": role,
        "metric": metric.name,
        "unit": metric.unit,
        "better": metric.better,
        "kind": metric.kind,
        "headline": metric.headline,
    }


def _table(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, type]) -> pl.DataFrame:
    """Return rows as a table; all rows have the same subset of the columns."""
    return pl.DataFrame(rows, schema={name: columns[name] for name in rows[0]})
