"""Fold the events of a run's folder into `RunData`; nothing but the events is read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import polars as pl

from tare.analysis.fold import Fold
from tare.analysis.rundata import OBSERVATION_COLUMNS, RunData
from tare.errors import InputError
from tare.events import Record, read_events

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


def load_run(folder: Path) -> RunData:
    """Read one run's folder.

    Only cells that finished count. Of a cell that was started more than once (a crash, a retry)
    only what was observed between its last start and its end counts.

    Args:
        folder: The folder that ``tare run`` wrote; it may hold an unfinished run.

    Raises:
        InputError: There is no run in it, or its events cannot be read; says where.
    """
    path = folder / "events.jsonl"
    if not path.is_file():
        raise InputError(
            f"{folder} holds no run (there is no {path.name})",
            "name a folder that `tare run` wrote",
        )
    return fold_run(folder, read_events(path))


def load_runs(folders: Sequence[Path]) -> tuple[RunData, ...]:
    """Read several folders, for a comparison over all of them.

    Raises:
        InputError: A folder cannot be read, or two of them hold the same run.
    """
    runs: dict[str, RunData] = {}
    for folder in folders:
        run = load_run(folder)
        if run.run in runs:
            raise InputError(
                f"{folder} and {runs[run.run].folder} hold the same run, {run.run}",
                "name each run once: its blocks must not count twice",
            )
        runs[run.run] = run
    return tuple(runs.values())


def fold_run(folder: Path, records: Iterable[Record]) -> RunData:
    """Fold a run's records.

    Args:
        folder: Where the paths of series begin.
        records: All records of the run in order.

    Raises:
        InputError: The stream does not begin with the start of a run.
    """
    fold = Fold(folder)
    for record in records:
        fold.take(record)
    started = fold.started
    if started is None:
        raise InputError(
            f"{folder}: the events do not begin with the start of a run",
            "the file is incomplete; restore it, or start the run anew",
        )
    ended = fold.ended
    return RunData(
        folder=folder,
        run=started.run,
        study=started.study,
        study_path=started.study_path,
        study_sha256=started.study_sha256,
        seed=started.seed,
        host=started.host,
        versions=started.versions,
        started_at=fold.started_at,
        resumed=fold.resumed,
        checks=fold.checks,
        platforms=fold.platform_results(),
        skipped=tuple(fold.skipped),
        images=tuple(fold.images.values()),
        machines=fold.machine_results(),
        cells=fold.cell_results(),
        observations=observation_frame(fold),
        series=fold.series(),
        blocks_finished=tuple(fold.blocks_finished),
        decisions=tuple(fold.decisions),
        adapted=fold.adapted,
        complete=ended is not None and ended.status == "complete",
        ended=None if ended is None else ended.status,
        end_reason="" if ended is None else ended.reason,
        wall_s=ended.wall_s if ended is not None and ended.wall_s else fold.wall_s,
        booting_s=ended.booting_s if ended is not None and ended.booting_s else fold.booting_s,
        measuring_s=(
            ended.measuring_s if ended is not None and ended.measuring_s else fold.measuring_s
        ),
    )


def observation_frame(fold: Fold) -> pl.DataFrame:
    """Return one row per observation of the cells that count, columns `OBSERVATION_COLUMNS`."""
    columns: dict[str, list[object]] = {name: [] for name in OBSERVATION_COLUMNS}
    emulated = {name for name, check in fold.platforms.items() if check.emulated}
    platforms = {result.arm: result.platform for result in fold.platform_results()}
    for done in fold.finished.values():
        cell = done.result
        if cell.status != "ok":
            continue
        for seen in done.observed:
            row = (
                cell.run,
                cell.block,
                cell.arm,
                platforms.get(cell.arm, ""),
                cell.scenario,
                cell.workload,
                cell.parameters,
                cell.repeat,
                cell.cell,
                seen.role,
                seen.metric,
                seen.unit,
                seen.better,
                seen.kind,
                seen.headline,
                seen.value,
                cell.arm in emulated,
                cell.status,
            )
            for name, value in zip(OBSERVATION_COLUMNS, row, strict=True):
                columns[name].append(value)
    return pl.DataFrame(columns, schema=_SCHEMA)
