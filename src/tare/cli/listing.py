"""The commands that list studies, workloads, platforms and the version."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tare.cli.output import is_piped, piped_or_terminal
from tare.plaintext import plain

if TYPE_CHECKING:
    from tare.workloads.contract import Workload


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(studies)
    app.command()(workloads)
    app.command()(platforms)
    app.command()(version)


def studies(
    name: Annotated[str, typer.Argument(help="Print this study, as a start for your own.")] = "",
) -> None:
    """List the studies that come with Tare; `tare run` takes their names.

    For example: tare studies quick > mine.yaml; tare run mine.yaml
    """
    from tare.study.reading.shipped import find_study, shipped_studies, title_of

    if name:
        # The file may come from a stranger.
        print(plain(find_study(Path(name)).read_text(encoding="utf-8")), end="")
    else:
        _show({known: title_of(path) for known, path in shipped_studies().items()})


def workloads(
    as_json: Annotated[
        bool, typer.Option("--json", help="As JSON, with metrics and parameters.")
    ] = False,
) -> None:
    """List the workloads: Tare's own and installed ones."""
    from tare.registry import installed

    found = installed().workloads
    if as_json:
        listed = [_workload(workload) for _, workload in sorted(found.items())]
        print(json.dumps({"version": 1, "workloads": listed}, indent=2, ensure_ascii=False))
        return
    _show({name: workload.summary for name, workload in sorted(found.items())})


def _workload(workload: Workload[Any]) -> dict[str, Any]:
    """Return a workload as plain values. Keys may be added but never change."""
    return {
        "name": workload.name,
        "summary": workload.summary,
        "realtime": workload.realtime,
        "needs": sorted(workload.needs),
        "parameters": workload.parameters.model_json_schema().get("properties", {}),
        "metrics": [
            {
                "name": metric.name,
                "unit": metric.unit,
                "better": metric.better,
                "kind": metric.kind,
                "headline": metric.headline,
                "summary": metric.summary,
            }
            for metric in workload.metrics
        ],
    }


def platforms() -> None:
    """List the platforms that a study can name; `tare doctor` reports which ones work here."""
    from tare.registry import installed

    lines = {}
    for platform in installed().platforms.values():
        for variant in platform.variants:
            options = platform.options.model_validate(dict(variant.options))
            name = " ".join((platform.name, *(f"{k}={v}" for k, v in variant.options.items())))
            lines[name] = platform.describe(options)
    _show(lines)


def version() -> None:
    """Print the version."""
    from tare.run.lifecycle.versions import tare_version

    print(tare_version())


def print_version(wanted: bool) -> None:
    """Print the version and exit, if the option was given."""
    if wanted:
        version()
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option("--version", help="Print the version.", is_eager=True, callback=print_version),
]


def _show(lines: dict[str, str]) -> None:
    if is_piped() or not (console := piped_or_terminal()).is_terminal:
        for name, words in lines.items():
            print(f"{plain(name)}\t{plain(words)}")
        return
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    for name, words in lines.items():
        table.add_row(Text(plain(name), "bold"), Text(plain(words)))
    console.print(table)
