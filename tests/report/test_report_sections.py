"""One file adds a section to the report, in Tare or in a package of its own."""

from __future__ import annotations

import csv
import io
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from report.report_synthetic import write_run
from tare.report.page.rendering import TEMPLATES
from tare.report.sections.contract import GROUP, SECTIONS

EXAMPLE = Path(__file__).parents[2] / "examples" / "tare-boot-times"
OWN_TEMPLATE = """
from dataclasses import dataclass
from pathlib import Path
from tare.report.sections.contract import Answer, Section, SectionData

@dataclass(frozen=True)
class CellsData(SectionData):
    cells: int

class Cells(Section):
    name, title, template = "cells", "Cells", "cells.html.j2"
    folder = Path(__file__).parent

    def data(self, report):
        cells = sum(len(run.cells) for run in report.runs)
        return CellsData(cells, answer=Answer(f"{cells} cells ended.", "Which"))

class Broken(Section):
    name, title = "broken", "Broken"

    def data(self, report):
        raise ValueError("no such <fact>")
"""


def install(site: Path, name: str, points: dict[str, str]) -> None:
    """Write what `pip install` leaves of a package's entry points."""
    info = site / f"{name.replace('-', '_')}-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
    lines = [f"[{GROUP}]", *(f"{point} = {value}" for point, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines))


def report(run: Path, *sites: Path) -> str:
    """Return the page of a run that `tare report` makes with more packages installed."""
    command = "import sys; from tare.cli.main import main; sys.exit(main())"
    subprocess.run(
        [sys.executable, "-c", command, "report", str(run)],
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, sites), *sys.path])},
        capture_output=True,
        text=True,
    )
    return (run / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("sections") / "run", blocks=2, series=False)


def test_the_example_adds_a_section_in_one_file(run: Path, tmp_path: Path) -> None:
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    install(tmp_path, project["name"], project["entry-points"][GROUP])
    page = report(run, tmp_path, EXAMPLE)
    assert '<h2 id="boot-times">How long machines took to boot</h2>' in page
    assert page.index('id="workloads"') < page.index('id="boot-times"') < page.index('id="ran"')
    assert 'href="tables/boot-times.csv"' in page
    table = (run / "tables" / "boot-times.csv").read_text()
    rows = {row["arm"]: row for row in csv.DictReader(io.StringIO(table))}
    assert rows["bare"]["boots"] == "2"
    assert float(rows["bare"]["longest_s"]) >= float(rows["bare"]["median_s"]) > 0


def test_a_package_brings_its_own_template_and_a_broken_one_costs_a_notice(
    run: Path, tmp_path: Path
) -> None:
    (tmp_path / "more.py").write_text(OWN_TEMPLATE)
    (tmp_path / "cells.html.j2").write_text(
        '<h2 id="{{ section.name }}">{{ section.title }}</h2><p>{{ section.data.cells }} cells</p>'
    )
    install(tmp_path, "more", {"a": "more:Cells", "b": "more:Broken", "c": "no_such_module:None"})
    page = report(run, tmp_path)
    assert '<h2 id="cells">Cells</h2><p>' in page
    assert 'cells ended. <a href="#cells">Which</a>' in page
    notice = page[page.index('class="notice"') : page.index('id="explore"')]
    assert page.index('id="verdict"') < page.index('class="notice"'), "the answer comes first"
    assert (
        "The section more:Broken of more is left out: ValueError: no such &lt;fact&gt;." in notice
    )
    assert "The section no_such_module:None of more is left out: ModuleNotFoundError" in notice
    assert 'id="again"' in page


def test_each_section_has_a_name_of_its_own_a_title_and_a_template() -> None:
    sections = [entry.load() for entry in SECTIONS]
    names = [section.name for section in sections]
    assert len(set(names)) == len(names)
    assert all(section.title for section in sections)
    assert all((TEMPLATES / section.template).is_file() for section in sections)
    assert all(section.folder is None for section in sections)
