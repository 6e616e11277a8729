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


def history(
    directories: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders of runs.")],
    baseline: Annotated[
        str, typer.Option(metavar="ARM", help="Another arm to compare with than the study's.")
    ] = "",
    form: Annotated[As, typer.Option("--format", help="How it is told.")] = As.text,
    out: Annotated[
        Path | None, typer.Option(help="A file to write JSON to; standard output otherwise.")
    ] = None,
) -> None:
    """Show where the effects of many runs of one study changed; the order is that of their start.

    For example: tare history runs/nightly-*
    """
    from tare.analysis.history import history as history_of
    from tare.outputs import put_for_user
    from tare.report.history import history_json, render_history

    if out is not None and form is As.text:
        raise InputError("text is for the terminal", "write --format json beside --out")
    runs = [loaded(directory) for directory in directories]
    if len({run.run for run in runs}) < len(runs):
        raise InputError("the same run is given twice", "name each run once")
    found = history_of([compared_with(run, baseline) for run in runs])
    if form is As.text:
        render_history(found, Console(highlight=False))
    elif out is None:
        print(history_json(found), end="")
    else:
        put_for_user(out, history_json(found).encode(), "choose another file with --out")
