"""Build a report: make its sections, draw the figures, write the tables, fill the page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.analysis.model import Comparison, RunData
from tare.errors import InputError
from tare.outputs import PART, put, remedy
from tare.report.figures.drawing import draw, require_converter
from tare.report.figures.svg import legible
from tare.report.page.arrange import arrange
from tare.report.page.data import ReportData
from tare.report.page.explorer import ExplorerData
from tare.report.page.rendering import SCRIPTS, fill_template
from tare.report.page.tables import Table
from tare.report.page.warnings import Warned, warnings_of
from tare.report.page.words import counted, joined
from tare.report.sections.contract import Answer, ShownSection, make_sections
from tare.units import format_duration

if TYPE_CHECKING:
    from tare.references.published import Reference

PAGE = "report.html"


@dataclass(frozen=True)
class Page:
    """The data for the page's template.

    Args:
        title: The page's title.
        subtitle: The start of the runs, their blocks and their names.
        warnings: What makes the answer less certain, the most important first.
        sections: The sections in order.
        answers: The sentences of sections for the top of the page, each with the section's name.
        explorer: The data for the script of the explorer, as JSON; empty without any effect.
        files: All files of tables next to the page.
        footer: Tare's version and the duration of the measurement.
    """

    title: str
    subtitle: str
    warnings: tuple[Warned, ...]
    sections: tuple[ShownSection, ...]
    answers: tuple[tuple[str, Answer], ...]
    explorer: str
    files: tuple[str, ...]
    footer: str


def build_report(
    runs: Sequence[RunData],
    comparison: Comparison,
    out: Path,
    references: Sequence[Reference] = (),
    formats: Sequence[str] = (),
) -> Path:
    """Write the report of ``runs`` into the folder ``out``.

    ``out`` gets ``report.html`` (one self-contained page), ``figures/`` (each figure as SVG and in
    the other ``formats``) and ``tables/`` (each table as CSV and LaTeX). Files of an earlier report
    with the same names are replaced.

    Args:
        runs: The runs, as the comparison combined them.
        comparison: The comparison of the runs.
        out: The folder; made if missing.
        references: Published values to show next to the runs' own; they enter no estimate.
        formats: The formats of each figure in addition to SVG: ``png``, ``pdf``.

    Returns:
        The page's path.

    Raises:
        InputError: ``out`` cannot be written, or software that draws a format is not installed.
    """
    require_converter(formats)
    try:
        return _build(ReportData(runs, arrange(comparison), out, references), formats)
    except OSError as error:
        place = Path(os.fsdecode(error.filename)) if error.filename else out
        if place.name.startswith(PART):
            place = place.parent
        raise InputError(
            f"{place}: the report cannot be written: {error.strerror or error}",
            f"{remedy(error, place)}; then: tare report {out}",
        ) from error


def _build(report: ReportData, formats: Sequence[str]) -> Path:
    figures_folder, tables_folder = report.out / "figures", report.out / "tables"
    for folder in (figures_folder, tables_folder):
        folder.mkdir(parents=True, exist_ok=True)
    made, problems = make_sections(report)
    tables = [table for _, data in made for table in data.tables]
    files = [name for table in tables for name in _write_table(table, tables_folder)]
    figures = [figure for _, data in made for figure, _ in data.figures]
    drawn = draw(figures, figures_folder, formats)
    page = Page(
        title=legible(report.comparison.title) or "A comparison",
        subtitle=_subtitle(report.comparison),
        warnings=warnings_of(report.comparison, problems),
        sections=tuple(ShownSection(section, data, drawn) for section, data in made),
        answers=tuple((section.name, data.answer) for section, data in made if data.answer),
        explorer="".join(data.json for _, data in made if isinstance(data, ExplorerData)),
        files=tuple(files),
        footer=_footer(report.runs),
    )
    folders = [section.folder for section, _ in made if section.folder is not None]
    scripts = SCRIPTS if page.explorer else SCRIPTS[:1]
    path = report.out / PAGE
    put(path, fill_template("page.html.j2", page, scripts, folders))
    return path


def _write_table(table: Table[Any], folder: Path) -> list[str]:
    put(folder / f"{table.name}.csv", table.csv())
    put(folder / f"{table.name}.tex", table.latex())
    return [f"tables/{table.name}.{extension}" for extension in ("csv", "tex")]


def _subtitle(comparison: Comparison) -> str:
    started = [run.started_at for run in comparison.runs]
    when = datetime.fromtimestamp(min(started), UTC).strftime("%d %B %Y, %H:%M UTC").lstrip("0")
    names = joined([run.run for run in comparison.runs])
    blocks = counted(comparison.blocks, "block")
    return legible(f"{when} · {blocks} · baseline {comparison.baseline} · {names}")


def _footer(runs: Sequence[RunData]) -> str:
    versions = sorted({str(run.versions.get("tare", "")) for run in runs} - {""})
    wall = sum(run.wall_s for run in runs)
    busy = sum(run.booting_s + run.measuring_s for run in runs)
    text = f"Made by Tare {joined(versions)}".strip() + " from the runs’ events alone."
    if wall > 0:
        text += (
            f" The measurement took {format_duration(wall)}; "
            f"{100 * min(1.0, busy / wall):.3g} % of it was booting and measuring."
        )
    return legible(text)
