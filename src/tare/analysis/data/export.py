"""Tidy observations, one row each, for other programs."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import polars as pl

from tare.analysis.data.rundata import OBSERVATION_COLUMNS, RunData
from tare.analysis.topics.hypervisors import counts_by_hypervisors
from tare.outputs import put_for_user

Format = Literal["csv", "parquet", "json"]
HYPERVISOR = "hypervisor"
"""The role of rows with figures that a cell's hypervisor counted."""

EXPORT_COLUMNS = (*OBSERVATION_COLUMNS, "reason", "source", "resolution_s")
"""Columns of an export, in order."""


def tidy_frame(runs: RunData | Sequence[RunData]) -> pl.DataFrame:
    """Return all observations of one or more runs, columns `EXPORT_COLUMNS`.

    A cell that failed or was withheld is one row with its status and its reason, and with null for
    role, metric, unit, better, kind, headline and value: it is neither a zero nor left out.
    ``repeat`` counts cells of one identity from 1; ``cell`` is the identity; ``kind`` is typical,
    tail or maximum; ``headline`` is true if verdicts are based on the metric.

    Figures that a cell's hypervisor counted have the role ``hypervisor``. ``metric`` is the figure,
    ``value`` its mean over the cell, and ``source`` the account that it is from. ``resolution_s``
    is the time in seconds that each of its values is a mean over. ``source`` and ``resolution_s``
    are null for measured values.

    Args:
        runs: One run, or several; rows are in order of runs, then of time.
    """
    several = [runs] if isinstance(runs, RunData) else list(runs)
    return pl.concat([_tidy_run(run) for run in several])


def _tidy_run(run: RunData) -> pl.DataFrame:
    measured = run.observations.with_columns(
        reason=pl.lit(None, pl.String),
        source=pl.lit(None, pl.String),
        resolution_s=pl.lit(None, pl.Float64),
    ).select(EXPORT_COLUMNS)
    rows = [
        {
            **run.columns_of(counted.cell),
            "role": HYPERVISOR,
            "metric": counted.figure.name,
            "unit": counted.figure.unit,
            "better": "neither",
            "kind": "typical",
            "headline": False,
            "value": counted.figure.mean,
            "source": counted.figures.source,
            "resolution_s": counted.figures.resolution_s,
        }
        for counted in counts_by_hypervisors(run)
    ]
    rows += [
        {**run.columns_of(cell), "reason": cell.reason} for cell in run.cells if cell.status != "ok"
    ]
    others = pl.DataFrame(rows, schema=measured.schema) if rows else None
    return measured if others is None else pl.concat([measured, others])


def export_observations(runs: RunData | Sequence[RunData], form: Format) -> bytes:
    """Return `tidy_frame` as the bytes of a file.

    Args:
        runs: One run, or several.
        form: ``csv`` (empty field for null), ``parquet``, or ``json`` (an array of objects).
    """
    frame = tidy_frame(runs)
    buffer = io.BytesIO()
    if form == "csv":
        frame.write_csv(buffer)
    elif form == "parquet":
        frame.write_parquet(buffer)
    else:
        frame.write_json(buffer)
    return buffer.getvalue()


def write_observations(runs: RunData | Sequence[RunData], path: Path, form: Format) -> None:
    """Write `tidy_frame` to a file atomically.

    Args:
        runs: One run, or several.
        path: The file; replaced if it exists.
        form: As in `export_observations`.

    Raises:
        InputError: The file cannot be written; the message says why.
    """
    put_for_user(path, export_observations(runs, form), "or choose another file with --out")
