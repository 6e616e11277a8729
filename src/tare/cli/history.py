"""The command ``history``: where the effects of many runs of one study changed."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tare.cli.checking import loaded
from tare.cli.compare import compared_with
from tare.errors import InputError


class As(StrEnum):
    """How a history is told."""

    text = "text"
    json = "json"
    svg = "svg"


def history(
    directories: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders of runs.")],
    baseline: Annotated[
        str, typer.Option(metavar="ARM", help="Another arm to compare with than the study's.")
    ] = "",
    form: Annotated[As, typer.Option("--format", help="How it is told.")] = As.text,
    out: Annotated[
        Path | None,
        typer.Option(help="A file to write JSON or a picture to; standard output otherwise."),
    ] = None,
) -> None:
    """Show where the effects of many runs of one study changed; the order is that of their start.

    For example: tare history runs/nightly-* --format svg --out nightly.svg
    """
    from tare.analysis.history import history as history_of
    from tare.outputs import put_for_user
    from tare.report.history import history_json, history_svg, render_history

    if out is not None and form is As.text:
        raise InputError("text is for the terminal", "write --format json or svg beside --out")
    runs = [loaded(directory) for directory in directories]
    if len({run.run for run in runs}) < len(runs):
        raise InputError("the same run is given twice", "name each run once")
    found = history_of([compared_with(run, baseline) for run in runs])
    if form is As.text:
        render_history(found, Console(highlight=False))
        return
    text = history_json(found) if form is As.json else history_svg(found)
    if out is None:
        print(text, end="")
    else:
        put_for_user(out, text.encode(), "choose another file with --out")
