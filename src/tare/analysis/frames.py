"""A run's observations as a table, one row each."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import polars as pl

from tare.events.results import FinishedCell

_OF_CELL = (
    "run",
    "block",
    "arm",
    "platform",
    "scenario",
    "workload",
    "parameters",
    "repeat",
    "cell",
    "emulated",
    "status",
)
_OF_METRIC = ("role", "metric", "unit", "better", "kind", "headline")
_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "run": pl.String,
    "block": pl.Int64,
    "arm": pl.String,
    "platform": pl.String,
    "scenario": pl.String,
    "workload": pl.String,
    "parameters": pl.String,
    "repeat": pl.Int64,
    "cell": pl.String,
    "role": pl.String,
    "metric": pl.String,
    "unit": pl.String,
    "better": pl.String,
    "kind": pl.String,
    "headline": pl.Boolean,
    "value": pl.Float64,
    "emulated": pl.Boolean,
    "status": pl.String,
}


def observation_frame(
    counted: Sequence[FinishedCell], platforms: Mapping[str, str], emulated: Collection[str]
) -> pl.DataFrame:
    """Return one row per observation.

    Args:
        counted: The cells that count, in order.
        platforms: Each arm's platform.
        emulated: The arms that are emulated.
    """
    cells = pl.DataFrame(
        [
            (
                cell.run,
                cell.block,
                cell.arm,
                platforms.get(cell.arm, ""),
                cell.scenario,
                cell.workload,
                cell.parameters,
                cell.repeat,
                cell.cell,
                cell.arm in emulated,
                cell.status,
            )
            for cell in (done.result for done in counted)
        ],
        schema={name: _SCHEMA[name] for name in _OF_CELL},
        orient="row",
    )
    metrics = {seen.metric: None for done in counted for seen in done.observed}
    numbers = {metric: number for number, metric in enumerate(metrics)}
    described = pl.DataFrame(
        list(metrics), schema={name: _SCHEMA[name] for name in _OF_METRIC}, orient="row"
    )
    # Texts that many rows share are gathered by their number, not collected row by row.
    of_cell = np.repeat(np.arange(len(counted)), [len(done.observed) for done in counted])
    of_metric = np.fromiter(
        (numbers[seen.metric] for done in counted for seen in done.observed), np.int64
    )
    values = np.fromiter((seen.value for done in counted for seen in done.observed), np.float64)
    return pl.concat(
        [cells[of_cell], described[of_metric], pl.DataFrame({"value": values})], how="horizontal"
    ).select(list(_SCHEMA))
