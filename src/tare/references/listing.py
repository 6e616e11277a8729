"""Write docs/reference/sources.md: each source's tables and figures, and the studies for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tare.outputs import put
from tare.references.exhibits import Exhibit
from tare.references.published import (
    PublishedTable,
    Reference,
    known_references,
    load_reference,
)

HEAD = """# What the sources measured, and its counterpart here

This page lists each table and figure of a source, in the source's order. For each, it shows the
counterpart in a run of Tare: the command that measures it, and the file of the report that has it.
`tare report DIR --reference NAME` ends the report with the same list, filled from the run. It has
the published values where the source's text states them, and the reason where there is no
counterpart.

Studies with names in `-short` or `-smoke`, such as `realtime-short` and `components-smoke`, measure
less. The command after *as long* measures for as long as the source did. Figures are files in SVG,
and in PNG and PDF with `--figures`; tables are in CSV and LaTeX. Figures that draw architectures or
scenarios have no values, and are not listed.

This page is written by `make docs` from `src/tare/references`.
"""
VIEWS = {
    "samples": "samples over time or by number, an arm a panel",
    "close-up": "single samples around one period of the clock tick",
    "values": "bars and a table of means over blocks with the source’s intervals",
    "timeline": "response time over time, phases shaded (*Response time over time*)",
    "phases": "mean response time, phase by phase and arm by arm, as bars and a table",
    "bars": "a figure of means over blocks with intervals, an arm a bar",
    "counters": "a figure of counters' means with intervals, an arm a bar",
    "job-phases": "the time of each phase, an arm a bar (*Jobs of Hadoop, phase by phase*)",
    "over-size": "a figure over the size of objects, an arm a line, and its values",
    "time-spent": "CPUs by owner, and as a figure (*What goes through the load balancer*)",
}
ELSEWHERE = {"timeline": "figures/course-1.svg", "job-phases": "tables/job-phases.csv"}
"""Views whose counterpart is a part of every report, and its file."""
NOTHING = "–"


def listing() -> str:
    """Return the page as Markdown."""
    laid_out = (load_reference(name) for name in known_references())
    parts = ("\n".join(_source_lines(each)) for each in laid_out if each.exhibits)
    return "\n".join([HEAD, *parts])


def _source_lines(reference: Reference) -> Iterator[str]:
    yield f"## {reference.reference}: {reference.title}\n"
    yield f"`tare report DIR --reference {reference.reference}`\n"
    yield "| in the source | shows | here | command | file |"
    yield "|---|---|---|---|---|"
    for exhibit in reference.exhibits:
        table = next((one for one in reference.tables if one.is_shown_by(exhibit)), None)
        shows = exhibit.shows or (_shows(table) if table is not None else "")
        run = NOTHING if exhibit.none else _run(reference, exhibit)
        file = file_of(reference, exhibit)
        named = f"`{file}`" if file else NOTHING
        yield f"| {exhibit.name} | {shows} | {_own_exhibit(exhibit, table)} | {run} | {named} |"
    yield ""


def _run(reference: Reference, exhibit: Exhibit) -> str:
    command = f"`tare run {exhibit.study or reference.studies[0]}`"
    return f"{command}; as long: `tare run {exhibit.longer}`" if exhibit.longer else command


def file_of(reference: Reference, exhibit: Exhibit) -> str:
    """Return the file of a report that has an exhibit's counterpart; empty if there is none."""
    if any(one.is_shown_by(exhibit) for one in reference.tables):
        return f"tables/reference-{reference.reference}.csv"
    if exhibit.view is None:
        return ""
    if exhibit.view in ELSEWHERE:
        return ELSEWHERE[exhibit.view]
    stem = exhibit.stem(reference.reference)
    drawn = exhibit.view in ("samples", "close-up")
    return f"figures/{stem}.svg" if drawn else f"tables/{stem}.csv"


def _shows(table: PublishedTable) -> str:
    where = f" in {table.scenario}" if table.scenario else ""
    shown = f"{table.shows}: " if table.shows else ""
    return f"{shown}`{table.workload}` {table.metric}{where}"


def _own_exhibit(exhibit: Exhibit, table: PublishedTable | None) -> str:
    if table is not None:
        no_scenario = ": of no known scenario, so published values alone"
        return "published values and the run’s" if table.scenario else f"a table{no_scenario}"
    return f"nothing: {exhibit.none}" if exhibit.view is None else VIEWS[exhibit.view]


if __name__ == "__main__":
    put(Path("docs/reference/sources.md"), listing())
