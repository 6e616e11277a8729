"""The command ``compare``: one run by itself, run against run, and gates."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from tare.cli.checking import loaded
from tare.errors import InputError

if TYPE_CHECKING:
    from tare.analysis.comparison import Comparison
    from tare.analysis.rundata import RunData
    from tare.analysis.settings import Settings

EXIT = {"holds": 0, "fails": 1, "open": 3}
"""Exit statuses of gates; 2 is wrong input, as everywhere."""


class As(StrEnum):
    """How gates are told."""

    text = "text"
    markdown = "markdown"
    junit = "junit"
    bmf = "bmf"
    github = "github"
    openmetrics = "openmetrics"


def compare(
    directories: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders of runs.")],
    baseline: Annotated[
        str, typer.Option(metavar="ARM", help="Another arm to compare with than the study's.")
    ] = "",
    pairs: Annotated[
        bool, typer.Option("--pairs", help="Every arm against every other, and their ranks.")
    ] = False,
    gate: Annotated[
        list[str] | None,
        typer.Option(help="A limit on a change, such as 'switch latency-median < +5 %'."),
    ] = None,
    gates: Annotated[Path | None, typer.Option(help="A YAML file with a list of gates.")] = None,
    form: Annotated[As, typer.Option("--format", help="How gates are told.")] = As.text,
    out: Annotated[
        Path | None, typer.Option(help="Where gates are told to; standard output otherwise.")
    ] = None,
) -> None:
    """Show the effects of one run, or how those of a second differ from those of the first.

    Of two runs the difference of their effects to the baseline is told, of more what they say
    together; raw values of different runs are never compared. With gates the exit status is 0
    where all hold, 1 where one fails, and 3 where more blocks would have to tell.
    For example: tare compare before after --gate 'switch latency-median < +5 %'
    """
    from tare.report import render_comparison
    from tare.report.between import render_changes, render_together

    limits = tuple(gate or ())
    if (limits or gates) and len(directories) != 2:
        raise InputError("gates are about two runs", "name the run before and the run after")
    if pairs and len(directories) != 1:
        raise InputError("--pairs is about the arms of one run", "name one run")
    runs = [loaded(directory) for directory in directories]
    if len({run.run for run in runs}) < len(runs):
        raise InputError("the same run is given twice", "name each run once")
    console = Console(highlight=False)
    if pairs:
        _pairs(runs[0], baseline, console)
        return
    compared = [compared_with(run, baseline) for run in runs]
    if limits or gates:
        _gate(compared[0], compared[1], limits, gates, form, out, console)
    elif len(compared) == 1:
        render_comparison(compared[0], console)
    elif len(compared) == 2:
        render_changes(compared[0], compared[1], console)
    else:
        render_together(compared, console)


def compared_with(run: RunData, baseline: str) -> Comparison:
    """Return a run's effects against its baseline, or against another arm of it.

    Raises:
        InputError: It has no such arm.
    """
    from tare.analysis import compare_runs

    return compare_runs(run, settings_of(run, baseline))


def _pairs(run: RunData, baseline: str, console: Console) -> None:
    from tare.analysis import compare_every_pair
    from tare.report.pairs_terminal import render_pairs

    settings = settings_of(run, baseline)
    render_pairs(compare_every_pair(run, settings, most=None), console)


def settings_of(run: RunData, baseline: str) -> Settings:
    """Return how a run is compared, with another baseline than its study's if one is named.

    Raises:
        InputError: The run has no such arm.
    """
    from tare.analysis.settings import Settings

    settings = Settings.of([run])
    if not baseline or baseline == settings.baseline:
        return settings
    try:
        return settings.against(baseline, run.arms)
    except InputError as error:
        raise InputError(f"{run.folder}: {error.message}", error.hint) from None


def _gate(
    before: Comparison,
    after: Comparison,
    texts: tuple[str, ...],
    path: Path | None,
    form: As,
    out: Path | None,
    console: Console,
) -> None:
    from tare.analysis.gate_files import read_gates
    from tare.analysis.gates import check, parse_gate, worst
    from tare.outputs import put_for_user
    from tare.report.gates import FORMATS

    asked = (*map(parse_gate, texts), *(read_gates(path) if path is not None else ()))
    checked = check(before, after, asked)
    text = FORMATS[form.value](checked)
    if out is None:
        console.print(text, markup=False, soft_wrap=True, end="")
    else:
        put_for_user(out, text.encode(), "or choose another file with --out")
    raise typer.Exit(EXIT[worst(checked)])
