"""What a command does not need is not loaded: starting was most of a small report's time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from report.report_synthetic import write_run

HEAVY = (
    *("polars", "scipy", "vl_convert", "asyncio", "asyncssh", "rich"),
    *("tare.references.published", "tare.study.model.study"),
)
SCRIPT = """
import json, sys
from tare.cli.main import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print(json.dumps([name for name in {heavy!r} if name in sys.modules]), file=sys.stderr)
"""


def loaded(*arguments: str) -> list[str]:
    """Return the heavy libraries that ``tare`` with these arguments imports."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(heavy=HEAVY), *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[str] = json.loads(done.stderr.splitlines()[-1])
    return found


def test_a_report_without_series_loads_no_tables_and_no_painter(tmp_path: Path) -> None:
    write_run(tmp_path, blocks=2, series=False)
    assert loaded("report", str(tmp_path)) == []
    assert (tmp_path / "figures" / "overhead.svg").is_file()


def test_a_plan_for_this_computer_loads_nothing_that_reaches_others() -> None:
    assert "asyncssh" not in loaded("plan", "quick")


def test_libraries_are_imported_when_their_output_is_requested(tmp_path: Path) -> None:
    write_run(tmp_path, blocks=2, series=False)
    assert loaded("report", str(tmp_path), "--figures", "png") == ["vl_convert"]
    assert loaded("export", str(tmp_path), "--out", str(tmp_path / "out.csv")) == ["polars"]
