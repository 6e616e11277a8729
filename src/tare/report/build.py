"""Build a report: draw the figures, write the tables, fill the page."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.analysis.kernels import tick_rates
from tare.analysis.model import Comparison, Effect, RunData
from tare.errors import InputError
from tare.outputs import PART, put, remedy
from tare.report.arrange import arranged
from tare.report.drawing import Noted, draw, require_converter
from tare.report.explorer import explorer_data, pair_effects
from tare.report.far_tails import far_tables
from tare.report.figures.overhead import overhead_figure, overview, shading_note
from tare.report.kernels import kernels_table
from tare.report.leads import Leads
from tare.report.long_series import (
    Pooled,
    emulated_arms,
    pooled_series,
    series_figures,
    tails_table,
)
from tare.report.over_hosts import shared_table
from tare.report.over_sessions import sessions_section
from tare.report.page import Page, make_page
from tare.report.pairs import PairsSection, pairs_section, pairs_table, ranking_table
from tare.report.palette import looks
from tare.report.rare import rare_parts
from tare.report.rendering import SCRIPTS, filled
from tare.report.results import (
    effects_table,
    environment_changes_table,
    host_cost_table,
    lost_cells_table,
    proof_table,
    skipped_table,
    summaries_table,
)
from tare.report.tables import Table
from tare.report.unit_cost import by_part, costs_of, unit_cost_table
from tare.report.words import counted
from tare.report.workload_sections import Draft, WholeTables, drafts, finish, illustrated

if TYPE_CHECKING:
    from tare.analysis.course import PhaseEffect
    from tare.analysis.load_balancer import Through
    from tare.analysis.monitoring import Monitor
    from tare.references.published import Reference
    from tare.report.palette import Look
    from tare.report.sources import Sources

PAGE = "report.html"


def build_report(
    runs: Sequence[RunData],
    comparison: Comparison,
    out: Path,
    references: Sequence[Reference] = (),
    formats: Sequence[str] = (),
) -> Path:
    """Write the report of ``runs`` into the folder ``out``.

    ``out`` gets ``report.html`` (one self-contained page), ``figures/`` (each figure as SVG,
    and as what else is asked for) and ``tables/`` (each table as CSV and LaTeX). What an earlier
    report left there under the same names is replaced.

    Args:
        runs: The runs, as the comparison combined them.
        comparison: Their comparison.
        out: The folder; made if missing.
        references: Published values to set beside the runs' own; they enter no estimate.
        formats: What each figure is drawn as beside SVG: ``png``, ``pdf``.

    Returns:
        The page's path.

    Raises:
        InputError: ``out`` cannot be written, or what draws a format is not installed.
    """
    require_converter(formats)
    try:
        return _build(runs, arranged(comparison), out, references, formats)
    except OSError as error:
        place = Path(os.fsdecode(error.filename)) if error.filename else out
        if place.name.startswith(PART):
            place = place.parent
        raise InputError(
            f"{place}: the report cannot be written: {error.strerror or error}",
            f"{remedy(error, place)}; then: tare report {out}",
        ) from error


def _build(
    runs: Sequence[RunData],
    comparison: Comparison,
    out: Path,
    references: Sequence[Reference],
    formats: Sequence[str],
) -> Path:
    figures_folder, tables_folder = out / "figures", out / "tables"
    for folder in (figures_folder, tables_folder):
        folder.mkdir(parents=True, exist_ok=True)
    arms = list(dict.fromkeys([*comparison.arms, *(arm for run in runs for arm in run.arms)]))
    style = looks(arms, comparison.baseline)
    overhead = overhead_figure(comparison, style)
    sections = drafts(comparison, style)
    series, leads, rates = pooled_series(comparison), Leads(comparison), tick_rates(runs)
    of_series = {
        draft.part: series_figures(
            series.get(draft.part, {}),
            style,
            emulated_arms(comparison),
            name=draft.name,
            stem=draft.stem,
            rates=rates,
            leads=leads,
            about=draft.part,
        )
        for draft in sections
    }
    rare = rare_parts(runs, comparison, style, leads)
    spikes, hurt, balancer, responses = rare.spikes, rare.hurt, rare.balancer, rare.responses
    jobs, watched = rare.jobs, rare.watched
    phases = responses.table.rows if responses else ()
    found = watched.found if watched else ()
    proxied = balancer.tables[0].rows if balancer else ()
    sources = _sources(comparison, references, style, series, phases, found, leads, proxied)
    figures = [
        *([overhead] if overhead else []),
        *(figure for section in sections for figure in section.figures),
        *(figure for found in of_series.values() for figure, _ in found),
        *rare.figures(),
        *(sources.figures() if sources else ()),
    ]
    costs = costs_of(comparison)
    own_costs = by_part(costs)
    whole = WholeTables(
        effects_table(comparison, "effects", comparison.effects), summaries_table(comparison)
    )
    tables = [*_tables(runs, comparison, series, whole), unit_cost_table(comparison, costs)]
    files: list[str] = []
    of_pairs, every_pair = _pairs(comparison)
    shared = shared_table(runs, comparison)
    turns = sessions_section(runs, comparison)
    own = [
        *of_pairs,
        *([shared] if shared else ()),
        *(turns.tables if turns else ()),
        *rare.tables(),
    ]
    for table in [*tables, *own]:
        files += _write_table(table, tables_folder)
    if sources is not None:
        files += sources.write(tables_folder)
    written = [
        finish(
            comparison,
            draft,
            series.get(draft.part, {}),
            own_costs.get(draft.part, ()),
            whole,
        )
        for draft in sections
    ]
    drawn = draw(figures, figures_folder, formats)
    page = make_page(
        comparison,
        style,
        overhead=drawn.get(overhead.name) if overhead else None,
        overhead_note=_overhead_note(comparison) if overhead else "",
        sections=[
            illustrated(section, draft, of_series[draft.part], drawn)
            for section, draft in zip(written, sections, strict=True)
        ],
        files=files,
        pairs=every_pair,
        shared=shared.shown() if shared else None,
        in_sessions=turns,
        explorer=_explorer(comparison, whole.effects, sections, out, found),
        references=sources.sections(drawn) if sources else [],
        spikes=spikes.section if spikes else None,
        spikes_figure=(
            Noted(drawn[spikes.figure.name], spikes.note) if spikes and spikes.figure else None
        ),
        interference=hurt.section if hurt else None,
        interference_figure=Noted(drawn[hurt.figure.name], hurt.note) if hurt else None,
        fates=rare.lost.section(drawn) if rare.lost else None,
        bus=rare.memory.section if rare.memory else None,
        balancer=balancer.section if balancer else None,
        balancer_figures=[
            Noted(drawn[figure.name], note)
            for figure, note in (balancer.figures if balancer else ())
        ],
        course=responses.section if responses else None,
        course_figures=[Noted(drawn[figure.name], responses.note) for figure in responses.figures]
        if responses
        else [],
        mapreduce=jobs.section if jobs else None,
        mapreduce_figures=[Noted(drawn[figure.name], jobs.note) for figure in jobs.figures]
        if jobs
        else [],
        hypervisors=rare.hypervisors.section if rare.hypervisors else None,
        monitoring=watched.section if watched else None,
        monitoring_figures=[Noted(drawn[figure.name], watched.note) for figure in watched.figures]
        if watched
        else [],
    )
    path = out / PAGE
    put(path, render(page))
    return path


def _sources(
    comparison: Comparison,
    references: Sequence[Reference],
    style: Mapping[str, Look],
    series: Pooled,
    phases: Sequence[PhaseEffect],
    watched: Sequence[Monitor],
    leads: Leads,
    proxied: Sequence[Through],
) -> Sources | None:
    """Return the sources that the run is set beside; None without any."""
    if not references:
        return None
    # Their model takes long to load, and few reports have any.
    from tare.report.paper import RunFindings
    from tare.report.sources import Sources

    findings = RunFindings(comparison, style, series, phases, watched, leads, proxied)
    return Sources(comparison, references, findings)


def _overhead_note(comparison: Comparison) -> str:
    level = f"{100 * comparison.confidence:.4g} %"
    text = (
        f"Each mark is an estimate over {counted(comparison.blocks, 'block')}, each bar its "
        f"{level} interval; marks in colour are differences that count, grey ones do not. "
    )
    text += shading_note(comparison)
    left_out = [effect for effect in comparison.headlines if effect.overhead is None]
    if left_out:
        text += f" {len(left_out)} effects without a ratio are only in the tables."
    shown = len(overview(comparison)) + len(left_out)
    if shown < len(comparison.headlines):
        text += (
            f" Of each workload only the first of its headline metrics is drawn here: "
            f"{len(comparison.headlines) - shown} more effects are below, workload by workload."
        )
    return text


def _tables(
    runs: Sequence[RunData], comparison: Comparison, series: Pooled, whole: WholeTables
) -> list[Table[Any]]:
    emulated = frozenset[str]().union(*(run.emulated_arms for run in runs))
    tables: list[Table[Any]] = [
        effects_table(comparison, "overhead", comparison.headlines),
        whole.effects,
        whole.values,
        tails_table(comparison, series),
        *far_tables(comparison, series),
        host_cost_table(comparison),
        proof_table(comparison, emulated),
        environment_changes_table(comparison, emulated),
        lost_cells_table(runs),
        skipped_table(runs),
        kernels_table(runs),
    ]
    if comparison.aa:
        tables.append(effects_table(comparison, "aa", comparison.aa))
    return tables


def _pairs(comparison: Comparison) -> tuple[list[Table[Any]], PairsSection | None]:
    """Return the tables of all pairs, and the page's part of them."""
    pairs = comparison.pairs
    if pairs is None or len(pairs.arms) < 2:
        return [], None
    table, ranks = pairs_table(comparison, pairs), ranking_table(comparison, pairs)
    return [table, ranks] if table.rows else [], pairs_section(table, ranks, pairs)


def _explorer(
    comparison: Comparison,
    effects: Table[Effect],
    sections: Sequence[Draft],
    out: Path,
    watched: Sequence[Monitor],
) -> str:
    if not effects.rows:
        return ""
    places = {draft.part: draft.stem for draft in sections}
    return explorer_data(comparison, effects, pair_effects(comparison), places, out, watched)


def _write_table(table: Table[Any], folder: Path) -> list[str]:
    put(folder / f"{table.name}.csv", table.csv())
    put(folder / f"{table.name}.tex", table.latex())
    return [f"tables/{table.name}.{extension}" for extension in ("csv", "tex")]


def render(page: Page) -> str:
    """Return the page as HTML; all outside text is escaped on the way."""
    return filled("page.html.j2", page, SCRIPTS if page.explorer else SCRIPTS[:1])
