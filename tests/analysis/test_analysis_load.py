"""Runs folded from their events: what counts, what does not, and what is exported."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from analysis.analysis_simulate import SimulatedMetric, SimulatedRun, events_of, started, write_run
from tare.analysis import export_observations, load_run, load_runs, tidy_frame
from tare.analysis.data.export import EXPORT_COLUMNS, write_observations
from tare.analysis.model import OBSERVATION_COLUMNS, RunData
from tare.errors import InputError
from tare.events import (
    CellFinished,
    CellStarted,
    Decided,
    Event,
    MachineReady,
    MachineStarting,
    MachineStopped,
    Observed,
    RunFinished,
    RunResumed,
    SeriesSaved,
    Skipped,
)

ONE = SimulatedRun(
    [SimulatedMetric("duration", {"bare": 1.0, "bare-again": 1.0, "qemu-pv": 2.0})], blocks=2
)


def begun(cell: str, attempt: int = 1, **parameters: Any) -> CellStarted:
    return CellStarted(
        cell=cell, block=1, arm="bare", scenario="alone", workload="tick",
        parameters=parameters, attempt=attempt,
    )  # fmt: skip


def seen(cell: str, value: float) -> Observed:
    return Observed(cell=cell, metric="m", unit="s", better="lower", value=value)


def load(tmp_path: Path, *events: Event) -> RunData:
    return load_run(write_run(tmp_path / "run", [*started(ONE), *events]))


def test_a_whole_run_is_folded(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path / "run", events_of(replace(ONE, repeats=2))))
    assert run.run == "r1"
    assert run.complete
    assert run.ended == "complete"
    assert run.arms == ("bare", "bare-again", "qemu-pv")
    assert run.baseline == "bare"
    assert run.emulated_arms == {"qemu-pv"}
    assert run.observations.columns == list(OBSERVATION_COLUMNS)
    assert run.observations.height == 2 * 3 * 2
    assert sorted(set(run.observations["repeat"])) == [1, 2]
    assert set(run.observations.filter(pl.col("emulated"))["arm"]) == {"qemu-pv"}
    assert (run.wall_s, run.booting_s, run.measuring_s) == (9, 3, 5)
    assert len(run.machines) == 6
    assert run.machines[0].host_cost["cpu_s"] == 2
    assert run.checks[0].name == "load"
    assert run.blocks_finished == (1, 2)


def test_a_cell_that_never_ended_does_not_count(tmp_path: Path) -> None:
    run = load(tmp_path, begun("a"), seen("a", 1.0))
    assert run.cells == ()
    assert run.observations.height == 0
    assert run.ended is None
    assert not run.complete


def test_only_the_last_attempt_of_a_repeated_cell_counts(tmp_path: Path) -> None:
    saved = SeriesSaved(
        cell="a", name="raw", path="series/x.parquet", columns={"duration_ns": "UInt32"}, rows=1,
        sha256="",
    )  # fmt: skip
    run = load(
        tmp_path,
        begun("a"),
        seen("a", 1.0),
        saved,
        RunResumed(run="r1", versions={}),
        begun("a", attempt=2),
        seen("a", 2.0),
        saved.model_copy(update={"path": "series/y.parquet"}),
        CellFinished(cell="a", status="ok"),
    )
    assert run.observations["value"].to_list() == [2.0]
    assert [entry.path.name for entry in run.series] == ["y.parquet"]
    assert run.cells[0].attempt == 2
    assert run.resumed == 1


def test_a_retried_cell_keeps_the_reason_of_its_first_failure(tmp_path: Path) -> None:
    run = load(
        tmp_path,
        begun("a"),
        CellFinished(cell="a", status="failed", reason="the guest hung", transient=True),
        begun("a", attempt=2),
        seen("a", 3.0),
        CellFinished(cell="a", status="ok"),
    )
    (cell,) = run.cells
    assert cell.status == "ok"
    assert cell.warnings == ("attempt 1 failed: the guest hung",)
    assert run.observations["value"].to_list() == [3.0]


def test_withheld_and_failed_cells_are_kept_with_reasons_but_do_not_count(tmp_path: Path) -> None:
    run = load(
        tmp_path,
        begun("a", n=1),
        seen("a", 1.0),
        CellFinished(cell="a", status="withheld", reason="its clock drifted"),
        begun("b#2"),
        CellFinished(cell="b#2", status="failed", reason="no memory"),
    )
    assert [(c.status, c.reason, c.repeat) for c in run.cells] == [
        ("withheld", "its clock drifted", 1),
        ("failed", "no memory", 2),
    ]
    assert run.observations.height == 0
    frame = tidy_frame(run)
    assert frame.columns == list(EXPORT_COLUMNS)
    assert frame["status"].to_list() == ["withheld", "failed"]
    assert frame["value"].to_list() == frame["metric"].to_list() == [None, None]
    assert frame["parameters"].to_list() == ['{"n":1}', "{}"]
    assert frame["cell"].to_list() == [cell.cell for cell in run.cells]
    assert frame["reason"].to_list() == [cell.reason for cell in run.cells]
    assert frame["repeat"].to_list() == [1, 2]


def test_other_events_are_folded_too(tmp_path: Path) -> None:
    run = load(
        tmp_path,
        Skipped(arm="qemu-pv", workload="tick", reason="no TSC"),
        Skipped(arm="qemu-pv", workload="tick", reason="no TSC"),
        MachineStarting(machine="m", block=1, arm="bare", scenario="alone", role="subject"),
        MachineReady(machine="m", boot_s=2.5, proof={"kernel": {"release": "6"}}),
        MachineStopped(machine="m", expected=False, reason="panic", console_tail=("oops",)),
        MachineStarting(machine="n", block=1, arm="bare", scenario="alone", role="subject"),
        Decided(block=1, go_on=True, reason="1 of at least 8"),
        RunFinished(status="stopped", reason="asked to"),
    )
    assert len(run.skipped) == 1
    first, second = run.machines
    assert (first.boot_s, first.expected, first.console_tail) == (2.5, False, ("oops",))
    assert (second.boot_s, second.expected) == (None, None)
    assert run.decisions == ((1, True, "1 of at least 8"),)
    assert (run.ended, run.complete, run.end_reason) == ("stopped", False, "asked to")
    assert run.booting_s == 2.5


def test_an_arm_that_was_never_checked_is_not_usable(tmp_path: Path) -> None:
    events = [e for e in started(ONE) if getattr(e, "arm", None) != "qemu-pv"]
    run = load_run(write_run(tmp_path / "run", events))
    unchecked = run.platforms[2]
    assert (unchecked.arm, unchecked.platform) == ("qemu-pv", "qemu")
    assert (unchecked.usable, unchecked.emulated) == (False, False)
    assert "not checked" in unchecked.reason


def test_folders_without_a_run_and_runs_given_twice_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no run"):
        load_run(tmp_path)
    write_run(tmp_path / "a", events_of(ONE))
    write_run(tmp_path / "b", events_of(ONE))
    with pytest.raises(InputError, match="hold the same run"):
        load_runs([tmp_path / "a", tmp_path / "b"])
    write_run(tmp_path / "c", [RunResumed(run="r", versions={})])
    with pytest.raises(InputError, match="do not begin"):
        load_run(tmp_path / "c")


def test_exports_hold_the_same_rows_in_every_format(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path / "run", events_of(ONE)))
    csv = pl.read_csv(io.BytesIO(export_observations(run, "csv")))
    parquet = pl.read_parquet(io.BytesIO(export_observations(run, "parquet")))
    rows = json.loads(export_observations(run, "json"))
    assert list(csv.columns) == list(parquet.columns) == list(rows[0]) == list(EXPORT_COLUMNS)
    assert csv.height == parquet.height == len(rows) == 6
    assert {row["repeat"] for row in rows} == {1}
    assert {(row["kind"], row["headline"]) for row in rows} == {
        (seen.metric.kind, seen.metric.headline) for done in run.counted for seen in done.observed
    }
    assert {row["cell"] for row in rows} == {cell.cell for cell in run.cells}
    assert [row["value"] for row in rows] == parquet["value"].to_list() == csv["value"].to_list()
    write_observations(run, tmp_path / "out.csv", "csv")
    assert (tmp_path / "out.csv").read_bytes() == export_observations(run, "csv")
    with pytest.raises(InputError, match="cannot write"):
        write_observations(run, tmp_path / "none" / "out.csv", "csv")


def test_several_runs_are_exported_together(tmp_path: Path) -> None:
    runs = load_runs(
        [
            write_run(tmp_path / "a", events_of(ONE)),
            write_run(tmp_path / "b", events_of(replace(ONE, run="r2", seed=2))),
        ]
    )
    assert tidy_frame(runs)["run"].unique(maintain_order=True).to_list() == ["r1", "r2"]
