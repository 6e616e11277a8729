"""Without the extra for PNG and PDF, reports are made as SVG, and others are refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from report.report_synthetic import write_run

WITHOUT = """
import importlib.util, sys
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: (
    None if name == "vl_convert" else found(name, package)
)
from tare.cli.main import main
sys.exit(main())
"""


def report(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``tare report`` where vl-convert is not installed."""
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, "report", str(folder), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_report_of_svg_needs_no_converter(tmp_path: Path) -> None:
    write_run(tmp_path, blocks=2, series=False)
    ended = report(tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "report.html").is_file()
    assert (tmp_path / "figures" / "overhead.svg").is_file()


@pytest.mark.parametrize("kind", ["png", "pdf"])
def test_other_formats_name_the_extra_and_write_nothing(tmp_path: Path, kind: str) -> None:
    write_run(tmp_path, blocks=2, series=False)
    before = sorted(tmp_path.rglob("*"))
    ended = report(tmp_path, "--figures", kind)
    assert ended.returncode == 2
    assert "pip install 'hypertare[figures]'" in " ".join(ended.stderr.split())
    assert "Traceback" not in ended.stderr
    assert sorted(tmp_path.rglob("*")) == before
