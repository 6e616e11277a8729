"""Write docs/sources.md: each source's tables and figures, and which study fills them."""

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

HEAD = """# What the sources measured, and what stands for it here

Each table and figure of a source, in its order, with what a run of Tare sets beside it. Run the
study, then `tare report DIR --reference NAME`: its page ends with the same list, filled from the
run, with the published values where the text states them, and with the reason where nothing
stands.

This page is written by `make docs` from `src/tare/references`.
"""
VIEWS = {
    "samples": "samples over time or by number, an arm a panel",
    "close-up": "single samples around one period of the clock tick",
    "values": "means over blocks with the source’s intervals",
    "course": "response time over time, phases shaded (*Response time over time*)",
    "phases": "mean response time, phase by phase and arm by arm",
}


def listing() -> str:
    """Return the page as Markdown."""
    laid_out = (load_reference(name) for name in known_references())
    parts = ("\n".join(_of_source(each)) for each in laid_out if each.exhibits)
    return "\n".join([HEAD, *parts])


def _of_source(reference: Reference) -> Iterator[str]:
    yield f"## {reference.reference}: {reference.title}\n"
    yield "| in the source | shows | here | study |"
    yield "|---|---|---|---|"
    for exhibit in reference.exhibits:
        table = next((one for one in reference.tables if one.is_shown_by(exhibit)), None)
        shows = exhibit.shows or (_shows(table) if table is not None else "")
        study = "–" if exhibit.none else f"`{exhibit.study or reference.studies[0]}`"
        yield f"| {exhibit.name} | {shows} | {_here(exhibit, table)} | {study} |"
    yield ""


def _shows(table: PublishedTable) -> str:
    where = f" in {table.scenario}" if table.scenario else ""
    return f"`{table.workload}` {table.metric}{where}"


def _here(exhibit: Exhibit, table: PublishedTable | None) -> str:
    if table is not None:
        no_scenario = ": of no known scenario, so published values alone"
        return "published values and the run’s" if table.scenario else f"a table{no_scenario}"
    if exhibit.like:
        return f"as figure {exhibit.like}"
    return f"nothing: {exhibit.none}" if exhibit.view is None else VIEWS[exhibit.view]


if __name__ == "__main__":
    put(Path("docs/sources.md"), listing())
