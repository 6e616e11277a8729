"""Run folders that were recorded once are read as long as there is a Tare."""

from __future__ import annotations

import csv
import io
import json
import math
import tarfile
from pathlib import Path

import polars as pl
import pytest

from run.run_driving import tare
from tare.analysis import compare_runs
from tare.cli.checking import loaded

RUNS = Path(__file__).parent.parent / "fixtures" / "runs"
VERDICTS = RUNS / "verdicts"
"""Today's verdicts on the recorded runs: written again when the rules change, unlike the runs."""
NAMES = ("tiny", "tiny-neighbours")


@pytest.fixture(scope="module", params=NAMES)
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("recorded")
    with tarfile.open(RUNS / f"{request.param}.tar.gz") as archive:
        archive.extractall(place, filter="data")
    return Path(place / request.param)


def expected(run: Path, name: str) -> str:
    return (run / "expected" / name).read_text()


def rows(table: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(table)))


def agree(found: str, before: str) -> bool:
    """Return True if two cells are the same text, or the same number except for its last digits.

    The functions of a distribution are computed to some 12 digits, by whichever library.
    """
    try:
        return found == before or math.isclose(float(found), float(before), rel_tol=1e-9)
    except ValueError:
        return False


def differing(found: list[dict[str, str]], before: list[dict[str, str]]) -> list[object]:
    """Return the cells of the earlier rows that are others now; rows may have gained columns."""
    return [
        (number, name, row[name], value)
        for number, (row, earlier) in enumerate(zip(found, before, strict=True))
        for name, value in earlier.items()
        if not agree(row[name], value)
    ]


def test_a_recorded_run_is_reported_with_the_numbers_of_its_day(recorded: Path) -> None:
    done = tare("report", recorded)
    assert done.returncode == 0, done.stderr
    page = (recorded / "report.html").read_text()
    assert "A recorded run of little work" in page
    for table in ("values.csv", "tails.csv", "host-cost.csv"):
        before = rows(expected(recorded, table))
        found = rows((recorded / "tables" / table).read_text())
        assert not differing(found, before)
    found = rows((recorded / "tables" / "overhead.csv").read_text())
    before = rows((VERDICTS / recorded.name / "overhead.csv").read_text())
    assert found[0].keys() == before[0].keys() and not differing(found, before)


def test_a_recorded_run_without_a_twin_keeps_its_estimates(recorded: Path) -> None:
    """Verdicts follow today's rules; their estimates are unchanged, except where a twin counts."""
    assert tare("report", recorded).returncode == 0
    found = rows((recorded / "tables" / "effects.csv").read_text())
    before = rows(expected(recorded, "effects.csv"))
    kept: tuple[str, ...] = (
        "what",
        "arm",
        "metric",
        "value",
        "baseline_value",
        "unit",
        "blocks",
        "emulated",
    )
    if recorded.name == "tiny-neighbours":
        kept += ("estimate", "student_t_low", "student_t_high", "bootstrap_low", "bootstrap_high")
    assert not differing(found, [{name: row[name] for name in kept} for row in before])


def test_a_recorded_run_is_exported_in_all_formats(recorded: Path) -> None:
    wanted = rows(expected(recorded, "export.csv"))
    for form in ("csv", "json", "parquet"):
        out = recorded / f"export.{form}"
        done = tare("export", recorded, "--format", form, "--out", out)
        assert done.returncode == 0, done.stderr
    now = rows((recorded / "export.csv").read_text())
    # Columns were added since: the columns of that version are unchanged.
    assert [{name: row[name] for name in wanted[0]} for row in now] == wanted
    values = [float(row["value"]) if row["value"] else None for row in wanted]
    assert [row["value"] for row in json.loads((recorded / "export.json").read_text())] == values
    assert pl.read_parquet(recorded / "export.parquet")["value"].to_list() == values


def test_a_recorded_run_is_compared_by_todays_rules(recorded: Path) -> None:
    done = tare("compare", recorded)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (VERDICTS / recorded.name / "compare.txt").read_text()


def test_a_run_from_before_resources_gets_them_from_its_workloads(recorded: Path) -> None:
    known = {cost.resource for cost in compare_runs(loaded(recorded)).resources}
    wanted = {"tiny": "latency", "tiny-neighbours": "memory"}[recorded.name]
    assert {wanted, "latency-worst"} <= known
    assert "work" not in known
